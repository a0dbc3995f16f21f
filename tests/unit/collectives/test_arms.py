"""Arms: the sweeps that they add, what NCCL is told in each, and what comes of one."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.collectives import check as step
from seatrial.checks.collectives import sweep
from seatrial.checks.collectives.section import Collectives
from seatrial.checks.collectives.sweep import at_once
from seatrial.checks.connectivity.stages import RollCall
from seatrial.checks.contract import CheckContext, try_check
from seatrial.checks.metrics import Doubt
from seatrial.checks.suites import SuiteFile, load_suite
from seatrial.checks.table import repeat_checks
from seatrial.config.run import Run
from seatrial.judge.assess import assess
from seatrial.judge.knowledge import Knowledge
from seatrial.model.errors import RemoteError
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check
from seatrial.model.setup import ARMS, Setup
from seatrial.model.testbed import Node, Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi_result import MpiResult
from tests.suspects import kinds_and_names, suspect_names
from tests.unit.collectives.fake_mpirun import (
    GPU_SIZES,
    SIZES,
    make_run,
    make_testbed,
    result,
    table,
)

LATENCY = [8 << shift for shift in range(14)]  # bytes, on GPUs
Played = Callable[[Testbed, Sequence[str]], MpiResult]


class Mpirun:
    """Plays an mpirun by the testbed that it is given; remembers where it ran, what, and with which
    variables.
    """

    def __init__(self, played: Played) -> None:
        self.played = played
        self.calls: list[tuple[tuple[str, ...], list[str], Mapping[str, str], str]] = []
        self._lock = threading.Lock()

    def __call__(self, testbed: Testbed, argv: Sequence[str], **options: Any) -> MpiResult:
        with self._lock:
            names = tuple(node.name for node in testbed.nodes)
            self.calls.append((names, list(argv), options["env"], options["log_file"].name))
        played = self.played(testbed, argv)
        for line in played.lines:
            options["on_line"](line)
        return played


def in_full(testbed: Testbed, argv: Sequence[str], **more: Any) -> MpiResult:
    """The sweep that was asked for, over the ranks that there are."""
    smallest, largest, factor = (int(argv[argv.index(word) + 1]) for word in words_of(argv))
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return result(table(ranks=testbed.world_size, sizes=sizes, **more))


def words_of(argv: Sequence[str]) -> tuple[str, str, str]:
    return ("-b", "-e", "-f") if "-b" in argv else ("--min-bytes", "--max-bytes", "--step-factor")


def nodes_of(nodes: int, slots: int, gpus: int = 0) -> Testbed:
    made = tuple(
        Node(f"node-{i}", f"10.0.0.{i + 1}", 222, slots, "ssh-ed25519 AAAA", gpus)
        for i in range(nodes)
    )
    bed = make_testbed()
    return Testbed(
        bed.run_id, made, bed.user, bed.key_file, bed.dial, bed.workdir, network=bed.network
    )


def with_arms(tmp_path: Path, *, sizes: Sequence[int] = SIZES, nodes: int = 4) -> Run:
    made = make_run(tmp_path, nodes=nodes, sizes=sizes)
    document = made.suite.model_dump()
    document["collectives"]["arms"] = list(ARMS)
    return Run(made.run_id, made.cluster, SuiteFile.model_validate(document), tmp_path)


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Check, Mpirun]]:
    def run(
        bed: Testbed, played: Played = in_full, sizes: Sequence[int] = SIZES
    ) -> tuple[Check, Mpirun]:
        fake = Mpirun(played)
        monkeypatch.setattr(sweep, "mpirun", fake)
        monkeypatch.setattr(step, "roll_call", lambda run, testbed: RollCall(testbed, (), ()))
        planned = with_arms(tmp_path, sizes=sizes, nodes=len(bed.nodes))
        return try_check(step.COLLECTIVES, CheckContext(planned, bed)).check, fake

    return run


def test_every_arm_is_swept_after_the_operations_with_its_own_variables(
    swept: Callable[..., tuple[Check, Mpirun]],
) -> None:
    check, fake = swept(nodes_of(2, 4, gpus=4), sizes=GPU_SIZES)
    assert check.verdict is Verdict.PASS, check.reason
    everybody = ("node-0", "node-1")
    shown = {
        log: (names, {k: v for k, v in env.items() if k != "NCCL_DEBUG"})
        for names, _, env, log in fake.calls
    }
    assert shown == {
        "all_reduce.log": (everybody, {}),
        "all_reduce-intra-node-0.log": (
            ("node-0",),
            {"NCCL_P2P_LEVEL": "NVL", "NCCL_SHM_DISABLE": "1"},
        ),
        "all_reduce-intra-node-1.log": (
            ("node-1",),
            {"NCCL_P2P_LEVEL": "NVL", "NCCL_SHM_DISABLE": "1"},
        ),
        "all_reduce-network.log": (
            everybody,
            {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_ALGO": "Ring"},
        ),
        "all_reduce-latency.log": (everybody, {}),
        "all_reduce-no-mnnvl.log": (everybody, {"NCCL_MNNVL_ENABLE": "0"}),
    }
    latency = next(argv for _, argv, _, log in fake.calls if "latency" in log)
    assert " ".join(latency) == "all_reduce_perf -b 8 -e 65536 -f 2 -g 1 -w 20 -n 200 -d float"


def test_arm_is_a_condition_and_the_plain_sweep_keeps_its_series_name(
    swept: Callable[..., tuple[Check, Mpirun]],
) -> None:
    check, _ = swept(nodes_of(2, 4, gpus=4), sizes=GPU_SIZES)
    by_arm: dict[object, set[tuple[str, str]]] = {}
    for m in check.measurements:
        by_arm.setdefault(m.conditions.get("arm"), set()).add((m.metric, m.subject.name))
    whole = {("busbw", "lab"), ("busbw_plateau", "lab"), ("latency", "lab")}
    assert by_arm == {
        None: whole,
        "intra": {("busbw_plateau", "node-0"), ("busbw_plateau", "node-1")},
        "network": whole,
        "latency": {("latency", "lab")},
        "no-mnnvl": whole,
    }
    sizes = [
        m.conditions["message_bytes"]
        for m in check.measurements
        if m.conditions.get("arm") == "latency"
    ]
    assert sizes == LATENCY
    series = [m.series() for m in check.measurements]
    assert len(set(series)) == len(series)
    assert (
        "busbw_plateau|cluster:lab|dtype=float32,max_bytes=4194304,operation=all_reduce,ranks=8|GB/s"
        in series
    )


@pytest.mark.parametrize(
    ("nodes", "slots", "gpus", "arms"),
    [
        (2, 8, 8, ["intra", "network", "latency"]),
        (1, 8, 8, ["intra", "latency"]),
        (2, 1, 1, ["network", "latency"]),
        (4, 2, 0, ["intra", "latency"]),
        (4, 1, 0, ["latency"]),
    ],
)
def test_only_arms_that_apply_to_the_cluster_are_swept(
    nodes: int, slots: int, gpus: int, arms: list[str]
) -> None:
    section = load_suite("nightly").section(Collectives)
    assert section is not None
    planned = section.sweeps(nodes=nodes, slots=slots, gpus=bool(gpus))
    assert [sweep.operation for sweep in planned if not sweep.arm] == list(section.operations)
    assert [sweep.arm for sweep in planned if sweep.arm] == arms


def test_node_corrupt_in_the_intra_arm_is_named_and_later_arms_leave_it_out(
    swept: Callable[..., tuple[Check, Mpirun]],
) -> None:
    def played(testbed: Testbed, argv: Sequence[str]) -> MpiResult:
        alone = [node.name for node in testbed.nodes] == ["node-2"]
        return in_full(testbed, argv, wrong=3) if alone else in_full(testbed, argv)

    check, fake = swept(nodes_of(4, 2), played)
    assert check.verdict is Verdict.CORRUPT
    assert kinds_and_names(check) == [("node", "node-2")]
    assert "node-2: all_reduce (intra): wrong elements" in check.reason.sentence
    names, *_ = next(call for call in fake.calls if call[3] == "all_reduce-latency.log")
    assert names == ("node-0", "node-1", "node-3")


def test_a_fault_of_all_nodes_blames_none(swept: Callable[..., tuple[Check, Mpirun]]) -> None:
    def played(testbed: Testbed, argv: Sequence[str]) -> MpiResult:
        return in_full(testbed, argv, wrong=3 if len(testbed.nodes) == 1 else 0)

    check, _ = swept(nodes_of(4, 2), played)
    assert (check.verdict, check.suspects) == (Verdict.CORRUPT, ())


def test_unreachable_node_in_an_arm_is_not_blamed_and_later_arms_run(
    swept: Callable[..., tuple[Check, Mpirun]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node may have been preempted; the sweeps after it are tried."""

    def played(testbed: Testbed, argv: Sequence[str]) -> MpiResult:
        if [node.name for node in testbed.nodes] == ["node-2"]:
            raise RemoteError("node-2: no route to host")
        return in_full(testbed, argv)

    check, fake = swept(nodes_of(4, 2), played)
    assert (check.verdict, check.suspects) == (Verdict.FAIL, ())
    assert "all_reduce-latency.log" in {log for *_, log in fake.calls}


