"""What is trained: the models and sizes that a suite asks for, and what of them tells series
apart.
"""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from seatrial.checks.contract import PlannedNodes
from seatrial.checks.training.result import measured, read_training_result
from seatrial.checks.training.section import Training, TransformerSize, Workload, plan_training
from seatrial.config.cluster import Hardware
from seatrial.model.measurement import Measurement
from tests.unit.collectives.fake_mpirun import make_testbed
from tests.unit.training_output import LAB, printed


def of_cluster(workload: Workload) -> dict[str, Measurement]:
    """What is measured of the whole cluster by that training, by metric."""
    trained = read_training_result(printed(), make_testbed())
    assert trained
    return {
        m.metric: m
        for m in measured(trained, make_testbed(), LAB, workload)
        if m.subject.kind == "cluster"
    }


def test_learning_rate_changes_the_series_of_loss_and_not_of_speed() -> None:
    usual, faster = (
        {metric: m.series() for metric, m in of_cluster(workload).items()}
        for workload in (Workload(steps=20), Workload(steps=20, learning_rate=0.1))
    )
    assert {metric for metric in usual if usual[metric] != faster[metric]} == {"loss", "loss_drop"}
    assert "learning_rate" not in usual["loss_drop"], "suites that set none keep their history"


def sized(layers: int, width: int, heads: int, sequence_length: int, vocabulary: int) -> list[str]:
    """The probe's arguments for a transformer of that size."""
    size = {"layers": layers, "width": width, "heads": heads}
    size |= {"sequence-length": sequence_length, "vocabulary": vocabulary}
    return [word for name, value in size.items() for word in (f"--{name}", str(value))]


def test_estimated_time_is_shorter_for_small_images() -> None:
    def planned_s(**section: Any) -> float:
        training = Training(model="resnet18", steps=1000, **section)
        (part,) = plan_training(
            training.model_copy(update={"all_reduce_rounds": 0}), PlannedNodes(1, 1, gpus=False)
        )
        return part.about_s

    assert planned_s(data="cifar10") == planned_s(image_size=32) < planned_s() / 10


@pytest.mark.parametrize(
    ("section", "arguments", "conditions"),
    [
        ({}, ["--model", "tiny"], {}),
        (
            {"model": "transformer"},
            ["--model", "transformer", *sized(6, 512, 8, 128, 1024)],
            {"model": "transformer 6x512"},
        ),
        (
            {"model": "transformer", "transformer": {"layers": 12, "width": 1024, "heads": 16}},
            ["--model", "transformer", *sized(12, 1024, 16, 128, 1024)],
            {"model": "transformer 12x1024", "heads": 16},
        ),
        (
            {
                "model": "resnet50",
                "image_size": 64,
                "precision": "bf16",
                "compile": True,
                "inference_steps": 5,
            },
            [
                "--model",
                "resnet50",
                "--image-size",
                "64",
                "--precision",
                "bf16",
                "--compile",
                "--inference-steps",
                "5",
            ],
            {"model": "resnet50", "image_size": 64, "precision": "bf16", "compile": True},
        ),
        (
            {"model": "resnet18", "data": "cifar10", "data_dir": "/data", "workers": 2},
            ["--model", "resnet18", "--data", "cifar10", "--data-dir", "/data", "--workers", "2"],
            {"model": "resnet18", "image_size": 32, "data": "cifar10"},
        ),
    ],
)
def test_workload_is_passed_to_the_probe_and_recorded_as_conditions(
    section: dict[str, Any], arguments: list[str], conditions: dict[str, Any]
) -> None:
    settings = Training(**section)
    assert settings.arguments() == ["--steps", "30", "--batch", "8", "--warmup", "2", *arguments]
    for measurement in of_cluster(settings).values():
        others = {"ranks", "batch_per_rank", "steps"}
        assert {k: v for k, v in measurement.conditions.items() if k not in others} == conditions


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"data": "cifar10"},
            "data cifar10 is for resnet18 and resnet50; tiny learns synthetic data alone",
        ),
        (
            {"transformer": {"width": 100}, "model": "transformer"},
            "width is 100, which is no multiple of 8 heads",
        ),
        (
            {"transformer": {"layers": 2}},
            "transformer is the size of the model transformer; model is tiny",
        ),
        ({"transformer": {"layers": 0}, "model": "transformer"}, "greater than or equal to 1"),
        (
            {"steps": 50, "warmup_steps": 50},
            "warmup_steps is 50, which leaves none of 50 steps to time",
        ),
        *(
            ({"model": "llama", field: value}, f"{field} is not for llama debug")
            for field, value in {
                "image_size": 64,
                "workers": 2,
                "download": True,
                "data_dir": "/data",
                "inference_steps": 5,
                "min_loss_drop": 0.5,
            }.items()
        ),
        ({"image_size": 64}, "image_size is not for tiny"),
        (
            {"command": ["python", "train.py"], "log": "json", "warmup_steps": 5},
            "warmup_steps is not for your own json training",
        ),
        (
            {"model": "llama", "checkpoint_every": 50},
            "checkpoints need checkpoint_dir; without it none is written",
        ),
    ],
)
def test_inconsistent_training_section_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Training(**section)


