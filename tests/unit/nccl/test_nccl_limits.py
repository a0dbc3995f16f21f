"""Any file ends soon, in little memory, in sweeps or in the project's own error.

The same was tried by hand with files of 200 MB: random bytes, one line without an end, and lines of
text that look a little like rows take up to a minute, and the process stays under 20 MB.
"""

import io
import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from seatrial.model.errors import InputError
from seatrial.nccl import parse_file, parse_lines, parse_text

LOGS = Path(__file__).parents[2] / "golden" / "nccl-logs"
ROW = "1048576 262144 float sum -1 {:.2f} {:.2f} 0.00 0 50.00 20.97 0.00 0"


def _noise(size: int) -> bytes:
    return Random(7).randbytes(size)


def _text(size: int) -> bytes:
    line = b"[%d] step %d error rate 8 2 float ok 12:00:01 via NET [0] NCCL INFO\n"
    return b"".join(line % (i, i) for i in range(size // 60))[:size]


def _one_line(size: int) -> bytes:
    return b"8 2 float " * (size // 10)


def _starts_of_rows(size: int) -> bytes:
    return b"   8   2   float   sum   -1\n" * (size // 28)


@pytest.mark.parametrize(
    ("make", "kilobytes"),
    [(_noise, 600), (_text, 600), (_one_line, 20_000), (_starts_of_rows, 100)],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_input_without_nccl_tests_output_is_refused_in_bounded_memory(
    make: Callable[[int], bytes], kilobytes: int, tmp_path: Path
) -> None:
    path = tmp_path / "noise.log"
    path.write_bytes(make(kilobytes << 10))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"no nccl-tests output found in .*noise\.log"):
            parse_file(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 19


def test_rows_beyond_the_limit_are_dropped_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """nccl-tests with -N 0 runs forever."""
    monkeypatch.setattr("seatrial.nccl.sweeps.MAX_ROWS", 1000)

    def lines() -> Iterator[str]:
        for i in range(1200):
            time_us = 50.0 + i
            yield ROW.format(time_us, 1048.576 / time_us)

    (sweep,) = parse_lines(lines())
    assert len(sweep.rows) == 1000
    assert sweep.errors == ("200 more rows were not kept",)


def test_a_log_of_10_000_lines_takes_less_than_a_second_of_processor_time() -> None:
    lines = (LOGS / "wh8_h100_g2_nvls_nccl_info.log").read_text().splitlines()
    many = (lines * 13)[:10_000]
    start = time.process_time()  # ours alone: other work on the machine is no reason to fail
    sweeps = parse_lines(many)
    assert time.process_time() - start < 1
    assert [len(sweep.rows) for sweep in sweeps[:12]] == [6] * 12


def test_a_row_after_a_line_without_an_end_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * 100_000 + "\n" + ROW.format(50, 20.97) + "\n")
    assert len(parse_file(path)[0].rows) == 1


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_skipped(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text((LOGS / "cscs_gh200_sarus_new.log").read_text(), encoding=encoding)
    assert len(parse_file(path)[0].rows) == 8


def test_bytes_that_are_no_text_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xfe\x00\x01\n\xc3\x28\n" + ROW.format(50, 20.97).encode() + b"\n\x80\xff")
    assert len(parse_file(path)[0].rows) == 1


@pytest.mark.parametrize("kind", ["missing", "directory", "empty", "name", "blank"])
def test_unreadable_input_is_an_error_of_one_line_with_the_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    if kind == "directory":
        path.mkdir()
    elif kind in ("empty", "blank"):
        path.write_text("" if kind == "empty" else " \n\n")
    name = "some\x00.log" if kind == "name" else str(path)
    with pytest.raises(InputError) as caught:
        parse_file(name)
    assert "some" in str(caught.value) and "\n" not in str(caught.value)


def test_a_pipe_is_read_once_and_whole(tmp_path: Path) -> None:
    """As the shell's <(kubectl logs ...) gives it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = (LOGS / "cscs_gh200_sarus_new.log").read_text()
    writer = threading.Thread(target=pipe.write_text, args=(text,))
    writer.start()
    sweeps = parse_file(pipe)
    writer.join()
    assert sweeps == parse_text(text)


def test_a_strict_stream_may_hold_bytes_that_are_no_text() -> None:
    stream = io.TextIOWrapper(
        io.BytesIO(b"\xff\xc3\n" + ROW.format(50, 20.97).encode()), encoding="utf-8"
    )
    assert len(parse_text(stream)[0].rows) == 1


def test_streams_strings_and_lines_read_alike() -> None:
    path = LOGS / "xxrjun_h100_n1g8_five_collectives.log"
    text = path.read_text()
    with path.open() as stream:
        assert (
            parse_text(stream)
            == parse_text(text)
            == parse_lines(iter(text.splitlines()))
            == parse_file(path)
        )
    with pytest.raises(InputError, match="found in standard input"):
        parse_text("nothing", source="standard input")
