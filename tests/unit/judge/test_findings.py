"""One cause is one suspect, and what many have in common is one finding that blames nobody."""

from collections.abc import Sequence

import pytest

from seatrial.model.verdict import Verdict
from seatrial.runs.replay import ReplayedRun
from tests.unit.judge.readings import Factor, Fleet, Series, names, of_gpus, of_nodes, slow

BAD = (Verdict.DEGRADED, Verdict.FAIL)
ENDS = [f"node-{n}--node-{(n + 1) % 16}" for n in range(16)]
RING = Series("busbw", "link", ENDS, 370.0, "GB/s", 0.02, {"operation": "all_reduce"})


def after_healthy_runs(*kinds: Series, factor: Factor, runs: int = 8) -> ReplayedRun:
    """The run that follows `runs` healthy ones."""
    fleet = Fleet(7)
    fleet.run(*kinds, times=runs)
    fleet.run(*kinds, factor=factor)
    return fleet.tonight()


# One cause is one suspect


@pytest.mark.parametrize("runs", [0, 8])
def test_slow_gpus_and_metrics_of_one_node_make_one_suspect(runs: int) -> None:
    """All eight GPUs of a node are slow, and so are the numbers of the whole node."""
    run = after_healthy_runs(
        of_gpus(16), of_nodes(16, "training"), factor=slow("node-3", by=0.2), runs=runs
    )
    assert names(run) == {("node", "node-3")}
    (suspect,) = run.suspects
    if runs:  # the number of the node itself is the best evidence, where its noise is known
        assert suspect.evidence.sentence.startswith("training 5")
        assert "; also " in suspect.evidence.sentence


@pytest.mark.parametrize("metrics", [1, 4])
def test_several_metrics_of_a_node_are_evidence_of_one_suspect(metrics: int) -> None:
    kinds = [of_nodes(16, f"metric-{number}") for number in range(metrics)]
    run = after_healthy_runs(*kinds, factor=slow("node-3", by=0.2))
    (suspect,) = run.suspects
    assert (suspect.kind, suspect.name) == ("node", "node-3")
    assert suspect.evidence.sentence.partition("; also ")[2].count("metric-") == metrics - 1
    assert 0.5 < suspect.confidence < 1


@pytest.mark.parametrize(
    ("kinds", "slowed", "by", "blamed"),
    [
        ((of_gpus(16), of_nodes(16)), ["node-3/gpu-2"], 0.2, {("gpu", "node-3/gpu-2")}),
        (
            (of_gpus(16),),
            ["node-3", "node-9/gpu-0"],
            0.2,
            {("node", "node-3"), ("gpu", "node-9/gpu-0")},
        ),
        ((RING,), ["node-4--node-5"], 0.4, {("link", "node-4--node-5")}),
        ((RING,), ["node-4--node-5", "node-5--node-6"], 0.4, {("node", "node-5")}),
        (
            (RING,),
            [f"node-{n}--node-{n + 1}" for n in (4, 5, 6)],
            0.4,
            {("node", "node-5"), ("node", "node-6")},
        ),
    ],
    ids=["a GPU", "a node and a GPU", "a link", "all links of a node", "a chain of links"],
)
def test_smallest_part_that_explains_all_slow_series_is_blamed(
    kinds: Sequence[Series], slowed: Sequence[str], by: float, blamed: set[tuple[str, str]]
) -> None:
    assert names(after_healthy_runs(*kinds, factor=slow(*slowed, by=by))) == blamed


# Many alike


@pytest.mark.parametrize("runs", [0, 8])
def test_slow_first_gpu_of_every_node_is_one_finding_without_suspects(runs: int) -> None:
    run = after_healthy_runs(
        of_gpus(16), factor=lambda subject: 0.8 if subject.endswith("/gpu-0") else 1.0, runs=runs
    )
    assert (run.verdict in BAD, run.suspects) == (True, ())
    assert "gpu-0 of 16 nodes" in run.reason.sentence


@pytest.mark.parametrize(("slow_nodes", "blamed"), [(1, 1), (4, 4), (7, 0), (16, 0)])
def test_few_slow_nodes_are_each_blamed_and_many_are_not(slow_nodes: int, blamed: int) -> None:
    run = after_healthy_runs(
        of_nodes(16), factor=slow(*[f"node-{n}" for n in range(slow_nodes)], by=0.3)
    )
    assert run.verdict in BAD
    assert len(run.suspects) == blamed
    assert f"of {slow_nodes} of 16 nodes" in run.reason.sentence or blamed


def test_only_the_worst_node_may_be_blamed_when_many_are_slow() -> None:
    factors = dict.fromkeys((f"node-{n}" for n in range(8)), 0.8) | {"node-12": 0.4}
    run = after_healthy_runs(of_nodes(16), factor=lambda subject: factors.get(subject, 1.0))
    assert run.verdict in BAD
    assert "matmul" in run.reason.sentence
    assert names(run) <= {("node", "node-12")}


def test_of_two_slow_nodes_the_slower_one_comes_first() -> None:
    run = after_healthy_runs(
        of_nodes(16), factor=lambda name: {"node-1": 0.88, "node-5": 0.7}.get(name, 1.0)
    )
    assert [suspect.name for suspect in run.suspects] == ["node-5", "node-1"]
    assert " on node-5: " in run.reason.sentence


# The whole cluster


def sweeps(ranks: int) -> list[Series]:
    return [
        Series(
            "busbw_plateau",
            "cluster",
            ["lab"],
            380.0,
            "GB/s",
            0.02,
            {"operation": name, "ranks": str(ranks)},
        )
        for name in ("all_reduce", "all_gather", "reduce_scatter")
    ]


@pytest.mark.parametrize(("factor", "passes"), [(0.5, False), (0.7, False), (1.0, True)])
def test_sweep_over_more_ranks_is_judged_by_earlier_ones_over_fewer(
    factor: float, passes: bool
) -> None:
    fleet = Fleet(8)
    fleet.run(*sweeps(128), times=12)
    fleet.run(*sweeps(256), factor=lambda _: factor, times=4)
    runs = fleet.judged()
    assert {run.verdict for run in runs[:12]} == {Verdict.PASS}
    assert {run.verdict is Verdict.PASS for run in runs[12:]} == {passes}
    assert [run.suspects for run in runs if run.suspects] == []


def test_slow_cluster_number_blames_no_node() -> None:
    run = after_healthy_runs(*sweeps(128), factor=lambda _: 0.5, runs=12)
    assert (run.verdict in BAD, run.suspects) == (True, ())
    assert "busbw_plateau" in run.reason.sentence
