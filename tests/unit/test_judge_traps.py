"""Logs that fool others: what is wrong with them is named before any number counts."""

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.baselines import Baseline
from seatrial.baselines.catalog.match import from_catalog
from seatrial.baselines.setup import Setup
from seatrial.checks.logs import Asked, Judged, Log, judge_logs
from seatrial.cli import main
from seatrial.judge import judge
from seatrial.measurement import Measurement, Subject
from seatrial.nccl import parse_text
from seatrial.nccl.busbw import busbw_factor
from seatrial.verdict import Verdict

M, G = 1 << 20, 1 << 30
SIZES = (64 * M, 256 * M, G, 4 * G, 8 * G)
H100 = Asked("H100-SXM", 1, 8)
GB200 = Asked("GB200-NVL72", 2, 4, "MNNVL")
_MILDEST_FIRST = [Verdict.PASS, Verdict.DEGRADED, Verdict.FAIL]


def row(size: int, busbw: float, ranks: int = 8, wrong: int = 0) -> str:
    algbw = busbw / busbw_factor("all_reduce", ranks)
    side = f"{size / algbw / 1e3:.2f} {algbw:.2f} {busbw:.2f} {wrong}"
    return f"{size} {size // 4} float sum -1 {side} {side}"


def log_text(
    busbw: Sequence[float],
    ranks: int = 8,
    nodes: int = 1,
    before: Sequence[str] = (),
    wrong: int = 0,
    sizes: Sequence[int] = SIZES,
) -> str:
    """What all_reduce_perf prints, spread evenly over `nodes`."""
    each = ranks // nodes
    lines = [
        *before,
        "# nThread 1 nGpus 1 minBytes 67108864 maxBytes 8589934592 step: 4(factor) warmup iters: 5 iters: 20",
        "# Using devices",
        *(
            f"#  Rank {i} Group  0 Pid {100 + i} on node-{i // each} device  {i % each} [0x{i % each:02x}] NVIDIA GPU"
            for i in range(ranks)
        ),
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
        *(row(size, value, ranks, wrong) for size, value in zip(sizes, busbw, strict=True)),
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}",
        "# Avg bus bandwidth    : 123.4",
    ]
    return "\n".join(lines) + "\n"


def log(name: str, text: str) -> Log:
    return Log(name, tuple(parse_text(text, name)))


def judged(text: str, asked: Asked = H100) -> Judged:
    return judge_logs([log("log", text)], asked)


HEALTHY = (360.0, 419.0, 442.0, 476.0, 480.0)


# Who took part


def test_twelve_gpus_asked_and_four_in_one_pod() -> None:
    found = judged(log_text(HEALTHY, ranks=4), Asked("H100-SXM", 3, 4, "IB-8x400G"))
    assert (found.verdict, found.reason) == (Verdict.FAIL, "all_reduce: 4 of 12 ranks took part")
    assert found.checks[0].judgements == (), "no number is judged"


def test_all_ranks_on_one_node_of_two() -> None:
    found = judged(log_text(HEALTHY, ranks=8, nodes=1), Asked("H100-SXM", 2, 4, "IB-8x400G"))
    assert found.verdict is Verdict.FAIL
    assert found.reason == "all_reduce: all 8 ranks ran on 1 of 2 nodes: node-0"
    spread = judged(log_text(HEALTHY, ranks=8, nodes=2), Asked("H100-SXM", 2, 4, "IB-8x400G"))
    assert spread.verdict is Verdict.PASS


def test_nodes_that_share_a_host_name_are_not_counted_by_it() -> None:
    text = log_text(HEALTHY, ranks=8, nodes=2).replace("node-1", "node-0")
    assert judged(text, Asked("H100-SXM", 2, 4, "IB-8x400G")).verdict is Verdict.PASS


def test_nccl_tests_without_mpi_is_named() -> None:
    alone = [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20",
        "# Using devices",
        "#  Rank 0 Group  0 Pid {pid} on {host} device  0 [0x07] NVIDIA H100 80GB HBM3",
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
        f"{M} {M // 4} float sum -1 10.0 104.86 0.00 0 10.0 104.86 0.00 0",
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 0",
    ]
    both = "\n".join("\n".join(alone).format(pid=pid, host=f"node-{pid}") for pid in (1, 2))
    found = judged(both, Asked("H100-SXM", 2, 1))
    assert found.verdict is Verdict.FAIL
    assert "1 of 2 ranks took part: nccl-tests was not built with MPI=1" in found.reason


