"""`seatrial localize`: which part is slow, from tests over parts of the fleet."""

import os
import sys
from io import TextIOWrapper
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from seatrial.cli.options import json_option, name_of, print_json
from seatrial.model.errors import InputError, NothingFoundError, os_errors_named

if TYPE_CHECKING:
    from seatrial.localize import GroupTest, Localization
    from seatrial.report.pairs import PairMatrix

_ALONE = 64  # logs that one process reads faster than several that must start first


@click.command()
@click.argument("logs", nargs=-1)
@click.option(
    "--history", metavar="CLUSTER", help="Take the tests that runs of CLUSTER have stored, too."
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=14,
    show_default=True,
    help="Age of the oldest run, with --history.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the matrix of pairs to this file, a page that needs no other.",
)
@json_option
def localize(
    logs: tuple[str, ...], history: str | None, days: int, html: Path | None, as_json: bool
) -> NoReturn:
    """Name the slow node, GPU, rail, link, switch or cut, from LOGS of pairs and groups of nodes,
    from any launcher.

    LOGS are files or folders of nccl-tests output, text or JSON; perftest output in files named
    NODE--NODE.log; or tables in CSV or JSON with node_a, node_b, gb_s and, if known, operation,
    size and gpus. - is standard input. Exit status: 0 no part stands out, 1 one does, 2 bad input,
    3 the tests cannot tell.
    """
    if not logs and not history:
        raise InputError("localize: needs LOGS, or --history CLUSTER")
    from seatrial.localize import localize as localized

    tests = _tests(logs) if logs else []
    if history:
        tests += _stored(name_of(history), days)
    _check_parts(tests)
    localization = localized(tests)
    if html:
        _write_page(html, localization)
    if as_json:
        print_json(localization.to_dict())
    else:
        _show(localization)
    sys.exit(localization.verdict.exit_status)


def _tests(paths: tuple[str, ...]) -> "list[GroupTest]":
    """Return the tests in the logs.

    Raises InputError for a log that cannot be read, or if none says what was tested.
    """
    from seatrial.checks.localize.sources import files_of

    files = [file for path in paths for file in files_of(path)]
    if len(files) <= _ALONE:
        by_log = [_of_log(file) for file in files]
    else:
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            by_log = list(pool.map(_of_log, files, chunksize=_ALONE))
    tests = [test for of_log in by_log for test in of_log]
    if not tests:
        raise NothingFoundError(
            "LOGS have no test of nodes: neither nccl-tests output with its devices "
            "(`# Using devices`), nor bandwidths of perftest (latencies depend on the path, and "
            "are not compared), nor a table with node_a, node_b, gb_s"
        )
    return tests


def _check_parts(tests: "list[GroupTest]") -> None:
    """Raise InputError if all tests are over the same three or more nodes and GPUs, so that no part
    is told apart.
    """
    groups = {frozenset(zip_longest(test.nodes, test.gpus)) for test in tests}
    if len(groups) == 1 and (nodes := len(groups.pop())) > 2:
        raise InputError(
            f"LOGS: every test is over the same {nodes} nodes with the same GPUs, so no part is "
            "told from another;"
            " legal: tests of pairs or of groups of nodes. `seatrial judge LOGS` judges tests of "
            "the whole cluster"
        )


def _of_log(path: str) -> "list[GroupTest]":
    """Return the tests in a log; none where nothing that is known was written."""
    from seatrial.checks.localize.sources import tests_of_file, tests_of_stream

    if path != "-":
        return tests_of_file(path)
    text = TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", errors="replace")
    try:
        return tests_of_stream(text, "standard input")
    except NothingFoundError:
        return []


def _stored(cluster: str, days: int) -> "list[GroupTest]":
    from seatrial.history import open_store
    from seatrial.runs.past_pairs import stored_tests

    with open_store() as store:
        return stored_tests(store, cluster, days)


def _show(localization: "Localization") -> None:
    """Print the matrices, each finding with the tests that convince, the next step, and the verdict
    last.
    """

    from seatrial.model.explanations import next_step_of
    from seatrial.model.result import NextStep, next_line
    from seatrial.report.pairs import NODES_SHOWN
    from seatrial.report.pairs_page import terminal_lines
    from seatrial.report.terminal import output, print_line, print_rows

    console = output()
    for matrix in _matrices(localization):
        if len(matrix.nodes) + matrix.left_out <= NODES_SHOWN:
            print_rows(console, [*terminal_lines(matrix, console.encoding), ""])
    for finding in localization.findings:
        print_line(console, f"{finding.confidence:.2f} {finding.title}: {finding.reason}")
        for row in finding.rows:
            ratio = "failed" if row.ratio is None else f"{100 * row.ratio:.0f} %"
            print_line(console, f"- {row.source}: {ratio}")
    codes = [finding.reason.code or "" for finding in localization.findings if finding.named]
    for code in dict.fromkeys(codes or [localization.reason.code or ""]):
        if step := next_step_of(code):
            print_line(console, next_line(NextStep(step, code)))
    print_line(console, f"{localization.verdict.value}: {localization.reason}")


def _matrices(localization: "Localization") -> "list[PairMatrix]":
    from seatrial.localize.localization import tests_of
    from seatrial.report.pairs import pair_matrices

    return pair_matrices({**localization.to_dict(), "tests": tests_of(localization)})


def _write_page(file: Path, localization: "Localization") -> None:
    from seatrial.report.pairs_page import html_page

    lines = [
        f"{finding.confidence:.2f} {finding.title}: {finding.reason}"
        for finding in localization.findings
    ]
    page = html_page(
        _matrices(localization), [*lines, f"{localization.verdict.value}: {localization.reason}"]
    )
    with os_errors_named(f"--html: {file} cannot be written"):
        file.write_text(page, encoding="utf-8")
