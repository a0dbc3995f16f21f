"""A log reads the same whatever launchers, terminals and other processes did to it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.nccl import SweepReader, parse_lines

LOGS = Path(__file__).parents[2] / "golden" / "nccl-logs"
NAMES = [
    "abci_a100_intranode4_allreduce_old",
    "abci_v100_inter2_bcast_old_ucxwarn",
    "superbench_a100_alltoall_old_blank_redop",
    "superbench_a100_reduce_old_root",
    "superbench_a100_allgather_old_novalidation",
    "polaris_a100_8ranks_allreduce",
    "cscs_gh200_sarus_new",
    "nccltests369_gh200_oob_failed",
    "rccl_mi300x_16ranks",
    "xxrjun_h100_n1g8_five_collectives",
]
INFO = "gpu-7:4242:4250 [3] NCCL INFO AllReduce: 8 Bytes -> Algo NVLS proto SIMPLE\n"
WARN = (
    "[2025-01-02 03:04:05] gpu-7:4242:4250 [3] misc/socket.cc:57 (recv) NCCL WARN something "
    "to read\n"
)
PIECES = re.compile(
    r"(\s*\d+ +\d+ +(?:float|double) +(?:\w+ +)?(?:-?\d+(?=  ))?)(  .{6,}?)(  +[\d.e+]+ "
    r"+[\d.]+ +[\d.]+ +\S+)\s*$"
)

Lines = list[str]


def _prefixed(prefix: str) -> Callable[[Lines], Lines]:
    return lambda lines: [prefix + line for line in lines]


def _cut_into_pieces(lines: Lines, end: str) -> Lines:
    """Each row as its three printf calls, NCCL's log between them: glued where `end` is empty."""
    out = [INFO]
    for line in lines:
        match = PIECES.match(line.rstrip("\n"))
        out += (
            [match[1] + end + INFO, INFO, match[2] + end + INFO, match[3] + "\n"]
            if match
            else [line]
        )
    return "".join(out).splitlines(keepends=True)


def _cut_into_chunks(lines: Lines, size: int) -> Lines:
    """A pipe's buffer ends anywhere, in the middle of a number too, and another rank's log comes in
    between.
    """
    text = "".join(lines)
    return (INFO + INFO.join(text[i : i + size] for i in range(0, len(text), size))).splitlines(
        keepends=True
    )


def _docker(lines: Lines) -> Lines:
    return [
        json.dumps({"log": line, "stream": "stdout", "time": "2025-01-02T03:04:05Z"}) + "\n"
        for line in lines
    ]


def _ansible(lines: Lines) -> Lines:
    """What `debug` of Ansible prints of `stdout_lines`."""
    stdout = [line.rstrip("\n") for line in lines]
    return json.dumps({"result.stdout_lines": stdout}, indent=4).splitlines(keepends=True)


def _markdown(lines: Lines) -> Lines:
    rows = re.compile(r"\s*\d+ +\d+ +(?:float|double)")
    return [
        "| " + " | ".join(line.split()) + " |\n" if rows.match(line) else line for line in lines
    ]


