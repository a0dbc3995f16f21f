"""The chain of a run: its steps, each a check of the result where it fails."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from prefect.runtime import deployment
from prefect.runtime import flow_run as current

from seatrial.checks.connectivity.counters import revisit_inventories
from seatrial.checks.localize.rounds import LOCALIZE
from seatrial.checks.localize.step import is_due
from seatrial.checks.table import CHECKS, left_out, repeat_checks
from seatrial.config.run import RESULT, Run, whole_name
from seatrial.flows.serving.killed import close_killed_runs
from seatrial.flows.serving.limits import cluster_lock
from seatrial.flows.serving.signals import end_soon, uninterrupted
from seatrial.flows.serving.ui import show_files
from seatrial.history import open_store
from seatrial.history.minutes import tables
from seatrial.history.past import RunContext
from seatrial.model.errors import MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.result import Check, RunResult, now
from seatrial.model.verdict import Verdict
from seatrial.platforms import platform_for
from seatrial.remote.minutes import recording
from seatrial.runs.progress import STARTUP, log
from seatrial.runs.run_state import RunState
from seatrial.system.other_programs import OtherPrograms, watched
from seatrial.tasks.check import check_task, compare_task, judge_of, localize_task
from seatrial.tasks.image import image_task
from seatrial.tasks.launch import (
    COLLECT_S,
    CUT_COLLECT_S,
    collect,
    gave_way,
    isolate,
    keep,
    launch_task,
    reap,
    teardown,
)
from seatrial.tasks.notify import notify_task
from seatrial.tasks.record import metrics_task, record_task, write_run_json
from seatrial.tasks.upload import CUT_TIMEOUT_S as CUT_UPLOAD_S
from seatrial.tasks.upload import upload, upload_task

if TYPE_CHECKING:
    from seatrial.history.store import Store

_BUSY = 0.3  # share of a machine's processors that other programs take before a run says so


def run_chain(
    run: Run, notify: bool, rebuild: bool, wait_s: float, startup_s: float = 0.0
) -> RunResult:
    """Wait for the cluster, run the steps on it, and publish the result; `startup_s` is how long
    the process took.
    """
    others = watched()
    run_state = RunState(run, now() - timedelta(seconds=startup_s), timings={STARTUP: startup_s})
    with opened_history() as (store, unreachable):
        try:
            with cluster_lock(run.cluster.name, run.run_id, UUID(current.id), wait_s) as held:
                _reap(run)
                _run_steps(run_state, rebuild, store, unreachable)
            if held.lost:
                run_state.doubt(held.lost)
        except MissingError as taken:
            run_state.add(Check("turn", Verdict.NOT_RUN, taken.reason))
        except Exception as error:  # from the lock: report what was measured all the same
            run_state.add_failure("run", error)
        except BaseException as cut:
            with uninterrupted():
                record_cut(run_state, cut)
            if deployment.id:  # the server may have ended with the runner
                end_soon()
            raise
        run_state.note(_busy_machine(run_state, others))
        run_state.finished = now()
        publish_results(run_state, store, notify)
    return rewrite_run_json(run_state)


def _busy_machine(run_state: RunState, others: OtherPrograms) -> str | None:
    """Return a note if other programs took much of the processors of a machine that played all
    nodes.

    None otherwise.
    """
    cores = run_state.launched.shared_cores if run_state.launched else None
    taken = others.cores() if cores else 0.0
    if not cores or taken < _BUSY * cores:
        return None
    return (
        f"other programs took {taken:.1f} of this machine's {cores} processors: the run took "
        "longer for it"
    )


def _run_steps(
    run_state: RunState, rebuild: bool, store: "Store | None", unreachable: str | None
) -> None:
    """Run the steps that need nodes, then tear down.

    A step that fails or is not tried becomes a check.
    """
    through = False
    try:
        with run_state.attempt("image"):
            image = image_task(run_state.run, rebuild)
            run_state.fingerprint |= image.fingerprint
            run_state.run = replace(run_state.run, image=image.reference)
        if run_state.can_run("launch", after="image"):
            with run_state.attempt("launch"):
                run_state.set_testbed(launch_task(run_state.run))
        with recording(run_state.run.every_s, lambda: run_state.nodes_up) as run_state.minutes:
            _run_checks(run_state)
        if not _gave_way(run_state):
            _judge(run_state, store)
            _gave_way(run_state)
        if "compare" in run_state.done and run_state.run.cluster.isolate:
            with run_state.attempt("isolate"):
                run_state.isolated = isolate(run_state.run, run_state.checks, len(run_state.nodes))
        if unreachable:  # a pinned or earlier value might have kept it from passing
            reason = Reason.of("history-unavailable", problem=unreachable)
            run_state.add(Check("history", Verdict.INCONCLUSIVE, reason))
        through = True
    finally:
        with uninterrupted():
            _collect_and_teardown(run_state, through)


def _run_checks(run_state: RunState) -> None:
    """Run the checks of the suite, each only if the step before it (`after`) has worked."""
    for kind in CHECKS:
        if not run_state.run.suite.section(kind.section) or not run_state.can_run(
            kind.name, after=kind.after
        ):
            continue
        if reason := left_out(kind, run_state.run):
            run_state.note(reason)
            continue
        with run_state.attempt(kind.name):
            run_state.checked(check_task(kind, run_state.context()))


def _gave_way(run_state: RunState) -> bool:
    """Return whether the run had to give back the nodes that it took, after which it counts for
    nothing.
    """
    why = gave_way(run_state.run, run_state.launched, run_state.checks)
    if why:
        run_state.discard_measurements(why)
    return bool(why)


def _judge(run_state: RunState, store: "Store | None") -> None:
    """Judge all numbers, then name the part that has slowed or makes a collective bad, within the
    suite's budget.
    """
    run = run_state.run
    until = time.monotonic() + run.suite.budget_s
    context = RunContext(
        run.cluster.name,
        whole_name(run.suite.name),
        run_state.fingerprint,
        run_state.started,
        tuple(run_state.nodes.values()),
    )
    judge = judge_of(run_state.setup, store, context)
    with run_state.attempt("compare"):
        repeat = partial(repeat_checks, run_state.context()) if run_state.nodes_up else None
        run_state.checks = compare_task(run_state.checks, judge, repeat, until)
        if run_state.nodes_up:
            run_state.checks, notes = revisit_inventories(run_state.context(), run_state.checks)
            run_state.notes += notes
    measured = "compare" in run_state.done and run.suite.budget_s and run_state.nodes_up
    if measured and is_due(run_state.context(), run_state.checks):
        with run_state.attempt(LOCALIZE):
            if localized := localize_task(run_state.context(), run_state.checks, judge, until):
                run_state.checked(localized.step)
                run_state.localization = localized.document


def _collect_and_teardown(run_state: RunState, through: bool) -> None:
    """Collect the nodes' logs and take the nodes down, or keep them, but never those of a run that
    was cut off.
    """
    run = run_state.run
    with run_state.attempt("collect"):
        collect(run, run_state.nodes_up, COLLECT_S if through else CUT_COLLECT_S)
    with run_state.attempt("teardown"):
        kept = keep(run, run_state.result().verdict) if through else None
        run_state.note(kept)
        if not kept:
            teardown(run.cluster, run.run_id)


def _reap(run: Run) -> None:
    """Close killed runs and remove their leftovers; a failure to do so does not stop this run."""
    close_killed_runs()
    try:
        reap(platform_for(run.cluster))
    except Exception as error:
        log.warning("what earlier runs have left cannot be removed: %s", error)


def publish_results(run_state: RunState, store: "Store | None", notify: bool) -> None:
    """Record, upload, publish and notify.

    A step that fails becomes a check, and the others go on.
    """
    run = run_state.run
    written: Mapping[str, Path] = {}
    if store is not None:
        run_state.read_earlier_runs(store)
    with run_state.attempt("record"):
        written = record_task(run_state.result(), run, store, run.logs / "run.log")
        if store is not None and run_state.minutes.times_s:
            store.keep_minutes(
                run.run_id, tables(run_state.minutes.times_s, run_state.minutes.metrics)
            )
        if missing := [name for name in RESULT if name not in written]:
            run_state.note(f"{', '.join(missing)} could not be written: logs/run.log says why")
        show_files(run, written, run_state.result())
    if run.cluster.upload:
        with run_state.attempt("upload"):
            run_state.note(upload_task(run))
    if os.environ.get("SEATRIAL_METRICS"):
        with run_state.attempt("metrics"):
            run_state.note(metrics_task(run_state.result(), store))
    if notify:  # also if something could not be recorded
        with run_state.attempt("notify"):
            notified = notify_task(
                run_state.result(), run.cluster, store, written.get("report.html")
            )
            run_state.note(f"alerts: {notified.summary}" if notified.failed else None)


def rewrite_run_json(run_state: RunState) -> RunResult:
    """Write run.json again, now with all timings.

    Raises SeatrialError if none could be written at all, except after an alert of a deployment's
    run: its crash would send a second one.
    """
    result = run_state.result()
    try:
        write_run_json(result, run_state.run.out)
    except SeatrialError as error:
        is_served = deployment.id and "notify" in run_state.done
        if "record" not in run_state.done and not is_served:
            raise
        log.warning("run.json is as it was before the last steps: %s", error)
    return replace(result, folder=run_state.run.out)


def record_cut(run_state: RunState, cut: BaseException) -> None:
    """Write and upload the run.json of an interrupted or cancelled run."""
    cut_by = type(cut).__name__
    in_words = {"KeyboardInterrupt": "Ctrl-C", "TerminationSignal": "SIGTERM"}.get(cut_by, cut_by)
    reason = Reason.of("cut-off", how=f"cut off by {in_words} before it was through")
    run_state.add(Check("run", Verdict.INCONCLUSIVE, reason))
    try:
        write_run_json(run_state.result(), run_state.run.out)
    except SeatrialError as error:  # must not stand in the place of what cut the run off
        log.error("%s", error)
    upload(run_state.run, CUT_UPLOAD_S)


@contextmanager
def recorded_if_cut(run: Run) -> Iterator[None]:
    """Write the run.json of a run that is cut off without one: before its first step, or during a
    campaign.
    """
    try:
        yield
    except BaseException as cut:
        if not isinstance(cut, Exception) and not (run.out / RESULT[0]).exists():
            with uninterrupted():
                record_cut(RunState(run), cut)
        raise


@contextmanager
def opened_history() -> "Iterator[tuple[Store | None, str | None]]":
    """Open the history, or give the reason why it cannot be opened: a run without one still
    measures.
    """
    try:
        store = open_store()
    except Exception as error:
        log.warning("history: %s; this run is not added to it", error)
        yield None, str(error)
        return
    with store:
        yield store, None