def test_seven_of_eight_gpus_are_named_whether_or_not_anybody_said_eight() -> None:
    text = log_text(HEALTHY, ranks=7)
    assert judged(text).reason == "all_reduce: 7 of 8 ranks took part"
    assert judged(text).verdict is Verdict.FAIL
    unsaid = judged(text, Asked("H100-SXM", 1))
    assert unsaid.verdict is Verdict.INCONCLUSIVE
    assert unsaid.reason.startswith("7 of 8 ranks took part, 8 GPUs per node being usual for H100-SXM")


@pytest.mark.parametrize(("ranks", "nodes"), [(4, 3), (15, 2), (8, 10)])
def test_a_number_that_no_nodes_alike_can_have_is_a_fault_also_where_nobody_said_how_many(
    ranks: int, nodes: int
) -> None:
    found = judged(log_text(HEALTHY, ranks), Asked("H100-SXM", nodes, None, "IB-8x400G"))
    assert (found.verdict, found.reason) == (Verdict.FAIL, f"all_reduce: {ranks} of {8 * nodes} ranks took part")


def test_one_pod_of_three_is_a_fault_also_where_its_gpus_divide() -> None:
    found = judged(log_text(HEALTHY, 6), Asked("H100-SXM", 3, None, "IB-8x400G"))
    assert (found.verdict, found.reason) == (Verdict.FAIL, "all_reduce: 6 of 24 ranks took part")


# What was measured


def test_the_average_of_a_mixed_sweep_counts_for_nothing() -> None:
    slow = log_text([value / 4 for value in HEALTHY]).replace("123.4", "480.0")
    assert judged(log_text(HEALTHY).replace("123.4", "1.2")).verdict is Verdict.PASS
    assert judged(slow).verdict is Verdict.FAIL


def test_wrong_results_are_corrupt_however_fast() -> None:
    found = judged(log_text(HEALTHY, wrong=3))
    assert found.verdict is Verdict.CORRUPT
    assert "wrong elements: 3 at 64M out-of-place" in found.reason


def test_more_than_the_links_carry_is_inconclusive() -> None:
    found = judged(log_text([900.0] * 5))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "so it was not measured over those links" in found.reason


@pytest.mark.parametrize(("algorithm", "verdict"), [("Ring", Verdict.INCONCLUSIVE), ("NVLS", Verdict.PASS)])
def test_what_is_impossible_for_a_ring_is_not_for_nvls(algorithm: str, verdict: Verdict) -> None:
    found = judged(log_text([550.0] * 5, before=[f"export NCCL_ALGO={algorithm}"]))
    assert found.verdict is verdict
    assert f"by {algorithm}" in found.reason


def test_a_ring_is_held_against_rings() -> None:
    """367 GB/s is what a ring reaches on H200, and 24 % below what NVLS does."""
    busbw = (300.0, 330.0, 355.0, 365.0, 367.0)
    sizes = (512 * M, G, 4 * G, 8 * G, 16 * G)
    h200 = Asked("H200-SXM", 1, 8)
    assert judged(log_text(busbw, sizes=sizes, before=["NCCL_ALGO=Ring all_reduce_perf"]), h200).verdict is Verdict.PASS
    assert judged(log_text(busbw, sizes=sizes), h200).verdict is Verdict.FAIL


# Which way the data went


@pytest.mark.parametrize("fabric", ["IB-8x400G", "gIB", "OFI", "FasTrak", "EFA-3200G"])
def test_sockets_fail_where_a_fabric_was_meant(fabric: str) -> None:
    evidence = "node-0:1:1 [0] NCCL INFO Using network Socket"
    found = judged(log_text(HEALTHY, 16, 2, [evidence]), Asked("H100-SXM", 2, 8, fabric))
    assert found.verdict is Verdict.FAIL
    assert f"went over sockets, not over {fabric}: {evidence}" in found.reason


def test_sockets_fail_also_where_results_were_not_checked() -> None:
    text = log_text(HEALTHY, 16, 2, ["node-0:1:1 [0] NCCL INFO Using network Socket"])
    unchecked = "\n".join(
        " ".join("N/A" if i in (8, 12) else word for i, word in enumerate(line.split())) if line[0].isdigit() else line
        for line in text.splitlines()
    )
    assert "N/A" in unchecked
    found = judged(unchecked, Asked("H100-SXM", 2, 8, "IB-8x400G"))
    assert found.verdict is Verdict.FAIL
    assert "went over sockets" in found.reason


def test_network_algorithm_and_protocol_are_reported() -> None:
    said = [
        "node-0:1:1 [0] NCCL INFO Using network IB",
        "node-0:1:1 [0] NCCL INFO Channel 00/0 : 1[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
        f"node-0:1:1 [0] NCCL INFO AllReduce: {8 * G} Bytes -> Algo 1 proto 2 time 12.0",
    ]
    found = judged(log_text(HEALTHY, 16, 2, said), Asked("H100-SXM", 2, 8, "IB-8x400G"))
    assert "over IB with GPUDirect RDMA, by Ring/Simple" in found.reason


