"""The flow `check`: one cluster through the whole chain, from image to verdict."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from prefect import flow
from prefect.runtime import deployment
from prefect.runtime import flow_run as current

from flows.after_death import run_id_of, teardown_after_death
from flows.artifacts import progress, show_files
from flows.limits import WAIT_S, turn
from flows.outcome import broken_off, state_of
from flows.parameters import ClusterFile, SuiteName, WaitSeconds
from flows.shown import introduce, show_verdict
from flows.signals import end_with_parent, uninterrupted
from flows.told import told_to_prefect
from seatrial.baselines.setup import setup_of
from seatrial.cluster import Cluster, load_cluster
from seatrial.errors import MissingError, SeatrialError
from seatrial.history import open_store
from seatrial.occasion import Occasion
from seatrial.platforms import platform_for
from seatrial.progress import log, log_file
from seatrial.result import Check, RunResult, now
from seatrial.run import RESULT, Run, secrets_of, writable
from seatrial.suite import load_suite
from seatrial.trial import Trial, process_age_s
from seatrial.verdict import Verdict
from tasks.collect import CUT_TIMEOUT_S, TIMEOUT_S, collect
from tasks.collectives import collectives_task
from tasks.compare import compare_task
from tasks.connectivity import connectivity_task
from tasks.image import demand, image_task, what_nodes_lack
from tasks.launch import keep, launch_task, reap, teardown
from tasks.metrics import metrics_task
from tasks.notify import notify_task
from tasks.record import record_task, write_run_json
from tasks.repeat import measure_again
from tasks.training import training_task
from tasks.upload import CUT_TIMEOUT_S as CUT_UPLOAD_S
from tasks.upload import upload, upload_task

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

    from seatrial.history.store import Store


_CUT = {"KeyboardInterrupt": "Ctrl-C", "TerminationSignal": "SIGTERM"}  # what Prefect raises, as people say it


def _name() -> str:
    """What the run is called in Prefect: the files' names, not their paths."""
    return f"{Path(current.parameters['cluster']).stem} {Path(current.parameters['suite']).stem}"


@flow(
    name="seatrial-check",
    flow_run_name=_name,
    validate_parameters=True,
    on_cancellation=[teardown_after_death],
    on_crashed=[teardown_after_death],
)
def check(
    cluster: ClusterFile,
    suite: SuiteName = "quick",
    out: str | None = None,
    notify: bool = True,
    rebuild: bool = False,
    wait_s: WaitSeconds = WAIT_S,
) -> "State[RunResult] | State[Exception]":
    """Take a cluster through its sea trials and end in a verdict.

    Args:
        cluster: Path of the cluster file, as the machine that runs the check sees it.
        suite: quick (about a minute), nightly (minutes), acceptance (an hour), or the path of a suite file.
        out: Folder for run.json, measurements.csv, report.html and logs; runs/RUN_ID when empty.
        notify: Whether people are told, where alerts are configured.
        rebuild: Whether the image is built also when nothing that it is made of has changed.
        wait_s: Seconds to wait while another check has the cluster; 0 gives up at once and says who has it.
    """
    if deployment.id:  # started by a runner or a worker
        end_with_parent()
    try:
        run = _run(load_cluster(Path(cluster)), suite, out)
        secrets = secrets_of(run.cluster)
        with told_to_prefect(secrets), log_file(run.logs / "run.log", secrets):
            introduce(run)
            result = _checked(run, notify, rebuild, wait_s)
            show_verdict(result)
    except Exception as error:  # Failed would say that the cluster is bad
        return broken_off(error)
    return state_of(result)


def _checked(run: Run, notify: bool, rebuild: bool, wait_s: float) -> RunResult:
    """What the run came to, once it had the cluster for itself."""
    trial = Trial(run, timings={"startup": process_age_s()})
    with _store() as (store, unreachable):
        try:
            with turn(run.cluster.name, run.run_id, UUID(current.id), wait_s) as held, progress(run):
                _reap(run)
                _try_out(trial, rebuild, store, unreachable)
            if held.lost:
                trial.doubt(held.lost)
        except MissingError as taken:
            trial.add(Check("turn", Verdict.NOT_RUN, str(taken)))
        except BaseException as cut:
            with uninterrupted():
                _record_cut(trial, cut)
            raise
        trial.finished = now()
        written: Mapping[str, Path] = {}
        with trial.attempt("record"):
            written = record_task(trial.result(), run, store, run.logs / "run.log")
            show_files(run, written, trial.result())
        if run.cluster.upload:
            with trial.attempt("upload"):
                trial.note(upload_task(run, trial.started))
        if os.environ.get("SEATRIAL_METRICS"):
            with trial.attempt("metrics"):
                trial.note(metrics_task(trial.result(), store))
        if notify:  # also of what could not be recorded
            with trial.attempt("notify"):
                told = notify_task(trial.result(), run.cluster, store, written.get("report.html"))
                trial.note(f"alerts: {told.said}" if told.failed else None)
    return _written_again(trial)