@pytest.mark.parametrize("whole_works", [True, False])
def test_failed_network_arm_blames_no_node(
    swept: Callable[..., tuple[Check, Mpirun]], whole_works: bool
) -> None:
    def played(testbed: Testbed, argv: Sequence[str]) -> MpiResult:
        # All_reduce, two nodes inside, network, latency
        breaks = len(calls) in (3, *(() if whole_works else (0,)))
        calls.append(argv)
        return (
            result(["node-0: NCCL WARN ncclInternalError"], 1) if breaks else in_full(testbed, argv)
        )

    calls: list[Sequence[str]] = []
    check, _ = swept(nodes_of(2, 4, gpus=4), played, sizes=GPU_SIZES)
    assert len(calls) == 6, "latency and no-mnnvl follow"
    assert (check.verdict, check.suspects) == (
        Verdict.INCONCLUSIVE if whole_works else Verdict.FAIL,
        (),
    )
    assert ("so no node is blamed" in check.reason.sentence) == whole_works


def test_a_slow_node_is_named_by_its_peers() -> None:
    def plateau(node: int, gb_s: float) -> Measurement:
        conditions: dict[str, ConditionValue] = {
            "operation": "all_reduce",
            "dtype": "float32",
            "ranks": 8,
            "max_bytes": 8 << 30,
            "arm": "intra",
        }
        return Measurement(
            "busbw_plateau", gb_s, "GB/s", Subject("node", f"node-{node}"), conditions
        )

    values = [478, 481, 476, 480, 479, 60]
    measured = tuple(plateau(node, gb_s) for _ in range(3) for node, gb_s in enumerate(values))
    (check,) = assess(
        [Check("collectives", Verdict.PASS, uncoded("ok"), measurements=measured)],
        Knowledge(Setup("cpu", 6, 0, 8)),
    ).checks
    assert check.verdict is Verdict.FAIL
    assert suspect_names(check) == ["node-5"]
    assert "all_reduce (intra) busbw_plateau 60.0 GB/s on node-5" in check.reason.sentence


