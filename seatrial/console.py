"""`seatrial run`: the flow, started by hand, with its progress on the terminal."""

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.console import Console

from seatrial.cluster import load_cluster
from seatrial.errors import InputError
from seatrial.platforms import platform_for
from seatrial.progress import TerminalHandler
from seatrial.suite import load_suite

if TYPE_CHECKING:
    from seatrial.result import RunResult

INTERRUPTED, TERMINATED, INCONCLUSIVE = 130, 143, 3


def run_by_hand(cluster: Path, suite: str, out: Path | None, *, notify: bool, as_json: bool, verbose: bool) -> int:
    """Run the flow `check` and show how it goes; returns the exit status.

    Raises InputError before anything is started when cluster, suite or folder are not what they should be.
    """
    platform_for(load_cluster(cluster))
    load_suite(suite)
    _check_folder(out)
    with _progress(verbose) as console, TemporaryDirectory(prefix="seatrial-") as temporary:
        console.print(f"[bold]seatrial[/] {cluster} · {suite}", highlight=False)
        status, result = _run_flow(cluster, suite, out, notify, Path(temporary) / "prefect-server.log", console)
    if result:
        _show(result, as_json)
    return status


def _check_folder(out: Path | None) -> None:
    if out is None:
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be used as a folder: {error.strerror}") from error
    if not os.access(out, os.W_OK):
        raise InputError(f"--out {out}: is not writable")


@contextmanager
def _progress(verbose: bool) -> Iterator[Console]:
    """Show what the logger `seatrial` says on standard error, and keep Prefect's own console quiet."""
    console = Console(stderr=True)
    handler = TerminalHandler(console)
    logger = logging.getLogger("seatrial")
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.addHandler(handler)
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "INFO" if verbose else "CRITICAL")
    try:
        yield console
    finally:
        handler.stop()
        logger.removeHandler(handler)


def _run_flow(
    cluster: Path, suite: str, out: Path | None, notify: bool, server_log: Path, console: Console
) -> tuple[int, "RunResult | None"]:
    from flows.server import prefect_server

    with prefect_server(server_log):
        from prefect.exceptions import TerminationSignal

        from flows.check import check

        try:
            state = check(str(cluster), suite, str(out) if out else None, notify, return_state=True)
        except KeyboardInterrupt:
            console.print("interrupted; everything is taken down")
            return INTERRUPTED, None
        except TerminationSignal:
            console.print("terminated; everything is taken down")
            return TERMINATED, None
        result: Any = state.result(raise_on_failure=False)
    if isinstance(result, BaseException):
        console.print(f"the run did not end in a verdict: {result}", style="red", markup=False)
        return INCONCLUSIVE, None
    return result.verdict.exit_status, result


def _show(result: "RunResult", as_json: bool) -> None:
    """The summary; with `as_json` it goes to standard error and run.json alone to standard output."""
    from seatrial.report.terminal import closing_line, summary

    Console(stderr=as_json).print(summary(result))
    if as_json:
        print(json.dumps(result.to_dict(), indent=2, allow_nan=False))
    print(closing_line(result), file=sys.stderr if as_json else sys.stdout)