DAMAGE: dict[str, Callable[[Lines], Lines]] = {
    "mpirun --tag-output": _prefixed("[1,0]<stdout>:"),
    "mpirun 5 --tag-output": _prefixed("[prterun-host-12@1,0]<stdout>: "),
    "mpirun --timestamp-output": _prefixed("Mon Jan 06 10:11:12 2025[1,0]<stdout>:"),
    "srun --label": _prefixed(" 0: "),
    "srun --label, three digits": _prefixed("000: "),
    "mpiexec -prepend-rank": _prefixed("[0] "),
    "compose": _prefixed("nccl-launcher-0  | "),
    "kubectl --timestamps": _prefixed("2025-01-02T03:04:05.123456789Z "),
    "kubectl --timestamps of tagged output": _prefixed(
        "2025-01-02T03:04:05.123456789Z [1,0]<stdout>:"
    ),
    "kubectl --prefix": _prefixed("[pod/nccl-launcher-x7/nccl] "),
    "stern": _prefixed("nccl-launcher-x7 nccl "),
    "container runtime": _prefixed("2025-01-02T03:04:05.1Z stdout F "),
    "docker json": _docker,
    "ansible": _ansible,
    "syslog": _prefixed("Jan  2 03:04:05 node-1 launcher[123]: "),
    "grep -n": lambda lines: [f"{i}:{line}" for i, line in enumerate(lines, 1)],
    "quoted mail": _prefixed("> "),
    "tabs": _prefixed("\t    "),
    "colours": lambda lines: ["\x1b[32m" + line.rstrip("\n") + "\x1b[0m\n" for line in lines],
    "CRLF": lambda lines: [line.rstrip("\n") + "\r\n" for line in lines],
    "NULs": lambda lines: ["\x00" + line for line in lines],
    "markdown fence": lambda lines: ["```text\n", *lines, "```\n"],
    "markdown table": _markdown,
    "html": lambda lines: [
        f'<span class="line"><span>{line.rstrip()}</span></span>\n' for line in lines
    ],
    "hashes lost": lambda lines: [re.sub(r"^# ?", "", line) for line in lines],
    "blanks collapsed": lambda lines: [" ".join(line.split()) + "\n" for line in lines],
    "tee'd twice": lambda lines: [line for line in lines for _ in (0, 1)],
    "NCCL INFO between all lines": lambda lines: [
        piece for line in lines for piece in (INFO, line)
    ],
    "NCCL WARN between all lines": lambda lines: [
        piece for line in lines for piece in ("\n", WARN, line)
    ],
    "rows cut and glued": lambda lines: _cut_into_pieces(lines, ""),
    "rows cut by line ends": lambda lines: _cut_into_pieces(lines, "\n"),
    "buffers of 400": lambda lines: _cut_into_chunks(lines, 400),
    "buffers of 997": lambda lines: _cut_into_chunks(lines, 997),
    "buffers of 4096": lambda lines: _cut_into_chunks(lines, 4096),
}


def _reading(lines: Lines) -> list[tuple[Any, ...]]:
    return [
        (s.collective, s.ranks, s.outcome, s.out_of_bounds, s.avg_busbw_gb_s, s.rows)
        for s in parse_lines(lines)
        if s.rows
    ]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_log_reads_the_same(name: str, damage: str) -> None:
    lines = (LOGS / f"{name}.log").read_text().splitlines(keepends=True)
    assert _reading(DAMAGE[damage](lines)) == _reading(lines)


@pytest.mark.parametrize("name", [name for name in NAMES if "alltoall" not in name])
def test_log_without_its_header_reads_the_same(name: str) -> None:
    """Without validation, all_gather and alltoall print the same rows; all other operations are
    distinguished.
    """
    lines = (LOGS / f"{name}.log").read_text().splitlines(keepends=True)
    bare = [line for line in lines if "busbw" not in line and "(elements)" not in line]
    assert _reading(bare) == _reading(lines)


@pytest.mark.parametrize("name", NAMES)
def test_log_cut_before_its_footer_is_never_ok(name: str) -> None:
    """Cut before the footer, at every line: rows are a prefix of the whole, and the outcome is
    truncated or error.
    """
    lines = (LOGS / f"{name}.log").read_text().splitlines(keepends=True)
    end = next(i for i, line in enumerate(lines) if "Out of bounds" in line)
    rows = parse_lines(lines)[0].rows
    first = next(i for i, line in enumerate(lines) if "busbw" in line)
    for cut in range(first + 1, end):
        (sweep,) = parse_lines([*lines[:cut], lines[cut][:17]])
        assert sweep.rows == rows[: len(sweep.rows)]
        assert sweep.outcome == ("failed" if sweep.wrong_total else "truncated")


def test_sweep_reader_returns_rows_as_lines_arrive() -> None:
    lines = (LOGS / "wh8_h100_g2_nvls_nccl_info.log").read_text().splitlines()
    reader = SweepReader()
    rows = [row for line in lines for row in reader.feed(line)]
    assert [row.size for row in rows] == [2**n for n in range(28, 34)]
    assert rows == list(parse_lines(lines)[0].rows)


def test_a_piece_of_an_unknown_host_never_makes_a_wrong_row() -> None:
    """Where a digit could be the row's or the host's and nothing tells, the row is left out, not
    guessed.
    """
    lines = (LOGS / "nccltests369_gh200_oob_failed.log").read_text().splitlines(keepends=True)
    whole = parse_lines(lines)[0].rows
    for size in range(97, 700, 41):
        chunks = (
            "".join(_cut_into_chunks(lines, size)).removeprefix(INFO).replace("gpu-7:", "7gpu-7:")
        )
        for sweep in parse_lines(chunks.splitlines()):
            assert set(sweep.rows) <= set(whole)