def _written_again(trial: Trial) -> RunResult:
    """run.json once more, now with all timings; what is recorded stands.

    Raises SeatrialError where there is none: it could not measure. Not so where people have just been told all of it,
    for of a deployment's run that died they would hear once more.
    """
    result = trial.result()
    try:
        write_run_json(result, trial.run.out)
    except SeatrialError as error:
        told = deployment.id and "notify" in trial.done
        if "record" not in trial.done and not told:
            raise
        log.warning("run.json is as it was before the last steps: %s", error)
    return result


def _try_out(trial: Trial, rebuild: bool, store: "Store | None", unreachable: str | None) -> None:
    """What needs the nodes, what it comes to, and their end. What goes wrong or is not tried becomes a check."""
    suite = trial.run.suite
    lacks: Mapping[str, str] = {}
    through = False
    try:
        with trial.attempt("image"):
            image = image_task(trial.run, rebuild)
            trial.fingerprint |= image.fingerprint
            trial.run = replace(trial.run, image=image.reference)
        if trial.can("launch", after="image"):
            with trial.attempt("launch"):
                trial.up(launch_task(trial.run))
        if trial.can("connectivity", after="launch"):
            with trial.attempt("connectivity"):
                found = connectivity_task(trial.run, trial.testbed)
                trial.add(found.check)
                trial.connected(found.testbed, found.facts, found.fingerprint)
                trial.notes += found.notes
                lacks = what_nodes_lack(trial.run, found.testbed, found.facts)
        if suite.collectives and trial.can("collectives", after="connectivity"):
            with trial.attempt("collectives"):
                demand("collectives", lacks)
                swept = collectives_task(trial.run, trial.testbed)
                trial.add(swept.check)
                trial.go_on_with(swept.testbed)
        if suite.training and trial.can("training", after="connectivity"):
            with trial.attempt("training"):
                demand("training", lacks)
                trial.add(training_task(trial.run, trial.testbed))
        with trial.attempt("compare"):
            cluster, again = trial.run.cluster, None
            if trial.nodes_up:
                again = partial(measure_again, trial.run, trial.testbed)
            occasion = Occasion(cluster.name, suite.name, trial.fingerprint, trial.started)
            trial.checks = compare_task(trial.checks, setup_of(cluster), store, occasion, again)
        if unreachable:
            trial.add(_unheld(unreachable))
        through = True
    finally:
        with uninterrupted():
            _leave(trial, through)


def _unheld(problem: str) -> Check:
    """Without its history a run could pass what a pinned or an earlier value would not let pass."""
    reason = f"cannot be opened, so nothing was held against pinned and earlier values: {problem}"
    return Check("history", Verdict.INCONCLUSIVE, reason)


def _leave(trial: Trial, through: bool) -> None:
    """Fetch what the nodes can tell and take them down, or keep them; those of a run that was cut off never."""
    run = trial.run
    with trial.attempt("collect"):
        collect(run, trial.nodes_up, TIMEOUT_S if through else CUT_TIMEOUT_S)
    with trial.attempt("teardown"):
        kept = keep(run, trial.result().verdict) if through else None
        trial.note(kept)
        if not kept:
            teardown(run.cluster, run.run_id)


def _reap(run: Run) -> None:
    """First of all remove what killed runs have left; what cannot be removed is no reason not to measure."""
    try:
        reap(platform_for(run.cluster))
    except Exception as error:
        log.warning("what earlier runs have left cannot be removed: %s", error)


def _record_cut(trial: Trial, cut: BaseException) -> None:
    """A run that is interrupted or cancelled leaves a run.json that says so; what there is, is uploaded."""
    cut_by = type(cut).__name__
    trial.add(Check("run", Verdict.INCONCLUSIVE, f"cut off by {_CUT.get(cut_by, cut_by)} before it was through"))
    try:
        write_run_json(trial.result(), trial.run.out)
    except SeatrialError as error:  # must not stand in the place of what cut the run off
        log.error("%s", error)
    upload(trial.run, trial.started, CUT_UPLOAD_S)


def _run(cluster: Cluster, suite: str, out: str | None) -> Run:
    run_id = run_id_of(UUID(current.id), current.scheduled_start_time)
    folder = writable((Path(out) if out else Path("runs") / run_id).absolute(), "out")
    for name in RESULT:  # an earlier run's verdict must not pass for this one's
        (folder / name).unlink(missing_ok=True)
    return Run(run_id, cluster, load_suite(suite), folder)


@contextmanager
def _store() -> "Iterator[tuple[Store | None, str | None]]":
    """The history, or why it cannot be opened: a run without one still measures."""
    try:
        store = open_store()
    except SeatrialError as error:
        log.warning("history: %s; this run is not added to it", error)
        yield None, str(error)
        return
    with store:
        yield store, None