def test_each_transformer_size_is_its_own_series() -> None:
    """Neither history nor catalog compares trainings that differ in one of the five sizes."""
    changes: list[dict[str, int]] = [{}, {"layers": 5}, {"width": 256}, {"heads": 4}]
    changes += [{"sequence_length": 64}, {"vocabulary": 512}]
    workloads = [
        Workload(model="transformer", transformer=TransformerSize(**change)) for change in changes
    ]
    assert len({of_cluster(workload)["throughput"].series() for workload in workloads}) == len(
        changes
    )


def test_nodes_with_gpus_train_what_the_suite_has_for_them() -> None:
    section = Training(gpu=Workload(model="resnet50", batch_per_rank=64))
    assert [section.workload(gpus=gpus).model for gpus in (False, True)] == ["tiny", "resnet50"]
    assert Training().workload(gpus=True).model == "tiny"


def test_flops_mfu_communication_share_and_inference_are_recorded() -> None:
    testbed = replace(make_testbed(), nodes=tuple(replace(n, gpus=1) for n in make_testbed().nodes))
    lines = printed(flops_per_sample=24.5e9, communication_share=0.1, inference_samples_s=9000.0)
    trained = read_training_result(lines, testbed)
    assert trained is not None
    h100 = LAB.model_copy(update={"hardware": Hardware(name="H100-SXM")})
    by_metric = {
        m.metric: m
        for m in measured(trained, testbed, h100, Workload(model="resnet50", precision="bf16"))
    }
    assert by_metric["model_flops"].value == pytest.approx(800 / 4 * 24.5e9 / 1e12)
    assert by_metric["mfu"].value == pytest.approx(800 / 4 * 24.5e9 / 989.4e12)
    assert (by_metric["communication_share"].value, by_metric["step_time_p99"].value) == (0.1, 30.0)
    assert {
        by_metric[name].better
        for name in ("model_flops", "mfu", "communication_share", "step_time_p99")
    } == {None}
    assert (by_metric["inference"].value, by_metric["inference"].better) == (9000.0, "higher")


def test_transformer_flops_are_six_per_weight_and_token_plus_attention() -> None:
    """Kaplan et al., "Scaling laws for neural language models", 2020, table 1: forward, and twice
    that for backward.
    """
    tiny = TransformerSize(layers=2, width=16, heads=1, sequence_length=20, vocabulary=50)
    layer = 4 * 16 * 16 + 2 * 16 * 64  # four projections, and two matrices of four times the width
    weights, attention = 2 * layer + 16 * 50, 2 * 2 * 20 * 16
    assert tiny.flops() == 6 * (weights + attention) * 20