def test_intra_arm_is_judged_by_the_published_figure_of_one_node() -> None:
    """Four nodes over InfiniBand have no row of their own, but NVLink inside a node is known."""
    conditions: dict[str, ConditionValue] = {
        "operation": "all_reduce",
        "dtype": "float32",
        "ranks": 8,
        "max_bytes": 8 << 30,
    }
    inside = Measurement(
        "busbw_plateau", 300, "GB/s", Subject("node", "node-1"), {**conditions, "arm": "intra"}
    )
    setup = Setup("H100-SXM", 4, 8, 8, "IB-8x400G")
    (check,) = assess(
        [Check("collectives", Verdict.PASS, uncoded("ok"), measurements=(inside,))],
        Knowledge(setup),
    ).checks
    assert check.verdict is Verdict.DEGRADED
    assert "480 GB/s measured on 1 node of 8 H100-SXM over NVLink at 8G" in check.reason.sentence


def test_only_doubtful_nodes_are_swept_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = Mpirun(in_full)
    monkeypatch.setattr(sweep, "mpirun", fake)
    conditions: dict[str, ConditionValue] = {
        "operation": "all_reduce",
        "dtype": "float32",
        "ranks": 2,
        "max_bytes": SIZES[-1],
        "arm": "intra",
    }
    doubts = [
        Doubt(
            Measurement("busbw_plateau", 1.0, "GB/s", Subject("node", f"node-{node}"), conditions),
            1,
            3,
        )
        for node in (1, 3)
    ]
    repeated = repeat_checks(
        CheckContext(with_arms(tmp_path), nodes_of(4, 2)), {"collectives": doubts}
    )
    assert {(names, log) for names, _, _, log in fake.calls} == {
        (("node-1",), "all_reduce-intra-node-1-again-1.log"),
        (("node-3",), "all_reduce-intra-node-3-again-1.log"),
    }
    series = [m.series() for m in repeated["collectives"].measurements]
    assert sorted(series) == sorted(doubt.measurement.series() for doubt in doubts)


def test_nodes_that_share_cores_take_turns() -> None:
    bed = nodes_of(8, 2)
    assert at_once(bed, [1] * len(bed.nodes)) == 8
    shared = Testbed(
        bed.run_id,
        bed.nodes,
        bed.user,
        bed.key_file,
        bed.dial,
        bed.workdir,
        network=bed.network,
        shared_cores=4,
    )
    assert at_once(shared, [1] * len(shared.nodes)) == 2
