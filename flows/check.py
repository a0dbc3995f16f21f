"""The flow `check`: one cluster through the whole chain, from image to verdict."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

from prefect import flow
from prefect.runtime import deployment
from prefect.runtime import flow_run as current
from pydantic import Field

from flows.serving.artifacts import progress
from flows.serving.limits import WAIT_S, cluster_lock
from flows.serving.log_forwarding import forward_logs
from flows.serving.outcome import crashed_state, has_verdict, state_of
from flows.serving.results import opened_history, publish_results, record_cut, rewrite_run_json
from flows.serving.shown import introduce, show_verdict
from flows.serving.signals import end_with_parent, uninterrupted
from seatrial.checks.suites import load_suite
from seatrial.checks.table import CHECKS, left_out, measure_again
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.run import Run, below_runs, secrets_of, set_aside, setup_of, writable
from seatrial.judge.knowledge import RunContext
from seatrial.model.errors import MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.result import Check, RunResult, now
from seatrial.model.verdict import Verdict
from seatrial.platforms import platform_for
from seatrial.platforms import state as states
from seatrial.runs.progress import log, log_file
from seatrial.runs.run_state import RunState
from seatrial.system.disk_reserve import reserved
from seatrial.system.process import process_age_s
from tasks.check import check_task
from tasks.collect import CUT_TIMEOUT_S, TIMEOUT_S, collect
from tasks.compare import compare_task
from tasks.image import image_task
from tasks.launch import keep, launch_task, reap, teardown

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, State
    from prefect.flows import Flow

    from seatrial.history.store import Store

# Prefect's run form is made of these types and of the flow's docstring.
ClusterFile = Annotated[str, Field(min_length=1, examples=["deployments/clusters/a4-gke.yaml"])]
SuiteName = Annotated[
    Annotated[Literal["quick", "nightly", "acceptance", "a4-sweep"], Field(title="shipped")]
    | Annotated[str, Field(title="file", min_length=1)],
    Field(),
]
WaitSeconds = Annotated[float, Field(ge=0, le=86_400)]


def teardown_after_crash(flow: "Flow[..., object]", flow_run: "FlowRun", state: "State[object]") -> None:
    """Take down the nodes of a run that was cancelled or whose process died, by its flow run's id alone.

    Prefect calls this for a run that could not measure, too; that one has taken its nodes down, or keeps them on
    purpose.
    """
    if has_verdict(state):
        return
    run_id = run_id_of(flow_run.id, flow_run.expected_start_time)
    if cluster := _cluster_of(run_id, Path(flow_run.parameters["cluster"])):
        teardown(cluster, run_id)


def _cluster_of(run_id: str, file: Path) -> Cluster | None:
    """Return the cluster as it was when the run brought it up, for the file may have changed; else the file's."""
    if folder := states.find(run_id):
        with suppress(SeatrialError):
            return states.recall(folder)
    try:
        return load_cluster(file)
    except SeatrialError as error:
        log.warning("run %s: nothing of it is known here: %s", run_id, error)
        return None


def run_id_of(flow_run_id: UUID, scheduled: datetime | None) -> str:
    """Return a sortable id, unique and legal in every name, from the flow run alone: 20261121-0922-1f4c2."""
    stamp = (scheduled or datetime.now(UTC)).astimezone(UTC).strftime("%Y%m%d-%H%M")
    return f"{stamp}-{flow_run_id.hex[-5:]}"


def _name() -> str:
    """Name the run in Prefect by its files, without their folders."""
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
    """Wait for the cluster, run the steps on it, and publish the result."""
    trial = RunState(run, timings={"startup": process_age_s()})
    with opened_history() as (store, unreachable):
        try:
            with cluster_lock(run.cluster.name, run.run_id, UUID(current.id), wait_s) as held, progress(run):
                _reap(run)
                _run_steps(trial, rebuild, store, unreachable)
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


def _run_steps(trial: RunState, rebuild: bool, store: "Store | None", unreachable: str | None) -> None:
    """Run the steps that need nodes, then tear down. A step that fails or is not tried becomes a check."""
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
            _collect_and_teardown(trial, through)


def _no_history(problem: str) -> Check:
    """Return a check that keeps the run from passing: a pinned or an earlier value might not let it pass."""
    return Check("history", Verdict.INCONCLUSIVE, Reason.of("history-unavailable", problem=problem))


def _collect_and_teardown(trial: RunState, through: bool) -> None:
    """Collect the nodes' logs and take the nodes down, or keep them, but never those of a run that was cut off."""
    run = trial.run
    with trial.attempt("collect"):
        collect(run, trial.nodes_up, TIMEOUT_S if through else CUT_TIMEOUT_S)
    with trial.attempt("teardown"):
        kept = keep(run, trial.result().verdict) if through else None
        trial.note(kept)
        if not kept:
            teardown(run.cluster, run.run_id)


def _reap(run: Run) -> None:
    """Remove leftovers of killed runs; a failure to do so does not stop this run."""
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
