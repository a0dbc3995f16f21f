"""One cause is one suspect, and what many have in common is one finding that blames nobody."""

import numpy as np
import pytest

from seatrial.model.verdict import Verdict
from seatrial.runs.replay import ReplayedRun
from tests.unit.judge.readings import Factor, Fleet, Series, names, of_gpus, of_nodes, slow

BAD = (Verdict.DEGRADED, Verdict.FAIL)


def after_healthy_runs(*kinds: Series, factor: Factor, runs: int = 8) -> ReplayedRun:
    """The run that follows `runs` healthy ones."""
    fleet = Fleet(np.random.default_rng(7))
    for _ in range(runs):
        fleet.run(*kinds)
    fleet.run(*kinds, factor=factor)
    return fleet.tonight()


def ring(nodes: int) -> Series:
    ends = [f"node-{n}--node-{(n + 1) % nodes}" for n in range(nodes)]
    return Series("busbw", "link", ends, 370.0, "GB/s", 0.02, {"operation": "all_reduce"})


# One cause is one suspect


@pytest.mark.parametrize("runs", [0, 8])
def test_a_clock_cap_is_one_suspect(runs: int) -> None:
    """All eight GPUs of a node are slow, and with them what the node measures as a whole."""
    run = after_healthy_runs(of_gpus(16), of_nodes(16, "training"), factor=slow("node-3", by=0.2), runs=runs)
    assert names(run) == {("node", "node-3")}
    (suspect,) = run.suspects
    if runs:  # the number of the node itself is the best evidence, where its noise is known
        assert suspect.evidence.sentence.startswith("training 5")
        assert "; also " in suspect.evidence.sentence


def test_one_slow_gpu_is_a_gpu() -> None:
    run = after_healthy_runs(of_gpus(16), of_nodes(16), factor=slow("node-3/gpu-2", by=0.2))
    assert names(run) == {("gpu", "node-3/gpu-2")}


def test_two_nodes_are_two_suspects() -> None:
    run = after_healthy_runs(of_gpus(16), factor=slow("node-3", "node-9/gpu-0", by=0.2))
    assert names(run) == {("node", "node-3"), ("gpu", "node-9/gpu-0")}


@pytest.mark.parametrize("metrics", [1, 4])
def test_several_metrics_of_a_node_are_evidence_of_one_suspect(metrics: int) -> None:
    kinds = [of_nodes(16, f"metric-{number}") for number in range(metrics)]
    run = after_healthy_runs(*kinds, factor=slow("node-3", by=0.2))
    (suspect,) = run.suspects
    assert (suspect.kind, suspect.name) == ("node", "node-3")
    assert suspect.evidence.sentence.partition("; also ")[2].count("metric-") == metrics - 1
    assert 0.5 < suspect.confidence < 1


# Links


def test_a_single_slow_link_is_a_link() -> None:
    run = after_healthy_runs(ring(16), factor=slow("node-4--node-5", by=0.4))
    assert names(run) == {("link", "node-4--node-5")}


def test_a_node_whose_links_are_all_slow_is_a_node() -> None:
    run = after_healthy_runs(ring(16), factor=slow("node-4--node-5", "node-5--node-6", by=0.4))
    assert names(run) == {("node", "node-5")}


def test_a_chain_of_slow_links_names_the_nodes_between() -> None:
    chain = [f"node-{n}--node-{n + 1}" for n in (4, 5, 6)]
    run = after_healthy_runs(ring(16), factor=slow(*chain, by=0.4))
    assert names(run) == {("node", "node-5"), ("node", "node-6")}


# Many alike


@pytest.mark.parametrize("runs", [0, 8])
def test_the_first_gpu_of_every_node_is_one_finding_without_suspects(runs: int) -> None:
    run = after_healthy_runs(of_gpus(16), factor=lambda subject: 0.8 if subject.endswith("/gpu-0") else 1.0, runs=runs)
    assert (run.verdict in BAD, run.suspects) == (True, ())
    assert "gpu-0 of 16 nodes" in run.reason.sentence


@pytest.mark.parametrize(("slow_nodes", "blamed"), [(1, 1), (4, 4), (7, 0), (16, 0)])
def test_of_few_slow_nodes_each_is_blamed_and_of_many_none(slow_nodes: int, blamed: int) -> None:
    run = after_healthy_runs(of_nodes(16), factor=slow(*[f"node-{n}" for n in range(slow_nodes)], by=0.3))
    assert run.verdict in BAD
    assert len(run.suspects) == blamed
    assert f"of {slow_nodes} of 16 nodes" in run.reason.sentence or blamed


def test_a_node_that_is_worse_than_all_that_are_slow_is_named_beside_them() -> None:
    factors = dict.fromkeys((f"node-{n}" for n in range(8)), 0.8) | {"node-12": 0.4}
    run = after_healthy_runs(of_nodes(16), factor=lambda subject: factors.get(subject, 1.0))
    assert run.verdict in BAD
    assert "matmul" in run.reason.sentence
    assert names(run) <= {("node", "node-12")}


# The whole cluster


def sweeps(ranks: int) -> list[Series]:
    return [
        Series("busbw_plateau", "cluster", ["lab"], 380.0, "GB/s", 0.02, {"operation": name, "ranks": str(ranks)})
        for name in ("all_reduce", "all_gather", "reduce_scatter")
    ]


@pytest.mark.parametrize(("factor", "passes"), [(0.5, False), (0.7, False), (1.0, True)])
def test_sweeps_over_more_ranks_are_held_against_those_over_fewer(factor: float, passes: bool) -> None:
    fleet = Fleet(np.random.default_rng(8))
    for _ in range(12):
        fleet.run(*sweeps(128))
    for _ in range(4):
        fleet.run(*sweeps(256), factor=lambda _: factor)
    runs = fleet.judged()
    assert {run.verdict for run in runs[:12]} == {Verdict.PASS}
    assert {run.verdict is Verdict.PASS for run in runs[12:]} == {passes}
    assert [run.suspects for run in runs if run.suspects] == []


def test_a_number_of_the_whole_cluster_blames_no_node() -> None:
    run = after_healthy_runs(*sweeps(128), factor=lambda _: 0.5, runs=12)
    assert (run.verdict in BAD, run.suspects) == (True, ())
    assert "busbw_plateau" in run.reason.sentence
