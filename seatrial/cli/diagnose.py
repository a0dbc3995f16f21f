"""`seatrial diagnose`: which rank did not enter which collective, from the dumps and logs of a job
that hangs.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from seatrial.cli.options import json_option, print_json
from seatrial.model.errors import InputError, NothingFoundError, os_errors_named

if TYPE_CHECKING:
    from seatrial.readers.flight_recorder import Late, RankTrace

_MOST_LOG = 256 << 20  # bytes of a log


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--ranks",
    type=click.IntRange(1, 200_000),
    help="How many ranks the job has; a missing dump then counts.",
)
@json_option
def diagnose(files: tuple[Path, ...], ranks: int | None, as_json: bool) -> NoReturn:
    """Name the ranks that a hanging job waits for, from FILES of any PyTorch job.

    FILES are dumps of PyTorch's flight recorder (TORCH_FR_DUMP_TEMP_FILE, one per rank, whose name
    ends in the rank), folders of them, and logs with the lines of NCCL's watchdog or of seatrial's
    own training. Exit status: 1 a rank stands out, 2 bad input, 3 none does.
    """
    from seatrial.readers.flight_recorder import late_ranks

    by_rank = {trace.rank: trace for path in _plain_files(files) for trace in _read(path)}
    traces = [by_rank[rank] for rank in sorted(by_rank)]
    if not traces:
        raise NothingFoundError(
            "no file holds a dump of the flight recorder, or a line of NCCL's watchdog with its "
            "process group (PyTorch 2.3 and later; `seatrial judge` reads older logs)"
        )
    late = late_ranks(traces, ranks)
    if as_json:
        print_json(
            [
                {"rank": each.rank, "host": each.host, "reason": each.reason.sentence}
                for each in late
            ]
        )
    else:
        _show(late, traces)
    sys.exit(1 if late else 3)


def _plain_files(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the files, and those in the folders."""
    for path in paths:
        yield from (
            sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else (path,)
        )


def _read(path: Path) -> "list[RankTrace]":
    """Return the traces in a file.

    Raises InputError for one that cannot be read, or that is no dump and no log.
    """
    from seatrial.checks.training.stuck import read_stuck
    from seatrial.readers.flight_recorder import NoDump, read_dump, read_watchdog
    from seatrial.remote.ranks import rank_line

    with os_errors_named(str(path)), path.open("rb") as file:
        content = file.read(_MOST_LOG + 1)
    if len(content) > _MOST_LOG:
        raise InputError(
            f"{path}: has more than {_MOST_LOG} bytes; give the part of it that has the "
            "watchdog's lines"
        )
    is_dump = content[:1] == b"\x80" or (content[:1] == b"{" and b'"entries"' in content)
    if not is_dump:
        lines = content.decode(errors="replace").splitlines()
        return read_stuck(map(rank_line, lines)) or read_watchdog(lines)
    number = re.search(r"(\d{1,7})(?:\.\w{1,8})?$", path.name)
    if not number:
        raise InputError(f"{path}: the name of a dump ends in its rank, such as trace_3")
    try:
        return [read_dump(content, int(number[1]))]
    except NoDump as error:
        raise InputError(f"{path}: {error}") from error


def _show(late: "list[Late]", traces: "list[RankTrace]") -> None:
    """Print a line for each rank, with its next step."""
    from seatrial.model.explanations import next_step_of
    from seatrial.model.reason import Reason
    from seatrial.model.result import NextStep, next_line
    from seatrial.readers.flight_recorder import circular_wait

    reasons = [each.reason for each in late]
    reasons = reasons or [circular_wait(traces) or Reason.of("no-rank-behind", ranks=len(traces))]
    for reason in reasons:
        print(reason)
    code = reasons[0].code
    if step := next_step_of(code):
        print(next_line(NextStep(step, code)))
