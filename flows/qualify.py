"""The flow `qualify`: one pass over a cluster at work, which tests idle nodes and acts on what it
finds.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID, uuid4

from prefect import flow
from prefect.runtime import deployment
from prefect.runtime import flow_run as current
from pydantic import Field

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.qualify import AtOnce, Days, Qualify
from seatrial.config.run import Run, Taken, secrets_of, set_aside, writable
from seatrial.flows.at_work import at_work
from seatrial.flows.chain import run_chain
from seatrial.flows.check import run_id_of
from seatrial.flows.serving.signals import end_with_parent, first_signal_alone
from seatrial.flows.serving.ui import (
    add_tags,
    cluster_tag,
    crashed_state,
    forward_logs,
    introduce,
    show_verdict,
    state_of,
)
from seatrial.history import open_store
from seatrial.history.node_tests import NodeTest, node_tests_of
from seatrial.model.errors import InputError
from seatrial.model.result import RunResult, now
from seatrial.platforms import platform_for
from seatrial.platforms.service import NodeService, ServiceNode, node_service
from seatrial.qualify import cycle
from seatrial.qualify.choose import Selection
from seatrial.qualify.current import REMEMBERED, standing
from seatrial.qualify.summary import pass_result, standing_result
from seatrial.report.metrics import publish_coverage, target_of_environment
from seatrial.tasks.launch import reap
from seatrial.tasks.notify import notify_task

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, State
    from prefect.flows import Flow

    from seatrial.history.store import Store

log = logging.getLogger("seatrial.qualify")

_WAIT_S = 60.0  # for another run on the cluster; the next pass comes within the hour

NodeName = Annotated[str, Field(min_length=1, max_length=255)]


def reap_after_crash(
    flow: "Flow[..., object]", flow_run: "FlowRun", state: "State[object]"
) -> None:
    """Take down the nodes of a pass whose process died, also those of its tests."""
    reap(platform_for(load_cluster(Path(flow_run.parameters["cluster"]))))


def _name() -> str:
    return f"{Path(current.parameters['cluster']).stem} qualify"


@flow(
    name="seatrial-qualify",
    flow_run_name=_name,
    validate_parameters=True,
    on_crashed=[reap_after_crash],
    on_cancellation=[reap_after_crash],
)
def qualify(
    cluster: Annotated[str, Field(min_length=1)],
    nodes: list[NodeName] | None = None,
    idle: bool = True,
    gated: bool = True,
    at_once: AtOnce | None = None,
    max_age_days: Days | None = None,
    notify: bool = True,
    watch: bool = False,
) -> "State[RunResult] | State[Exception]":
    """Test idle nodes and those at the gate, and let them in or keep them out.

    Args:
        cluster: Path of the cluster file, which must have the section `qualify`.
        nodes: Names of the nodes to test; all that are due when empty.
        idle: Whether idle nodes are tested that were not for long enough.
        gated: Whether nodes that wait at the gate are tested.
        at_once: Nodes of one job; the cluster file's when empty.
        max_age_days: Days within which every node is tested; the cluster file's when empty.
        notify: Whether alerts are sent, if they are configured.
        watch: Whether the pass waits for due nodes to become idle, for 50 minutes at most.
    """
    if deployment.id:
        end_with_parent()
    try:
        loaded = load_cluster(Path(cluster))
        settings = settings_of(loaded, cluster, at_once, max_age_days)
        selection = Selection(tuple(nodes or ()), idle, gated, watch)
        add_tags(cluster_tag(loaded.name))
        with (
            first_signal_alone(is_served=bool(deployment.id)),
            forward_logs(secrets_of(loaded)),
            open_store() as store,
        ):
            result = Pass(loaded, settings, node_service(loaded), store).run(selection, notify)
            show_verdict(result)
    except Exception as error:  # Failed would say that the cluster is bad
        return crashed_state(error)
    # Its tests say what was compared
    return state_of(result, message=f"{result.verdict.value}: {result.reason}")


def settings_of(
    cluster: Cluster, file: str, at_once: int | None, max_age_days: float | None
) -> Qualify:
    """Return the section `qualify`, with what is given in its place.

    Raises InputError where the file has none.
    """
    if cluster.qualify is None:
        raise InputError(f"{file}: qualify: is missing; its fields are in docs/qualify.md")
    overrides = {"at_once": at_once, "max_age_days": max_age_days}
    return cluster.qualify.model_copy(
        update={name: value for name, value in overrides.items() if value is not None}
    )


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over a cluster, with the history that it reads and its tests write."""

    cluster: Cluster
    settings: Qualify
    service: NodeService
    store: "Store"

    def run(self, selection: Selection, notify: bool) -> RunResult:
        """Test, act, publish the coverage, and send alerts."""
        started = now()
        at_work = cycle.Cluster(self.service, self.settings, self._test, self._tests, now, _wait)
        outcome = cycle.run_pass(at_work, selection)
        run_id = run_id_of(UUID(current.id), current.scheduled_start_time or started)
        result = pass_result(run_id, self.cluster.name, started, now(), outcome, selection)
        for line in result.notes:
            log.info("%s", line)
        at = now()
        after = standing(self.cluster, self.settings, self.service, self.store, at)
        for line in after.coverage.lines():
            log.info("%s", line)
        if target := target_of_environment():
            try:
                publish_coverage(self.cluster.name, after.coverage, at, target)
            except OSError as error:  # the result of the pass still counts
                log.warning("metrics: %s", error)
        if notify:  # about all standing faults, not only those of this pass
            alert = standing_result(result, after.nodes, outcome, after.evidence, after.coverage)
            notify_task(alert, self.cluster, self.store, None)
        return result

    def _tests(self) -> list[NodeTest]:
        return self.store.node_tests(self.cluster.name, now() - REMEMBERED)

    def _test(self, suite: str, nodes: Sequence[ServiceNode]) -> list[NodeTest]:
        """Run the suite on these nodes alone, and return the test of each node."""
        names = tuple(node.name for node in nodes)
        taken = Taken(names, tuple(node.name for node in nodes if node.state in ("gated", "out")))
        started = now()
        run_id = run_id_of(uuid4(), started)
        folder = writable((Path("runs") / run_id).absolute(), "out")
        set_aside(folder)
        described = self.service.take(names)
        run = Run(
            run_id, described, load_suite(suite), folder, day=started.toordinal(), taken=taken
        )
        introduce(run)
        log.info("%s of %s, run %s ...", suite, ", ".join(names), run_id)
        with at_work(run):
            result = run_chain(run, notify=False, rebuild=False, wait_s=_WAIT_S)
        log.info("%s of %s: %s: %s", suite, ", ".join(names), result.verdict.value, result.reason)
        tests = list(node_tests_of(result))
        silent = unplaced(
            result, [name for name in names if name not in {test.node for test in tests}]
        )
        self.store.add_node_tests(silent)
        return tests + silent


def _wait(pause: timedelta) -> None:
    time.sleep(pause.total_seconds())


def unplaced(result: RunResult, names: Sequence[str]) -> list[NodeTest]:
    """Return the tests of nodes that never came up, which the run has no record of."""
    code = result.reason.code or "no-node"
    ended = result.finished
    return [
        NodeTest(result.run_id, name, result.cluster, result.suite, ended, result.verdict, code)
        for name in names
    ]
