"""The flow `check`: one cluster through the whole chain, from image to verdict."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from prefect import flow
from prefect.runtime import deployment
from prefect.runtime import flow_run as current

from flows.serving.artifacts import progress
from flows.serving.crash_hook import run_id_of, teardown_after_crash
from flows.serving.limits import WAIT_S, cluster_lock
from flows.serving.log_forwarding import forward_logs
from flows.serving.outcome import crashed_state, state_of
from flows.serving.parameters import ClusterFile, SuiteName, WaitSeconds
from flows.serving.results import opened_history, publish_results, record_cut, rewrite_run_json
from flows.serving.shown import introduce, show_verdict
from flows.serving.signals import end_with_parent, uninterrupted
from seatrial.checks.repeats import measure_again
from seatrial.checks.suites import load_suite
from seatrial.checks.table import CHECKS, left_out
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.run import Run, below_runs, secrets_of, set_aside, writable
from seatrial.config.setup import setup_of
from seatrial.judge.knowledge import RunContext
from seatrial.model.errors import MissingError
from seatrial.model.reason import Reason
from seatrial.model.result import Check, RunResult, now
from seatrial.model.verdict import Verdict
from seatrial.platforms import platform_for
from seatrial.runs.progress import log, log_file
from seatrial.runs.trial import Trial
from seatrial.system.disk_reserve import reserved
from seatrial.system.process import process_age_s
from tasks.check import check_task
from tasks.collect import CUT_TIMEOUT_S, TIMEOUT_S, collect
from tasks.compare import compare_task
from tasks.image import image_task
from tasks.launch import keep, launch_task, reap, teardown

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

    from seatrial.history.store import Store


def _name() -> str:
    """What the run is called in Prefect: the files' names, not their paths."""
    return f"{Path(current.parameters['cluster']).stem} {Path(current.parameters['suite']).stem}"


@flow(
    name="seatrial-check",
    flow_run_name=_name,
    validate_parameters=True,
    on_cancellation=[teardown_after_crash],
    on_crashed=[teardown_after_crash],
)
def check(
    cluster: ClusterFile,
    suite: SuiteName = "quick",
    out: str | None = None,
    notify: bool = True,
    rebuild: bool = False,
    wait_s: WaitSeconds = WAIT_S,
    require_baseline: bool = False,
) -> "State[None] | State[Exception]":
    """Take a cluster through its sea trials and end in a verdict.

    Args:
        cluster: Path of the cluster file, as the machine that runs the check sees it.
        suite: quick, nightly, acceptance, a4-sweep, or the path of a suite file; `seatrial suites` lists them.
        out: Folder for run.json, measurements.csv, report.html and logs; runs/RUN_ID when empty. A form has it in runs.
        notify: Whether people are told, where alerts are configured.
        rebuild: Whether the image is built also when nothing that it is made of has changed.
        wait_s: Seconds to wait while another check has the cluster; 0 gives up at once and says who has it.
        require_baseline: Whether a pass does not count while something that was measured has no baseline yet.
    """
    if deployment.id:  # started by a runner or a worker
        end_with_parent()
    try:
        run = _run(load_cluster(Path(cluster)), suite, out)
        secrets = secrets_of(run.cluster)
        with forward_logs(secrets), reserved(run.out, run.cluster.nodes), log_file(run.logs / "run.log", secrets):
            introduce(run)
            result = _checked(run, notify, rebuild, wait_s)
            show_verdict(result)
    except Exception as error:  # Failed would say that the cluster is bad
        return crashed_state(error)
    return state_of(result, require_baseline)


def _checked(run: Run, notify: bool, rebuild: bool, wait_s: float) -> RunResult:
    """What the run came to, once it had the cluster for itself."""
    trial = Trial(run, timings={"startup": process_age_s()})
    with opened_history() as (store, unreachable):
        try:
            with cluster_lock(run.cluster.name, run.run_id, UUID(current.id), wait_s) as held, progress(run):
                _reap(run)
                _try_out(trial, rebuild, store, unreachable)
            if held.lost:
                trial.doubt(held.lost)
        except MissingError as taken:
            trial.add(Check("turn", Verdict.NOT_RUN, taken.reason))
        except Exception as error:  # of the lock or the progress: what was measured is told all the same
            trial.broke("run", error)
        except BaseException as cut:
            with uninterrupted():
                record_cut(trial, cut)
            raise
        trial.finished = now()
        publish_results(trial, store, notify)
    return rewrite_run_json(trial)


def _try_out(trial: Trial, rebuild: bool, store: "Store | None", unreachable: str | None) -> None:
    """What needs the nodes, what it comes to, and their end. What goes wrong or is not tried becomes a check."""
    through = False
    try:
        with trial.attempt("image"):
            image = image_task(trial.run, rebuild)
            trial.fingerprint |= image.fingerprint
            trial.run = replace(trial.run, image=image.reference)
        if trial.can("launch", after="image"):
            with trial.attempt("launch"):
                trial.up(launch_task(trial.run))
        for kind in CHECKS:
            if not trial.run.suite.section(kind.section) or not trial.can(kind.name, after=kind.after):
                continue
            if reason := left_out(kind, trial.run):
                trial.note(reason)
                continue
            with trial.attempt(kind.name):
                trial.checked(check_task(kind, trial.context()))
        with trial.attempt("compare"):
            cluster = trial.run.cluster
            again = partial(measure_again, trial.context()) if trial.nodes_up else None
            nodes = tuple(trial.nodes.values())
            context = RunContext(cluster.name, trial.run.suite.name, trial.fingerprint, trial.started, nodes)
            trial.checks = compare_task(trial.checks, setup_of(cluster), store, context, again)
        if unreachable:
            trial.add(_no_history(unreachable))
        through = True
    finally:
        with uninterrupted():
            _leave(trial, through)


def _no_history(problem: str) -> Check:
    """Without its history a run could pass what a pinned or an earlier value would not let pass."""
    return Check("history", Verdict.INCONCLUSIVE, Reason.of("history-unavailable", problem=problem))


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


def _run(cluster: Cluster, suite: str, out: str | None) -> Run:
    scheduled = current.scheduled_start_time or now()
    run_id = run_id_of(UUID(current.id), scheduled)
    asked_for = below_runs(out) if out and deployment.id else Path(out or Path("runs") / run_id)
    folder = writable(asked_for.absolute(), "out")
    set_aside(folder)  # an earlier run's verdict must not pass for this one's
    return Run(run_id, cluster, load_suite(suite), folder, day=scheduled.toordinal())
