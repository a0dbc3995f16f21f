"""Logs that were read wrongly once: their rows, what they are held against, and who took part."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from seatrial.catalog.published import from_catalog
from seatrial.logs.cluster import LogsConfig
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.nccl import parse_text
from tests.command_line import command
from tests.unit.judge_traps.sweeplogs import (
    HEALTHY,
    SIZES,
    G,
    M,
    is_row,
    judged,
    log_text,
    of_operation,
)


def test_launch_times_give_no_latency_and_busbw_is_kept_as_printed() -> None:
    header = "# size count type redop root cputime algbw busbw #wrong cputime algbw busbw #wrong"
    rows = []
    for size, busbw in zip(SIZES, HEALTHY, strict=True):
        side = f"11.52 {busbw / 1.75:.2f} {busbw:.2f} 0"
        rows.append(f"{size} {size // 4} float sum -1 {side} {side}")
    lines = [
        line for line in log_text(HEALTHY).splitlines() if not is_row(line) and "# size" not in line
    ]
    result = judged("\n".join([*lines[:-2], header, *rows, *lines[-2:]]))
    assert result.verdict is Verdict.PASS
    assert "476" in result.reason.sentence
    assert not any(m.metric == "latency" for check in result.checks for m in check.measurements)


def test_hypercube_algbw_counts_only_the_parts_of_other_ranks() -> None:
    rows = []
    for size in SIZES:
        algbw = size * 7 / 8 / (size / 300e3) / 1e3
        side = f"{size / 300e3:.2f} {algbw:.2f} {algbw:.2f} 0"
        rows.append(f"{size} {size // 32} float -1 {side} {side}")
    lines = [line for line in log_text(HEALTHY).splitlines() if not is_row(line)]
    (check,) = judged("\n".join(["hypercube_perf -g 8", *lines[:-2], *rows, *lines[-2:]])).checks
    plateau = next(m.value for m in check.measurements if m.metric == "busbw_plateau")
    assert plateau == pytest.approx(300 * 7 / 8, rel=1e-3)


def test_data_types_of_one_table_are_sweeps_of_their_own() -> None:
    rows = [line for line in log_text(HEALTHY).splitlines() if is_row(line)]
    slow = [
        line for line in log_text([value * 0.3 for value in HEALTHY]).splitlines() if is_row(line)
    ]
    half = [
        line.replace(f" {int(line.split()[1])} float", f" {int(line.split()[1]) * 2} half")
        for line in slow
    ]
    lines = [line for line in log_text(HEALTHY).splitlines() if not is_row(line)]
    result = judged("\n".join([*lines[:-2], *rows, *half, *lines[-2:]]))
    assert [(check.name, check.verdict) for check in result.checks] == [
        ("log float32", Verdict.PASS),
        ("log float16", Verdict.FAIL),
    ]


def test_reductions_and_roots_of_one_table_are_separate_sweeps() -> None:
    rows = [line for line in log_text(HEALTHY).splitlines() if is_row(line)]
    slow = [
        line for line in log_text([value * 0.3 for value in HEALTHY]).splitlines() if is_row(line)
    ]
    lines = [line for line in log_text(HEALTHY).splitlines() if not is_row(line)]
    prod = [line.replace("sum", "prod") for line in slow]
    result = judged("\n".join([*lines[:-2], *rows, *prod, *lines[-2:]]))
    assert {check.name: check.verdict for check in result.checks} == {
        "log sum": Verdict.PASS,
        "log prod": Verdict.FAIL,
    }
    roots = [line.replace("sum -1", f"sum {root}") for root in (0, 3) for line in rows]
    result = judged("\n".join(["reduce_perf", *lines[:-2], *roots, *lines[-2:]]))
    assert [check.name for check in result.checks] == ["log root 0", "log root 3"]


def test_mixed_rows_with_and_without_a_root_come_from_several_programs() -> None:
    """broadcast and all_gather, line by line: no reductions, and sizes alternate."""
    broadcast = of_operation(log_text(HEALTHY), "broadcast", "none 0").splitlines()
    all_gather = of_operation(log_text(HEALTHY), "all_gather", "none -1", 7 / 8).splitlines()
    pairs = zip(broadcast, all_gather, strict=True)
    result = judged(
        "\n".join(line for pair in pairs for line in (pair if is_row(pair[0]) else pair[:1]))
    )
    assert (result.verdict, "several programs" in result.reason.sentence) == (
        Verdict.INCONCLUSIVE,
        True,
    ), result.reason


def test_cpu_time_in_json_is_not_the_time_of_the_collective() -> None:
    side = {"cpu_time": 3.21, "alg_bw": 20.97, "bus_bw": 36.7, "nwrong": 0}
    item = {
        "size": M,
        "count": M // 4,
        "type": "float",
        "redop": "sum",
        "root": "-1",
        "out_of_place": side,
    }
    document = {
        "version": 3,
        "args": ["all_reduce_perf"],
        "config": {},
        "results": [item],
        "out_of_bounds": {},
    }
    assert parse_text(json.dumps(document))[0].launch_times
    timed = {
        **item,
        "out_of_place": {
            "time" if name == "cpu_time" else name: value for name, value in side.items()
        },
    }
    assert not parse_text(json.dumps({**document, "results": [timed]}))[0].launch_times


@pytest.mark.parametrize("tag", ["[1,0]<stdout>:", "[0] ", "[0]", "0: ", "   17: "])
@pytest.mark.parametrize("header", [True, False])
def test_a_row_whose_pieces_were_tagged_is_read(tag: str, header: bool) -> None:
    lines = []
    for line in log_text(HEALTHY).splitlines():
        fields = line.split()
        if is_row(line):
            lines.append(
                f"{tag}  {' '.join(fields[:5])}{tag} {' '.join(fields[5:9])}{tag} "
                f"{' '.join(fields[9:])}"
            )
        elif header:
            lines.append(tag + line)
    (sweep,) = parse_text("\n".join(lines), "log")
    assert [row.size for row in sweep.rows] == list(SIZES)
    assert [row.in_place.busbw_gb_s for row in sweep.rows if row.in_place] == list(HEALTHY)


@pytest.mark.parametrize("cut", [5, 30, 43])
def test_a_row_that_was_cut_within_a_number_is_read(cut: int) -> None:
    """As mpirun --tag-output cuts the output of a program that fills its buffer before it
    writes.
    """
    tag = "[1,0]<stdout>:"
    lines = [
        tag + line[:cut] + (tag if is_row(line) else "") + line[cut:]
        for line in log_text(HEALTHY).splitlines()
    ]
    (sweep,) = parse_text("\n".join(lines), "log")
    assert [row.in_place.busbw_gb_s for row in sweep.rows if row.in_place] == list(HEALTHY)


def test_rows_that_are_commented_out_under_a_header_with_res_are_read_in_milliseconds() -> None:
    rows = []
    for size, busbw in zip(SIZES, HEALTHY, strict=True):
        algbw = busbw / 1.75
        side = f"{size / algbw / 1e6:.3f} {algbw:.2f} {busbw:.2f} 1e-06"
        rows.append(f"#   {size} {size // 4} float sum {side} {side}")
    header = (
        "#      bytes             N    type      op     time  algbw  busbw      res     time  "
        "algbw  busbw      res"
    )
    result = judged(
        "\n".join(
            [header, *rows, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 123.4"]
        )
    )
    assert result.verdict is Verdict.PASS
    assert "476" in result.reason.sentence


def test_parse_json_names_the_source_file_of_each_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / name) for name in ("a.log", "b.log")]
    for file in files:
        Path(file).write_text(log_text(HEALTHY))
    assert command("parse", "--json", *files) == 0
    assert [sweep["source"] for sweep in json.loads(capsys.readouterr().out)] == files


def test_the_printed_average_of_a_mixed_sweep_is_ignored() -> None:
    slow = log_text([value / 4 for value in HEALTHY]).replace("123.4", "480.0")
    assert judged(log_text(HEALTHY).replace("123.4", "1.2")).verdict is Verdict.PASS
    assert judged(slow).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("algorithm", "verdict"), [("Ring", Verdict.INCONCLUSIVE), ("NVLS", Verdict.PASS)]
)
def test_nvls_may_exceed_the_limit_of_a_ring(algorithm: str, verdict: Verdict) -> None:
    judgement = judged(log_text([550.0] * 5, before=[f"export NCCL_ALGO={algorithm}"]))
    assert judgement.verdict is verdict
    assert f"by {algorithm}" in judgement.reason.sentence


def test_ring_sweep_is_judged_by_ring_references() -> None:
    """367 GB/s is what a ring reaches on H200, and 24 % below what NVLS does."""
    busbw = (300.0, 330.0, 355.0, 365.0, 367.0)
    sizes = (512 * M, G, 4 * G, 8 * G, 16 * G)
    h200 = LogsConfig("H200-SXM", 1, 8)
    assert (
        judged(
            log_text(busbw, sizes=sizes, before=["NCCL_ALGO=Ring all_reduce_perf"]), h200
        ).verdict
        is Verdict.PASS
    )
    assert judged(log_text(busbw, sizes=sizes), h200).verdict is Verdict.FAIL


def test_a_log_is_judged_by_the_same_reference_as_a_run() -> None:
    """What `judge` holds a plateau against is what the catalog says of the largest size."""
    (check,) = judged(log_text(HEALTHY)).checks
    plateau = next(j for j in check.judgements if j.measurement.metric == "busbw_plateau")
    baseline = from_catalog(Setup("H100-SXM", 1, 8, 8), "all_reduce", 8 * G, plateau=True)
    assert baseline is not None
    assert plateau.expected.low == baseline.low


def test_four_ranks_of_twelve_expected_fail() -> None:
    judgement = judged(log_text(HEALTHY, ranks=4), LogsConfig("H100-SXM", 3, 4, "IB-8x400G"))
    assert (judgement.verdict, judgement.reason.sentence) == (
        Verdict.FAIL,
        "all_reduce: 4 of 12 ranks took part",
    )
    assert judgement.checks[0].judgements == (), "no number is judged"


def test_all_ranks_on_one_of_two_nodes_fail() -> None:
    judgement = judged(
        log_text(HEALTHY, ranks=8, nodes=1), LogsConfig("H100-SXM", 2, 4, "IB-8x400G")
    )
    assert judgement.verdict is Verdict.FAIL
    assert judgement.reason.sentence == "all_reduce: all 8 ranks ran on 1 of 2 nodes: node-0"
    spread = judged(log_text(HEALTHY, ranks=8, nodes=2), LogsConfig("H100-SXM", 2, 4, "IB-8x400G"))
    assert spread.verdict is Verdict.PASS


def test_nodes_with_the_same_host_name_are_counted_by_ranks() -> None:
    text = log_text(HEALTHY, ranks=8, nodes=2).replace("node-1", "node-0")
    assert judged(text, LogsConfig("H100-SXM", 2, 4, "IB-8x400G")).verdict is Verdict.PASS


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
    judgement = judged(both, LogsConfig("H100-SXM", 2, 1))
    assert judgement.verdict is Verdict.FAIL
    assert (
        "1 of 2 ranks took part: nccl-tests was not built with MPI=1" in judgement.reason.sentence
    )
    at_once = "\n".join(
        f"{pid}: {line.format(pid=pid, host=f'node-{pid}')}" for line in alone for pid in (1, 2)
    )
    assert judged(at_once, LogsConfig("H100-SXM", 2, 1)).reason == judgement.reason


def test_seven_of_eight_ranks_are_named_with_and_without_gpus_per_node() -> None:
    text = log_text(HEALTHY, ranks=7)
    assert judged(text).reason.sentence == "all_reduce: 7 of 8 ranks took part"
    assert judged(text).verdict is Verdict.FAIL
    unsaid = judged(text, LogsConfig("H100-SXM", 1))
    assert unsaid.verdict is Verdict.INCONCLUSIVE
    assert unsaid.reason.sentence.startswith(
        "7 of 8 ranks took part, 8 GPUs per node being usual for H100-SXM"
    )


@pytest.mark.parametrize(("ranks", "nodes"), [(4, 3), (15, 2), (8, 10), (6, 3)])
def test_rank_count_impossible_for_equal_nodes_fails_without_gpus_per_node(
    ranks: int, nodes: int
) -> None:
    """Such as the ranks of one pod of three, even if they divide evenly."""
    judgement = judged(log_text(HEALTHY, ranks), LogsConfig("H100-SXM", nodes, None, "IB-8x400G"))
    assert (judgement.verdict, judgement.reason.sentence) == (
        Verdict.FAIL,
        f"all_reduce: {ranks} of {8 * nodes} ranks took part",
    )


@pytest.mark.parametrize("is_before", [False, True])
def test_a_program_that_ends_with_an_exception_beside_a_healthy_sweep_does_not_pass(
    is_before: bool,
) -> None:
    ended = "terminate called without an active exception\n"
    healthy = log_text(HEALTHY)
    judgement = judged(ended + healthy if is_before else healthy + ended)
    assert (
        judgement.verdict is Verdict.FAIL
        and "an exception that nothing caught" in judgement.reason.sentence
    )


def test_the_work_for_each_of_many_sweeps_does_not_grow_with_their_number() -> None:
    """A night's log may hold thousands of sweeps; bare rows say nothing of the hardware."""
    bare = "".join(line + "\n" for line in log_text(HEALTHY).splitlines() if "#" not in line)

    def calls(sweeps: int) -> int:
        called = Counter[str]()
        sys.setprofile(lambda frame, event, _: called.update([frame.f_code.co_name]))
        try:
            judged(f"=== run\n{bare}" * sweeps, LogsConfig())
        finally:
            sys.setprofile(None)
        asked = ("_effective_switches", "_layout", "_hardware", "hosts")
        return sum(called[name] for name in asked)

    assert 0 < calls(40) <= 2.1 * calls(20)


