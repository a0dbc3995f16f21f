"""A node that comes back under another name keeps its history; one that takes over a name does not
inherit it.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from seatrial.history import open_store
from seatrial.history.machines import Machines, earlier_names
from seatrial.history.past import RunContext, past_runs
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check, RunResult
from seatrial.model.setup import NodeHardware, Setup, hardware_by_node
from seatrial.model.verdict import Verdict
from seatrial.tasks.check import compare

START = datetime(2026, 11, 2, 1, tzinfo=UTC)
SETUP = Setup("cpu", 8, 0, 1)


def parts(*machines: int) -> dict[str, NodeHardware]:
    """node-0 is the first machine given, and so on: each with a board and two GPUs of its own, all
    of one image.
    """
    return {
        f"node-{n}": NodeHardware(
            "H100",
            ids=frozenset({"image", *(f"{part}-{m}" for part in ("board", "gpu-a", "gpu-b"))}),
        )
        for n, m in enumerate(machines)
    }


def with_ids(hardware: Mapping[str, NodeHardware], node: str, *ids: str) -> dict[str, NodeHardware]:
    return {**hardware, node: NodeHardware("H100", ids=frozenset(ids))}


@pytest.mark.parametrize(
    ("tonight", "then", "names"),
    [
        (parts(0, 1, 2), parts(0, 1, 2), {}),
        (parts(0, 2, 1), parts(0, 1, 2), {"node-1": "node-2", "node-2": "node-1"}),
        (parts(0, 1, 9), parts(0, 1, 2), {"node-2": None}),
        (parts(0, 1, 2, 3), parts(0, 1), {}),
        (parts(7, 8, 9), parts(0, 1, 2), {}),
        (parts(0, 1, 2), {}, {}),
        (parts(0, 0, 0), parts(0, 0, 0), {}),
        (with_ids(parts(0, 1, 2), "node-2", "board-2", "gpu-a-2", "gpu-new"), parts(0, 1, 2), {}),
        (
            with_ids(parts(0, 1, 2), "node-2", "board-new", "gpu-new", "gpu-b-2"),
            parts(0, 1, 2),
            {"node-2": None},
        ),
        (with_ids(parts(0, 1, 2), "node-2"), parts(0, 1, 2), {}),
        (with_ids(parts(0, 1, 2), "node-2", "board-1"), parts(0, 1, 2), {}),
    ],
    ids=[
        "the same",
        "two changed places",
        "a new machine",
        "the cluster grew",
        "drawn anew every night",
        "nothing is known",
        "all on one host",
        "a new GPU",
        "hardly a part is left",
        "a node that does not tell",
        "a part that another has as well",
    ],
)
def test_renamed_machine_is_recognised_by_its_hardware_ids(
    tonight: Mapping[str, NodeHardware],
    then: Mapping[str, NodeHardware],
    names: Mapping[str, str | None],
) -> None:
    assert earlier_names(tonight, then) == names


def subjects(node: str) -> list[Subject]:
    return [
        Subject("node", node),
        Subject("gpu", f"{node}/gpu-0"),
        Subject("link", f"{node}--{node}"),
    ]


def night(
    number: int, machines: Sequence[int], rng: np.random.Generator, slow: int = -1
) -> RunResult:
    """Machine m makes 600 + 10 m TFLOP/s, a slow one 10 % less, with 1 % noise; everything is
    measured three times.
    """
    hardware = parts(*machines)
    nodes = [
        {"name": name, "gpu_model": made.gpu_model, "hardware_ids": sorted(made.ids)}
        for name, made in hardware.items()
    ]
    measured = tuple(
        Measurement("matmul", rate * np.exp(0.01 * rng.standard_normal()), "TFLOP/s", subject)
        for _ in range(3)
        for n, machine in enumerate(machines)
        for rate in [(600 + 10 * machine) * (0.9 if machine == slow else 1)]
        for subject in subjects(f"node-{n}")
    )
    at = START + timedelta(days=number)
    check = Check("devices", Verdict.PASS, Reason(), 1.0, measured)
    return RunResult(
        f"run-{number}",
        "lab",
        "quick",
        at,
        at,
        Verdict.PASS,
        Reason(),
        nodes,
        checks=[check],
        setup=SETUP,
    )


def test_past_readings_follow_a_machine_to_its_new_name() -> None:
    rng = np.random.default_rng(3)
    with open_store("sqlite://") as store:
        for number in range(12):
            store.save(night(number, range(8), rng), Path())
        tonight = night(12, (1, 0, 2, 3, 4, 5, 6, 9), rng)
        measured = {m.series(): m for m in tonight.checks[0].measurements}
        machines = Machines(hardware_by_node(tonight.nodes), measured)
        past = past_runs(store, "lab", "quick", {}, list(measured), tonight.started, machines)
        stored = store.result("run-3")
    median = {m.subject.name: past.location[:, i] for i, m in enumerate(measured.values())}
    for name, machine in (("node-0", 1), ("node-1", 0), ("node-2", 2)):
        for subject in (name, f"{name}/gpu-0", f"{name}--{name}"):
            assert np.median(median[subject]) == pytest.approx(600 + 10 * machine, rel=0.006), (
                subject
            )
    assert np.isnan(median["node-7"]).all()
    assert past.count.sum() == 12 * 3 * 3 * 7
    assert stored is not None
    assert stored.nodes[2]["hardware_ids"] == sorted(parts(0, 1, 2)["node-2"].ids)


def test_a_node_that_is_slow_under_a_new_name_is_found_by_its_own_history() -> None:
    rng = np.random.default_rng(4)
    # Machine 7, used to 670 TFLOP/s, is node-0 now, which used to make 600
    places = (7, 1, 2, 3, 4, 5, 6, 0)
    with open_store("sqlite://") as store:
        for number in range(20):
            store.save(night(number, range(8), rng), Path())
        blamed = {}
        for slow in (7, -1):
            tonight = night(20, places, rng, slow)
            context = RunContext("lab", "quick", started=tonight.started, nodes=tonight.nodes)
            (check,) = compare(tonight.checks, SETUP, store, context)
            blamed[slow] = {suspect.name for suspect in check.suspects if suspect.kind == "node"}
    assert blamed == {7: {"node-0"}, -1: set()}