@pytest.mark.parametrize(
    ("switch", "asked"),
    [
        ("NCCL_MNNVL_ENABLE=0", GB200),
        ("node-0:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.", H100),
        ("mpirun -x NCCL_IB_DISABLE=1 all_reduce_perf -b 8", Asked("H100-SXM", 2, 4, "IB-8x400G")),
        ("NCCL_NET=Socket", Asked("H100-SXM", 2, 4, "IB-8x400G")),
    ],
)
def test_a_control_that_is_as_fast_as_its_treatment_is_none(switch: str, asked: Asked) -> None:
    """NVLink off: 837.76 GB/s, on: 838.07, and the published validation passed."""
    on = log("on", log_text([837.76] * 5 if asked is GB200 else HEALTHY, 8, asked.nodes))
    off = log("off", log_text([838.07] * 5 if asked is GB200 else HEALTHY, 8, asked.nodes, [switch]))
    found = judge_logs([on, off], asked)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "off is no control" in found.reason
    assert "so the switch did nothing or the link is not used" in found.reason


def test_a_control_that_is_slower_is_neither_flagged_nor_blamed() -> None:
    on = log("on", log_text(HEALTHY))
    off = log("off", log_text([value / 20 for value in HEALTHY], before=["NCCL_P2P_DISABLE=1"]))
    found = judge_logs([on, off], H100)
    assert found.verdict is Verdict.PASS
    assert "with NCCL_P2P_DISABLE=1" in found.reason
    assert "a control arm, held against nothing" in found.reason


def test_a_link_that_is_switched_off_with_nothing_to_compare_is_a_fault() -> None:
    found = judged(log_text([value / 20 for value in HEALTHY], before=["NCCL_P2P_DISABLE=1"]))
    assert found.verdict is Verdict.FAIL
    assert "with NCCL_P2P_DISABLE=1" in found.reason


@pytest.mark.parametrize(
    ("switch", "asked", "ranks"),
    [
        ("NCCL_IB_DISABLE=1", H100, 8),  # one node has no network to miss
        ("NCCL_P2P_DISABLE=1", Asked("H100-SXM", 2, 1, "IB-1x400G"), 2),  # a GPU alone has no neighbour
        ("NCCL_IB_DISABLE=0", Asked("H100-SXM", 2, 4, "IB-8x400G"), 8),
    ],
)
def test_a_switch_that_need_not_show_makes_no_control(switch: str, asked: Asked, ranks: int) -> None:
    values = HEALTHY if ranks == 8 else [value / 10 for value in HEALTHY]
    pair = [log("a", log_text(values, ranks, asked.nodes)), log("b", log_text(values, ranks, asked.nodes, [switch]))]
    assert judge_logs(pair, asked).verdict is Verdict.PASS


# Several logs


def test_a_log_that_holds_nothing_keeps_the_others_from_passing() -> None:
    found = judge_logs([log("a", log_text(HEALTHY)), Log("b", ())], H100)
    assert (found.verdict, found.reason) == (Verdict.INCONCLUSIVE, "b: no nccl-tests output in it")


def test_the_worst_log_speaks_for_all_and_every_judgement_names_its_log() -> None:
    slow = log_text([value / 4 for value in HEALTHY])
    found = judge_logs([log("a", log_text(HEALTHY)), log("b", slow)], H100)
    assert found.verdict is Verdict.FAIL
    assert found.reason.startswith("b: all_reduce busbw_plateau 119 GB/s is 75 % below the 479.7 GB/s")
    assert {j.measurement.conditions["log"] for c in found.checks for j in c.judgements} == {"a", "b"}


# Properties


def shuffled(text: str, seed: int) -> str:
    lines = text.splitlines()
    rows = [line for line in lines if line[0].isdigit()]
    random.Random(seed).shuffle(rows)
    at = next(i for i, line in enumerate(lines) if line[0].isdigit())
    return "\n".join([*lines[:at], *rows, *lines[at + len(rows) :]])


curves = st.lists(st.floats(5.0, 480.0), min_size=5, max_size=5)


@settings(max_examples=30, deadline=None)
@given(curves, st.integers(0, 1000))
def test_the_order_of_rows_does_not_matter(busbw: list[float], seed: int) -> None:
    text = log_text(busbw)
    one, other = judged(text), judged(shuffled(text, seed))
    assert one.verdict is other.verdict
    assert {(j.measurement.series(), j.verdict) for c in one.checks for j in c.judgements} == {
        (j.measurement.series(), j.verdict) for c in other.checks for j in c.judgements
    }