MISSING = (
    "all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open shared "
    "object file: No such file or directory"
)
LABELS = ("{}: ", "node-{}: ", "[pod/nccl-{}/main] ", "[1,{}]<stdout>:")


@pytest.mark.parametrize("label", LABELS)
def test_sweeps_of_several_nodes_at_once_are_told_apart_by_the_labels_of_their_lines(
    label: str,
) -> None:
    logs = [log_text([factor * busbw for busbw in HEALTHY]) for factor in (1, 0.6, 1)]
    lines = [
        label.format(node) + line.replace("on node-0", f"on node-{node}")
        for together in zip(*(log.splitlines() for log in logs), strict=True)
        for node, line in enumerate(together)
    ]
    judgement = judged("\n".join(lines))
    assert [check.verdict for check in judgement.checks] == [judged(log).verdict for log in logs]
    assert len({check.verdict for check in judgement.checks}) == 2
    late = [label.format(0) + "node-0:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1]"] * 4000
    assert judged("\n".join([lines[0], *late, *lines[1:]])).reason == judgement.reason


@pytest.mark.parametrize("shared", [0, 11])  # lines that each program writes at once
def test_sweeps_of_several_nodes_at_once_without_labels_are_said_to_be_mixed(shared: int) -> None:
    logs = [log_text([factor * busbw for busbw in HEALTHY]).splitlines() for factor in (1, 0.6)]
    logs[1] = [line.replace("on node-0", "on node-1") for line in logs[1]]
    heads = [line for log in logs for line in log[:shared]]
    rows = [line for lines in zip(*(log[shared:] for log in logs), strict=True) for line in lines]
    judgement = judged("\n".join([*heads, *rows]))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.reason.code == "sweeps-interleaved"
    one_hung = [*logs[0][:11], *logs[1]]
    assert judged("\n".join(one_hung)).checks[0].reason.code == "log-hung-at-first-size"


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("line", ["bash: all_reduce_perf: command not found", MISSING])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_node_whose_program_did_not_start_beside_those_that_ran_is_no_pass(
    label: str, line: str, is_first: bool
) -> None:
    ran = [
        label.format(node) + line.replace("on node-0", f"on node-{node}")
        for node in range(2)
        for line in log_text(HEALTHY).splitlines()
    ]
    failed = [label.format(2) + line]
    judgement = judged("\n".join([*failed, *ran] if is_first else [*ran, *failed]))
    assert judgement.verdict in (Verdict.NOT_RUN, Verdict.INCONCLUSIVE)
    assert [check.verdict for check in judgement.checks][:2] == [Verdict.PASS] * 2
