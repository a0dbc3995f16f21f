"""`seatrial run`: the flow, started by hand, with its progress on the terminal."""

import json
import logging
import os
import resource
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from seatrial.alerts.settings import check_alerts
from seatrial.builders import check_recipe
from seatrial.checks.suites import load_suite, part_of
from seatrial.checks.table import CHECKS
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.run import Suite, check_runs_folder, secrets_of, writable
from seatrial.config.upload import missing_package
from seatrial.flows.serving.by_hand import flow_by_hand
from seatrial.history import check_history, open_store
from seatrial.model.errors import InputError, MissingError
from seatrial.model.result import RunResult, exit_status
from seatrial.platforms import platform_for
from seatrial.report.junit import junit_xml
from seatrial.report.metrics import target_of_environment
from seatrial.runs.load import load_result
from seatrial.runs.progress import STARTUP, TerminalHandler
from seatrial.system.process import process_age_s
from seatrial.system.state_home import check_state_home
from seatrial.text.printable import printable

_ADDRESS_SPACE_KIB = 2 << 20


def run_by_hand(
    cluster: Path,
    suite: str,
    out: Path | None,
    *,
    notify: bool,
    rebuild: bool,
    require_baseline: bool,
    budget_s: float | None,
    only: Sequence[str],
    as_json: bool,
    verbose: bool,
    quiet: bool,
    junit: Path | None,
) -> int:
    """Run the flow `check` and show how it goes; returns the exit status.

    Raises InputError before the flow starts where cluster, suite or folder cannot be used.
    """
    loaded, planned = _checked(cluster, suite, out, junit, only, notify=notify)
    handler = TerminalHandler(
        Terminal(stderr=True, quiet=quiet), secrets_of(loaded), _steps(loaded, planned, notify)
    )
    with _progress(handler, verbose) as console:
        if not sys.stderr.isatty():  # on a terminal it is printed before anything is imported
            named = escape(printable(f"{cluster} · {suite}"))
            console.print(f"[bold]seatrial[/] {named}", highlight=False, soft_wrap=True)
        usual_times = partial(_add_usual_times, handler, loaded.name, planned.name)
        threading.Thread(target=usual_times, daemon=True).start()
        outcome = flow_by_hand(
            "seatrial.flows.check:check",
            cluster=str(cluster),
            suite=suite,
            out=str(out) if out else None,
            notify=notify,
            rebuild=rebuild,
            require_baseline=require_baseline,
            budget_s=budget_s,
            only=list(only) or None,
        )
        if not isinstance(outcome, RunResult):
            console.quiet = False
            sentence = secrets_of(loaded).out_of_line(outcome.reason.sentence)
            console.print(sentence, markup=False, highlight=False, soft_wrap=True)
            return outcome.exit_status
    if junit:
        junit.write_text(junit_xml(outcome), encoding="utf-8")
    _show(outcome, out or Path("runs") / outcome.run_id, as_json, quiet)
    return exit_status(outcome.verdict, outcome.coverage, require_baseline)


def _checked(
    cluster: Path,
    suite: str,
    out: Path | None,
    junit: Path | None,
    only: Sequence[str],
    *,
    notify: bool,
) -> tuple[Cluster, Suite]:
    """Load the cluster and the suite, or the part of it with the checks `only`.

    Raises InputError for what would end the run, or lose its result, later.
    """
    loaded = load_cluster(cluster)
    platform_for(loaded, cluster)
    check_recipe(loaded.image)
    # A person is here to install it
    if loaded.upload and (lacking := missing_package(loaded.upload)):
        raise MissingError.of("upload-package-missing", cluster=cluster, problem=lacking)
    planned = load_suite(suite)
    if notify:
        check_alerts(loaded.notify)
    target_of_environment()
    check_history()
    check_state_home()
    _check_address_space()
    writable(out, "--out") if out else check_runs_folder()  # before an hour is spent, not after it
    if junit and not os.access(junit.parent, os.W_OK | os.X_OK):
        raise InputError(f"--junit {junit}: its folder cannot be written to; give another")
    return loaded, part_of(planned, only) if only else planned


def _check_address_space() -> None:
    """Raise InputError where a limit is too low for a run and its server, whose threads would not
    start.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if resource.RLIM_INFINITY != soft < _ADDRESS_SPACE_KIB << 10:
        needed = f"a run needs {_ADDRESS_SPACE_KIB}"
        raise InputError(
            f"ulimit -v is {soft >> 10} KiB of address space, {needed}; run `ulimit -v unlimited`"
        )


class Terminal(Console):
    """A terminal that may go away: the run goes on without it, and its exit status stays its
    verdict.
    """

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # What is buffered is written at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if self.stderr else 1)


def _steps(cluster: Cluster, suite: Suite, notify: bool) -> dict[str, str]:
    """Return the steps of a run in their order, each with what it waits for at first."""
    steps = {STARTUP: "Prefect's server", "image": "the image", "launch": "the nodes"}
    steps |= {kind.name: "its first result" for kind in CHECKS if suite.section(kind.section)}
    steps |= {
        "compare": "the judge",
        "collect": "logs of the nodes",
        "teardown": "the nodes to go down",
    }
    steps["record"] = "files and history"
    if cluster.upload:
        steps["upload"] = "the upload"
    if notify:
        steps["notify"] = "the receivers of alerts"
    return steps


def _add_usual_times(handler: TerminalHandler, cluster: str, suite: str) -> None:
    """Tell the terminal how long each step took last time, if the history knows."""
    with suppress(Exception), open_store() as store:  # the run itself says what is wrong with it
        if last := store.last_run(cluster, suite):
            handler.usual_s = load_result(Path(last.out)).timings


@contextmanager
def _progress(handler: TerminalHandler, verbose: bool) -> Iterator[Console]:
    """Show the records of the logger `seatrial` on standard error, and keep Prefect's own console
    quiet.
    """
    logger = logging.getLogger("seatrial")
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.addHandler(handler)
    os.environ.setdefault(
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "INFO" if verbose else "CRITICAL"
    )
    handler.startup(process_age_s())
    try:
        yield handler.console
    finally:
        handler.stop()
        logger.removeHandler(handler)


def _show(result: RunResult, folder: Path, as_json: bool, quiet: bool) -> None:
    """Print the summary; with `as_json` to standard error, and run.json alone to standard
    output.
    """
    from seatrial.report.terminal import closing_lines, print_rows, show_summary, unwrapped

    console = unwrapped(Terminal(stderr=as_json, quiet=quiet))
    console.print()
    show_summary(result, console)
    report = folder / "report.html"
    shown = report if report.exists() else "missing: it could not be written"
    print_rows(console, [f"\nreport: {shown}", *result.notes])
    if as_json:
        print(json.dumps(result.to_dict(), indent=2, allow_nan=False))
    closing = closing_lines(result)
    print(
        closing.splitlines()[-1] if quiet else f"\n{closing}",
        file=sys.stderr if as_json else sys.stdout,
    )
