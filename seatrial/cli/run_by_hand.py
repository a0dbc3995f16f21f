"""`seatrial run`: the flow, started by hand, with its progress on the terminal."""

import json
import logging
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from flows.serving.by_hand import by_hand
from seatrial.alerts.settings import check_alerts
from seatrial.builders import check_recipe
from seatrial.checks.suites import load_suite
from seatrial.config.cluster import load_cluster, missing_package
from seatrial.config.run import check_runs_folder, secrets_of, writable
from seatrial.history import check_history
from seatrial.model.errors import InputError, MissingError
from seatrial.model.reason import Reason
from seatrial.model.result import RunResult, exit_status
from seatrial.platforms import platform_for
from seatrial.report.metrics import target_of_environment
from seatrial.runs.progress import TerminalHandler
from seatrial.system.state_home import check_state_home
from seatrial.text.redact import Secrets

_ADDRESS_SPACE_KIB = 2 << 20


def run_by_hand(
    cluster: Path,
    suite: str,
    out: Path | None,
    *,
    notify: bool,
    rebuild: bool,
    require_baseline: bool,
    as_json: bool,
    verbose: bool,
) -> int:
    """Run the flow `check` and show how it goes; returns the exit status.

    Raises InputError before the flow is started when cluster, suite or folder are not what they should be.
    """
    loaded = load_cluster(cluster)
    platform_for(loaded, cluster)
    check_recipe(loaded.image)
    if loaded.upload and (lacking := missing_package(loaded.upload)):  # a person is here to install it
        raise MissingError(Reason.of("upload-package-missing", cluster=cluster, problem=lacking))
    load_suite(suite)
    if notify:
        check_alerts(loaded.notify)
    target_of_environment()
    check_history()
    check_state_home()
    _check_address_space()
    writable(out, "--out") if out else check_runs_folder()  # said before an hour is spent, not after it
    with _progress(verbose, secrets_of(loaded)) as console:
        console.print(f"[bold]seatrial[/] {cluster} · {suite}", highlight=False)
        outcome = by_hand(cluster, suite, out, notify=notify, rebuild=rebuild, require_baseline=require_baseline)
        if not isinstance(outcome, RunResult):
            console.print(secrets_of(loaded).out_of_line(outcome.reason), markup=False, highlight=False)
            return outcome.exit_status
    try:
        _show(outcome, out or Path("runs") / outcome.run_id, as_json)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone; the verdict stands
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return exit_status(outcome.verdict, outcome.coverage, require_baseline)


def _check_address_space() -> None:
    """Raise InputError where a limit is too low for a run and its server, whose threads would not start."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if resource.RLIM_INFINITY != soft < _ADDRESS_SPACE_KIB << 10:
        needed = f"a run needs {_ADDRESS_SPACE_KIB}"
        raise InputError(f"ulimit -v is {soft >> 10} KiB of address space, {needed}; run `ulimit -v unlimited`")


class Terminal(Console):
    """A terminal that may go away: the run goes on without it, and its exit status stays its verdict."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if self.stderr else 1)  # what is buffered is written at exit


@contextmanager
def _progress(verbose: bool, secrets: Secrets) -> Iterator[Console]:
    """Show what the logger `seatrial` says on standard error, and keep Prefect's own console quiet."""
    console = Terminal(stderr=True)
    handler = TerminalHandler(console, secrets)
    logger = logging.getLogger("seatrial")
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.addHandler(handler)
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "INFO" if verbose else "CRITICAL")
    try:
        yield console
    finally:
        handler.stop()
        logger.removeHandler(handler)


def _show(result: RunResult, folder: Path, as_json: bool) -> None:
    """The summary; with `as_json` it goes to standard error and run.json alone to standard output."""
    from seatrial.report.terminal import closing_line, summary

    console = Terminal(stderr=as_json)
    console.print()
    console.print(summary(result))
    report = folder / "report.html"
    shown = report if report.exists() else "missing: it could not be written"
    console.print(f"\nreport: {shown}", markup=False, highlight=False, soft_wrap=True)
    for note in result.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps(result.to_dict(), indent=2, allow_nan=False))
    print(closing_line(result), file=sys.stderr if as_json else sys.stdout)
