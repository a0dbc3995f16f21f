"""A collective that is slow without a suspect, through the whole chain: which part is named, and
what it costs.
"""

import dataclasses
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from seatrial.checks.contract import TimeLeft
from seatrial.history import open_store
from seatrial.history.rows import Pin
from seatrial.model.result import Check, RunResult
from seatrial.model.verdict import Verdict
from tests.fake_platform import FakePlatform, ProgramOutput, Request
from tests.fake_platform.mpi import collective, nccl_tests
from tests.fake_platform.programs import stream
from tests.suspects import suspect_names
from tests.unit.flow.conftest import Chain

NODES = 6
Answer = Callable[[Request], ProgramOutput | str]


@pytest.fixture
def known(chain: Chain) -> Chain:
    """A chain of six healthy nodes whose plateau is pinned."""
    chain.platform = FakePlatform(nodes=NODES)
    chain.suite = chain.suite.model_copy(update={"training": None, "devices": None})
    pin_plateau(chain)
    return chain


def pin_plateau(chain: Chain, **cluster: Any) -> None:
    healthy = chain.run(**cluster)
    assert (healthy.verdict, healthy.localization) == (Verdict.PASS, None)
    (plateau,) = (
        m for check in healthy.checks for m in check.measurements if m.metric == "busbw_plateau"
    )
    at = datetime(2026, 1, 1, tzinfo=UTC)
    pin = Pin(plateau.series(), plateau.value, 0.8 * plateau.value, None, "GB/s", "us", at, "run-0")
    with open_store() as store:
        store.pin(healthy.cluster, [pin])


def slower(request: Request, factor: float) -> Request:
    ranks = tuple(
        dataclasses.replace(node, link_mb_s=node.link_mb_s * factor) for node in request.ranks
    )
    return dataclasses.replace(request, ranks=ranks)


def named(result: RunResult) -> list[tuple[str, str]]:
    return [
        (suspect.kind, suspect.name) for suspect in result.suspects if suspect.confidence >= 0.95
    ]


def check_of(result: RunResult) -> Check:
    (check,) = (check for check in result.checks if check.name == "localize")
    return check


def rounds(chain: Chain) -> list[str]:
    """The logs of tests in rounds."""
    return sorted(path.stem for path in (chain.out / "logs").glob("localize-*.log"))


def slow_with(*names: str) -> Answer:
    return lambda request: collective(
        slower(request, 0.33 if {node.name for node in request.ranks}.issuperset(names) else 1.0)
    )


def test_a_node_that_only_collectives_find_slow_is_named(known: Chain) -> None:
    known.platform.programs["collective.py"] = slow_with("node-2")
    result = known.run()
    assert named(result) == [("node", "node-2")]
    assert (result.verdict, check_of(result).reason.code) == (
        check_of(result).verdict,
        "localize-node",
    )
    assert result.reason.sentence.startswith("node-2 (100 % sure): slow in ")
    assert result.localization and result.localization["rounds"] == len(
        {name.split("-")[1] for name in rounds(known)}
    )
    assert [test["name"] for test in result.localization["tests"]] == sorted(rounds(known))
    slow = {test["name"] for test in result.localization["tests"] if "node-2" in test["nodes"]}
    assert {test["name"] for test in result.localization["tests"] if test["ratio"] < 0.5} == slow
    hostfiles = {
        path: text for node in known.platform.nodes.values() for path, text in node.files.items()
    }
    assert (
        sum(
            len(text.splitlines()) == 2
            for path, text in hostfiles.items()
            if "hostfile-localize-" in path
        )
        >= 6
    )


def test_slow_link_is_distinguished_from_its_nodes(known: Chain) -> None:
    known.platform.programs["collective.py"] = slow_with("node-2", "node-3")
    assert named(known.run()) == [("link", "node-2--node-3")]


@pytest.mark.parametrize("is_pinned", [True, False])
def test_node_that_slows_during_collectives_is_named_by_repeated_streams(
    chain: Chain, is_pinned: bool, request: pytest.FixtureRequest
) -> None:
    """Also when nothing is known of the collectives, so that these pass."""
    if is_pinned:
        request.getfixturevalue("known")

    def slows(request: Request) -> str:
        chain.platform.nodes["node-2"].link_mb_s = 40
        return collective(request)

    chain.platform = FakePlatform(nodes=NODES)
    chain.platform.programs["collective.py"] = slows
    result = chain.run()
    assert named(result) == [("node", "node-2")]
    assert result.verdict.is_fault and result.reason.sentence.startswith("node-2 ")
    assert check_of(result).reason.code == "localize-measured-again"
    assert {check.verdict.is_fault for check in result.checks if check.name == "collectives"} == {
        is_pinned
    }
    assert rounds(chain) == []


