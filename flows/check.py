"""The flow `check`: one cluster through the whole chain, from image to verdict."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID, uuid4

from prefect import flow
from prefect.runtime import deployment
from prefect.runtime import flow_run as current
from pydantic import Field

from seatrial.checks.suites import Campaign, load_suite, part_of
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.run import Run, Suite, below_runs, secrets_of, set_aside, writable
from seatrial.flows.at_work import at_work
from seatrial.flows.campaign import run_campaign
from seatrial.flows.chain import (
    opened_history,
    publish_results,
    recorded_if_cut,
    rewrite_run_json,
    run_chain,
)
from seatrial.flows.serving.limits import WAIT_S
from seatrial.flows.serving.signals import end_with_parent, first_signal_alone
from seatrial.flows.serving.ui import (
    crashed_state,
    errors,
    forward_logs,
    has_verdict,
    introduce,
    results,
    show_verdict,
    state_of,
)
from seatrial.model.errors import InputError, SeatrialError
from seatrial.model.result import RunResult, now
from seatrial.platforms import state as states
from seatrial.runs.login import holds
from seatrial.runs.progress import log
from seatrial.runs.run_state import RunState
from seatrial.system.disk_reserve import reserved
from seatrial.system.process import process_age_s
from seatrial.tasks.launch import teardown

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, State
    from prefect.flows import Flow


# Prefect's run form is made of these types and of the flow's docstring.
ClusterFile = Annotated[str, Field(min_length=1, examples=["deployments/clusters/a4-gke.yaml"])]
SuiteName = Annotated[
    Annotated[
        Literal[
            "quick",
            "nightly",
            "acceptance",
            "a4-sweep",
            "resnet50-fp32",
            "qualify",
            "qualify-pairs",
        ],
        Field(title="shipped"),
    ]
    | Annotated[str, Field(title="file", min_length=1)],
    Field(),
]
WaitSeconds = Annotated[float, Field(ge=0, le=86_400)]


def teardown_after_crash(
    flow: "Flow[..., object]", flow_run: "FlowRun", state: "State[object]"
) -> None:
    """Take down the nodes of a run that was cancelled or whose process died, by its flow run's id
    alone.

    Prefect calls this for a run that could not measure, too; that one has taken its nodes down, or
    keeps them on purpose.
    """
    if has_verdict(state):
        return
    run_id = run_id_of(flow_run.id, flow_run.expected_start_time)
    if cluster := _cluster_of(run_id, Path(flow_run.parameters["cluster"])):
        teardown(cluster, run_id)


def _cluster_of(run_id: str, file: Path) -> Cluster | None:
    """Return the cluster as it was when the run brought it up, for the file may have changed; else
    the file's.
    """
    if folder := states.find(run_id):
        with suppress(SeatrialError):
            return states.recall(folder)
    try:
        return load_cluster(file)
    except SeatrialError as error:
        log.warning("run %s: nothing of it is known here: %s", run_id, error)
        return None


def run_id_of(flow_run_id: UUID, scheduled: datetime | None) -> str:
    """Return a sortable id, unique and legal in every name, from the flow run alone:
    20261121-0922-1f4c2.
    """
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
    budget_s: WaitSeconds | None = None,
    only: list[str] | None = None,
) -> "State[RunResult] | State[Exception]":
    """Take a cluster through its sea trials and end in a verdict.

    Args:
        cluster: Path of the cluster file, as the machine that runs the check sees it.
        suite: A shipped suite, such as quick, or the path of a suite file; see `seatrial suites`.
        out: Folder for run.json, measurements.csv, report.html and logs; runs/RUN_ID when empty. A
            form has it in runs.
        notify: Whether alerts are sent, if they are configured.
        rebuild: Whether the image is built also when nothing that it is made of has changed.
        wait_s: Seconds to wait while another check has the cluster; 0 gives up at once and says who
            has it.
        require_baseline: Whether a pass does not count while something that was measured has no
            baseline yet.
        budget_s: Seconds for repeats and for naming the part that is slow; 0: neither. The suite's
            when empty.
        only: Names of the checks to run, such as devices; all of the suite when empty.
    """
    if deployment.id:  # started by a runner or a worker
        end_with_parent()
    try:
        planned = _planned(suite, budget_s, only or ())
        run = _run(load_cluster(Path(cluster)), planned, out)
        with (
            first_signal_alone(is_served=bool(deployment.id)),
            forward_logs(secrets_of(run.cluster)),
            reserved(run.out, run.cluster.nodes),
            at_work(run),
            recorded_if_cut(run),
        ):
            introduce(run)
            result = _run_suite(run, notify, rebuild, wait_s)
            show_verdict(result)
    except Exception as error:  # Failed would say that the cluster is bad
        return crashed_state(error)
    return state_of(result, require_baseline)


def _run_suite(run: Run, notify: bool, rebuild: bool, wait_s: float) -> RunResult:
    """Run the checks of the suite, or its campaign, whose state is in the history."""
    campaign = run.suite.section(Campaign)
    if campaign is None:
        return run_chain(
            run, notify, rebuild, wait_s, 0.0 if results or errors else process_age_s()
        )
    with opened_history() as (store, unreachable):
        if store is None:
            raise SeatrialError.of("history-unavailable", problem=unreachable)

        def publish(run_state: RunState) -> RunResult:
            publish_results(run_state, store, notify)
            return rewrite_run_json(run_state)

        chain = partial(run_chain, notify=notify, rebuild=rebuild, wait_s=wait_s)
        return run_campaign(run, campaign, store, chain, publish, lambda: run_id_of(uuid4(), None))


def _run(cluster: Cluster, suite: Suite, out: str | None) -> Run:
    scheduled = current.scheduled_start_time or now()
    run_id = run_id_of(UUID(current.id), scheduled)
    requested = below_runs(out) if out and deployment.id else Path(out or Path("runs") / run_id)
    if out and holds(out, requested.name):
        raise InputError(
            f"out {out}: is the folder of the run of that id, which would be lost; give another"
        )
    folder = writable(requested.absolute(), "out")
    set_aside(folder)  # an earlier run's verdict must not pass for this one's
    return Run(run_id, cluster, suite, folder, day=scheduled.toordinal())


def _planned(suite: str, budget_s: float | None, only: Sequence[str]) -> Suite:
    """Return the suite, or its part with the checks `only`, with the budget. Raises InputError."""
    planned = load_suite(suite)
    if only:
        planned = part_of(planned, only)
    if budget_s is not None:
        planned = planned.model_copy(update={"budget_s": budget_s})
    return planned