@settings(max_examples=30, deadline=None)
@given(curves, st.floats(0.05, 1.0))
def test_slower_is_never_better(busbw: list[float], factor: float) -> None:
    fast, slow = judged(log_text(busbw)), judged(log_text([value * factor for value in busbw]))
    assert _MILDEST_FIRST.index(slow.verdict) >= _MILDEST_FIRST.index(fast.verdict)


@settings(max_examples=30, deadline=None)
@given(st.permutations(["a", "b", "c"]), curves)
def test_the_order_of_logs_does_not_matter(order: list[str], busbw: list[float]) -> None:
    texts = {"a": log_text(HEALTHY), "b": log_text(busbw), "c": log_text(HEALTHY, wrong=1)}
    assert judge_logs([log(name, texts[name]) for name in order], H100).verdict is Verdict.CORRUPT


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e4), st.floats(1e-3, 1e3), st.floats(0.3, 0.95), st.floats(0.1, 0.99))
def test_only_the_ratio_of_value_and_baseline_counts(
    value: float, centre: float, factor: float, low: float, floor: float
) -> None:
    """A shift on log scales: what value and baseline have in common changes nothing (away from the edges)."""

    def verdict(scale: float) -> Verdict:
        bounds = (centre * low * scale, None, centre * low * floor * scale)
        m = Measurement("busbw_plateau", value * scale, "GB/s", Subject("cluster", "lab"))
        found = judge(m, [Baseline("catalog", centre * scale, *bounds, 1, "what was published")])
        assert found is not None
        return found.verdict

    if all(abs(value / bound - 1) > 1e-9 for bound in (centre * low, centre * low * floor)):
        assert verdict(factor) is verdict(1.0)


# The command


def run(*arguments: str) -> int:
    """The exit status of `seatrial judge` with these arguments."""
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr(sys, "argv", ["seatrial", "judge", *arguments])
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("text", "status", "verdict"),
    [
        (log_text(HEALTHY), 0, "pass"),
        (log_text([value / 4 for value in HEALTHY]), 1, "fail"),
        (log_text([value * 0.8 for value in HEALTHY]), 1, "degraded"),
        (log_text(HEALTHY, wrong=1), 1, "corrupt"),
        (log_text(HEALTHY)[:-120], 3, "inconclusive"),
        ("bash: line 1: all_reduce_perf: command not found\n", 3, "not_run"),
    ],
)
def test_the_exit_status_is_the_verdicts(
    text: str, status: int, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.log").write_text(text)
    flags = ("--hardware", "H100-SXM", "--nodes", "1", "--gpus-per-node", "8")
    assert run(str(tmp_path / "sweep.log"), *flags, "--json") == status
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"verdict", "reason", "judgements"}
    assert document["verdict"] == verdict
    assert run(str(tmp_path / "sweep.log"), *flags) == status
    assert capsys.readouterr().out.splitlines()[-1] == f"{verdict}: {document['reason']}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such.log", "--hardware", "H100-SXM", "--nodes", "1"], "cannot read 'no-such.log'"),
        (["{empty}", "--hardware", "H100-SXM", "--nodes", "1"], "no nccl-tests output found"),
        (["{empty}", "--hardware", "H100-SXM"], "--nodes"),
        (["{empty}", "--nodes", "1"], "--hardware"),
        (["{empty}", "--hardware", "H100-SXM", "--nodes", "0"], "--nodes"),
        (["--hardware", "H100-SXM", "--nodes", "1"], "LOGS"),
    ],
)
def test_bad_input_is_status_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").write_text("")
    assert run(*(argument.format(empty=tmp_path / "empty") for argument in arguments)) == 2
    assert message in capsys.readouterr().err


def test_unknown_hardware_has_no_reference_and_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text(log_text(HEALTHY))
    assert run(str(tmp_path / "log"), "--hardware", "X999", "--nodes", "1") == 0
    assert "no comparable reference: hardware X999 is not in the catalog" in capsys.readouterr().out


def test_the_same_reference_as_in_a_run() -> None:
    """What `judge` holds a plateau against is what the catalog says of the largest size."""
    (check,) = judged(log_text(HEALTHY)).checks
    plateau = next(j for j in check.judgements if j.measurement.metric == "busbw_plateau")
    baseline = from_catalog(Setup("H100-SXM", 1, 8, 8), "all_reduce", 8 * G, plateau=True)
    assert baseline is not None
    assert plateau.expected.low == baseline.low
