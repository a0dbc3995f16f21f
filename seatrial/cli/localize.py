"""`seatrial localize`: which part is slow, from tests over parts of the fleet."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from seatrial.cli.options import json_option, print_json
from seatrial.model.errors import NothingFoundError

if TYPE_CHECKING:
    from seatrial.localize import GroupTest, Localization

_ALONE = 64  # logs that one process reads faster than several that must start first


@click.command()
@click.argument("logs", nargs=-1, required=True)
@json_option
def localize(logs: tuple[str, ...], as_json: bool) -> NoReturn:
    """Name the slow node, GPU, rail, link or cut, from nccl-tests LOGS of pairs and groups of nodes, from any launcher.

    LOGS are files, text or JSON; - is standard input. Hosts and GPU addresses are read from the list of devices. Exit
    status: 0 no part stands out, 1 one does, 2 bad input, 3 the tests cannot tell.
    """
    from seatrial.localize import localize as localized

    found = localized(_tests(logs))
    if as_json:
        print_json(found.to_dict())
    else:
        _show(found)
    sys.exit(found.verdict.exit_status)


def _tests(paths: tuple[str, ...]) -> "list[GroupTest]":
    """The tests in the logs. Raises InputError for a log that cannot be read, or if none lists its devices."""
    if len(paths) <= _ALONE:
        by_log = [_of_log(path) for path in paths]
    else:
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            by_log = list(pool.map(_of_log, paths, chunksize=_ALONE))
    tests = [test for of_log in by_log for test in of_log]
    if not tests:
        raise NothingFoundError("no log lists its devices, which name hosts and GPUs: `# Using devices`")
    return tests


def _of_log(path: str) -> "list[GroupTest]":
    """The tests in a log; none where nccl-tests wrote nothing."""
    from seatrial.checks.localize.logs import tests_of
    from seatrial.nccl import parse_file, parse_text

    try:
        sweeps = parse_text(sys.stdin, "standard input") if path == "-" else parse_file(path)
    except NothingFoundError:
        return []
    return tests_of(Path(path).name if path != "-" else "standard input", sweeps)


def _show(found: "Localization") -> None:
    """A line for each suspect and finding with the tests that convince, and `verdict: reason` as the last line."""
    from seatrial.report.terminal import output, print_line

    console = output()
    for finding in found.findings:
        print_line(console, f"{finding.confidence:.2f} {finding.title}: {finding.reason}")
        for row in finding.rows:
            ratio = "failed" if row.ratio is None else f"{100 * row.ratio:.0f} %"
            print_line(console, f"- {row.source}: {ratio}")
    print_line(console, f"{found.verdict.value}: {found.reason}")
