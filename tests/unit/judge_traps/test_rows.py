"""How the rows of a sweep are read: each was a wrong verdict once."""

import json
from pathlib import Path

import pytest

from seatrial.model.verdict import Verdict
from seatrial.nccl import parse_text
from tests.command_line import command
from tests.unit.judge_traps.sweeplogs import HEALTHY, SIZES, M, is_row, judged, log_text, of_operation


def test_busbw_is_not_made_of_launch_times() -> None:
    header = "# size count type redop root cputime algbw busbw #wrong cputime algbw busbw #wrong"
    rows = []
    for size, busbw in zip(SIZES, HEALTHY, strict=True):
        side = f"11.52 {busbw / 1.75:.2f} {busbw:.2f} 0"
        rows.append(f"{size} {size // 4} float sum -1 {side} {side}")
    lines = [line for line in log_text(HEALTHY).splitlines() if not is_row(line) and "# size" not in line]
    result = judged("\n".join([*lines[:-2], header, *rows, *lines[-2:]]))
    assert result.verdict is Verdict.PASS
    assert "476" in result.reason
    assert not any(m.metric == "latency" for check in result.checks for m in check.measurements)


def test_hypercubes_algbw_counts_the_other_ranks_parts_alone() -> None:
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
    slow = [line for line in log_text([value * 0.3 for value in HEALTHY]).splitlines() if is_row(line)]
    half = [line.replace(f" {int(line.split()[1])} float", f" {int(line.split()[1]) * 2} half") for line in slow]
    lines = [line for line in log_text(HEALTHY).splitlines() if not is_row(line)]
    result = judged("\n".join([*lines[:-2], *rows, *half, *lines[-2:]]))
    assert [(check.name, check.verdict) for check in result.checks] == [
        ("log float32", Verdict.PASS),
        ("log float16", Verdict.FAIL),
    ]


def test_reductions_of_one_table_are_sweeps_of_their_own_and_roots_too() -> None:
    rows = [line for line in log_text(HEALTHY).splitlines() if is_row(line)]
    slow = [line for line in log_text([value * 0.3 for value in HEALTHY]).splitlines() if is_row(line)]
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


def test_rows_with_and_without_a_root_are_of_several_programs() -> None:
    """broadcast and all_gather line by line: neither sums, and their sizes take turns."""
    broadcast = of_operation(log_text(HEALTHY), "broadcast", "none 0").splitlines()
    all_gather = of_operation(log_text(HEALTHY), "all_gather", "none -1", 7 / 8).splitlines()
    pairs = zip(broadcast, all_gather, strict=True)
    result = judged("\n".join(line for pair in pairs for line in (pair if is_row(pair[0]) else pair[:1])))
    assert (result.verdict, "several programs" in result.reason) == (Verdict.INCONCLUSIVE, True), result.reason


def test_the_json_files_cpu_time_is_no_time_of_the_collective() -> None:
    side = {"cpu_time": 3.21, "alg_bw": 20.97, "bus_bw": 36.7, "nwrong": 0}
    item = {"size": M, "count": M // 4, "type": "float", "redop": "sum", "root": "-1", "out_of_place": side}
    document = {"version": 3, "args": ["all_reduce_perf"], "config": {}, "results": [item], "out_of_bounds": {}}
    assert parse_text(json.dumps(document))[0].launch_times
    timed = {**item, "out_of_place": {"time" if name == "cpu_time" else name: value for name, value in side.items()}}
    assert not parse_text(json.dumps({**document, "results": [timed]}))[0].launch_times


@pytest.mark.parametrize("tag", ["[1,0]<stdout>:", "[0] ", "[0]", "0: ", "   17: "])
@pytest.mark.parametrize("header", [True, False])
def test_a_row_whose_pieces_were_tagged_is_read(tag: str, header: bool) -> None:
    lines = []
    for line in log_text(HEALTHY).splitlines():
        fields = line.split()
        if is_row(line):
            lines.append(f"{tag}  {' '.join(fields[:5])}{tag} {' '.join(fields[5:9])}{tag} {' '.join(fields[9:])}")
        elif header:
            lines.append(tag + line)
    (sweep,) = parse_text("\n".join(lines), "log")
    assert [row.size for row in sweep.rows] == list(SIZES)
    assert [row.in_place.busbw_gb_s for row in sweep.rows if row.in_place] == list(HEALTHY)


@pytest.mark.parametrize("cut", [5, 30, 43])
def test_a_row_that_was_cut_within_a_number_is_read(cut: int) -> None:
    """As mpirun --tag-output cuts the output of a program that fills its buffer before it writes."""
    tag = "[1,0]<stdout>:"
    lines = [tag + line[:cut] + (tag if is_row(line) else "") + line[cut:] for line in log_text(HEALTHY).splitlines()]
    (sweep,) = parse_text("\n".join(lines), "log")
    assert [row.in_place.busbw_gb_s for row in sweep.rows if row.in_place] == list(HEALTHY)


def test_rows_that_are_commented_out_under_a_header_with_res_are_read_in_milliseconds() -> None:
    rows = []
    for size, busbw in zip(SIZES, HEALTHY, strict=True):
        algbw = busbw / 1.75
        side = f"{size / algbw / 1e6:.3f} {algbw:.2f} {busbw:.2f} 1e-06"
        rows.append(f"#   {size} {size // 4} float sum {side} {side}")
    header = (
        "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res"
    )
    result = judged("\n".join([header, *rows, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 123.4"]))
    assert result.verdict is Verdict.PASS
    assert "476" in result.reason


def test_json_of_several_files_says_which_file_a_sweep_is_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / name) for name in ("a.log", "b.log")]
    for file in files:
        Path(file).write_text(log_text(HEALTHY))
    assert command("parse", "--json", *files) == 0
    assert [sweep["source"] for sweep in json.loads(capsys.readouterr().out)] == files