@pytest.mark.parametrize("is_over", [False, True])
def test_only_nodes_that_slow_before_streams_are_repeated_are_named(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    """The streams of node-1 are slow at first; when they are repeated, two other nodes have become
    slow, and node-1 meets one of them.
    """
    chain.platform = FakePlatform(nodes=12)
    chain.platform.nodes["node-1"].link_mb_s = 40

    def slows(request: Request) -> str:
        chain.platform.nodes["node-1"].link_mb_s = chain.platform.nodes["node-0"].link_mb_s
        chain.platform.nodes["node-2"].link_mb_s = chain.platform.nodes["node-8"].link_mb_s = 40
        return collective(request)

    chain.suite = chain.suite.model_copy(update={"training": None, "devices": None})
    chain.platform.programs["collective.py"] = slows
    if is_over:
        monkeypatch.setattr("seatrial.checks.localize.step._ALONE_SHARE", 0)
    result = chain.run()
    assert sorted(named(result)) == ([] if is_over else [("node", "node-2"), ("node", "node-8")])
    assert [suspect.name for suspect in result.suspects if suspect.confidence < 0.95] == []
    assert result.verdict.is_fault is not is_over
    expected = "localize-budget-spent" if is_over else "localize-measured-again"
    assert check_of(result).reason.code == expected


def test_streams_are_not_repeated_when_the_plateau_is_known_and_good(
    chain: Chain,
) -> None:
    chain.platform = FakePlatform(nodes=NODES)
    chain.suite = chain.suite.model_copy(update={"training": None, "devices": None})
    pin_plateau(chain)
    assert [name for name in chain.run().timings if name in ("compare", "localize")] == ["compare"]


@pytest.mark.parametrize(("slow_streams", "blamed"), [(3, []), (99, ["node-1--node-2"])])
def test_link_is_blamed_after_collectives_only_if_slow_in_both_repeats(
    chain: Chain, slow_streams: int, blamed: list[str]
) -> None:
    """Each repeat is the best of three streams; a busy machine can slow down all three."""
    ends, left = {"node-1", "node-2"}, 0

    def slows(request: Request) -> str:
        nonlocal left
        left = slow_streams
        return collective(request)

    def carries(request: Request) -> str:
        nonlocal left
        if not request.stdin:
            return stream(request)
        peer = next(
            n
            for n in request.peers.values()
            if n.address == json.loads(request.stdin)["peer"]["address"]
        )
        if {request.node.name, peer.name} != ends or not left:
            return stream(request)
        left -= 1
        slow = dataclasses.replace(request.node, link_mb_s=40.0)
        return stream(dataclasses.replace(request, node=slow))

    chain.platform = FakePlatform(nodes=NODES)
    chain.suite = chain.suite.model_copy(update={"training": None, "devices": None})
    chain.platform.programs |= {"collective.py": slows, "stream.py": carries}
    assert suspect_names(chain.run()) == blamed
    assert left == max(0, slow_streams - 6)


def test_streams_not_repeated_within_the_budget_blame_nobody(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six nodes in three pairs: the neighbour of the slow node was measured with no other node."""
    asked: list[TimeLeft] = []

    def is_over(left: TimeLeft) -> bool:
        asked.append(left)
        return len(asked) > 4

    def slows(request: Request) -> str:
        chain.platform.nodes["node-2"].link_mb_s = 40
        monkeypatch.setattr(TimeLeft, "over", property(is_over))
        return collective(request)

    chain.platform = FakePlatform(nodes=NODES)
    chain.suite = chain.suite.model_copy(update={"training": None, "devices": None})
    chain.platform.programs["collective.py"] = slows
    assert list(chain.run().suspects) == []
    assert len(asked) > 4


@pytest.mark.parametrize(
    "printed",
    [
        "ORTE has lost communication with a remote daemon.",
        (
            "mpirun noticed that process rank {rank} with PID 47 on node {address} exited on "
            "signal 9 (Killed)."
        ),
    ],
)
def test_a_node_that_dies_in_a_round_is_named_and_the_rest_goes_on(
    known: Chain, printed: str
) -> None:
    """Its rank that was killed is a weaker sign than a node that does not answer."""

    def dies(request: Request) -> ProgramOutput | str:
        names = [node.name for node in request.ranks]
        if len(names) == 2 and "node-5" in names:
            node = known.platform.nodes["node-5"]
            node.commands_left = 0
            return ProgramOutput(
                printed.format(rank=names.index("node-5"), address=node.address) + "\n", 1
            )
        return slow_with("node-2")(request)

    known.platform.programs["collective.py"] = dies
    result = known.run()
    assert set(named(result)) == {("node", "node-2"), ("node", "node-5")}
    assert result.localization is not None
    assert {node for test in result.localization["tests"] for node in test["nodes"]} == {
        f"node-{i}" for i in range(5)
    }


def test_equally_slow_nodes_are_not_blamed(known: Chain) -> None:
    known.platform.programs["collective.py"] = slow_with()
    result = known.run()
    assert (result.verdict.is_fault, list(result.suspects)) == (True, [])
    assert (check_of(result).verdict, check_of(result).reason.code) == (
        Verdict.INCONCLUSIVE,
        "localize-none",
    )


@pytest.mark.parametrize("budget_s", [0, 1e-9])
def test_no_round_begins_after_the_budget(known: Chain, budget_s: float) -> None:
    known.suite = known.suite.model_copy(update={"budget_s": budget_s})
    known.platform.programs["collective.py"] = slow_with("node-2")
    result = known.run()
    assert (result.verdict.is_fault, list(result.suspects), rounds(known)) == (True, [], [])
    reasons = [check.reason.code for check in result.checks if check.name == "localize"]
    assert reasons == (["localize-budget-spent"] if budget_s else [])


def test_a_gpu_that_only_collectives_find_slow_is_named(known: Chain) -> None:
    for node in known.platform.nodes.values():
        node.facts |= {
            "gpus": 4,
            "gpu_model": "NVIDIA H100 80GB HBM3",
            "nccl_tests": "/usr/bin/all_reduce_perf",
        }
        node.link_mb_s = 200_000.0
    cluster: dict[str, Any] = {"hardware": "H100-SXM", "gpus_per_node": 4}
    pin_plateau(known, **cluster)

    def program(request: Request) -> ProgramOutput | str:
        gpus = request.env.get("CUDA_VISIBLE_DEVICES", "0,1,2,3").split(",")
        names = {node.name for node in request.ranks}
        assert len(request.ranks) == len(names) * len(gpus)
        factor = 0.33 if "node-2" in names and "3" in gpus else 1.0
        return nccl_tests(slower(request, factor))

    known.platform.programs["all_reduce_perf"] = program
    result = known.run(**cluster)
    assert named(result) == [("gpu", "node-2/gpu-3")]
