"""A campaign as a part of the flow `check`: its phases are ordinary runs, and its own result is one
more.
"""

import hashlib
import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from seatrial.campaign.drift import DRIFT, drift_check, other_machines, phase_numbers
from seatrial.campaign.loop import Loop, resumed
from seatrial.campaign.result import campaign_check
from seatrial.campaign.rises import hourly, minutes_check, series_of
from seatrial.checks.suites import Campaign
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run, Suite, set_aside, writable
from seatrial.flows.at_work import at_work
from seatrial.flows.serving.ui import show_campaign
from seatrial.history.campaigns import CampaignState
from seatrial.model.errors import MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.result import RunResult, now
from seatrial.runs.cluster_lock import FileLock
from seatrial.runs.run_state import RunState
from seatrial.system.disk_reserve import reserved

if TYPE_CHECKING:
    from seatrial.history.store import Store

log = logging.getLogger("seatrial.campaign")

_STALE = timedelta(days=7)  # since a campaign was last at work; after that it begins anew

Chain = Callable[[Run], RunResult]
Publish = Callable[[RunState], RunResult]


def run_campaign(
    run: Run,
    campaign: Campaign,
    store: "Store",
    chain: Chain,
    publish: Publish,
    new_run_id: Callable[[], str],
) -> RunResult:
    """Run the phases that are left, each by `chain`, then publish the campaign's own result.

    A campaign that was killed goes on, if it was seen within `_STALE`. The end is stored after the
    result is published: a campaign that is killed in between publishes again. Raises InputError for
    a phase with a wrong suite, MissingError if it is at work, SeatrialError without a history.
    """
    suites = campaign.suites()

    def keep(state: CampaignState) -> None:
        try:
            store.keep_campaign(replace(state, seen=now()))
        except SeatrialError as error:  # the next state is kept as well
            log.warning("%s", error)
        show_campaign(run.cluster.name, state.lines())

    def phase(cluster: Cluster, suite: Suite, run_id: str) -> RunResult:
        """Return the result of a phase; inconclusive if it could not even begin, as on a full
        disk.

        Other errors end the campaign.
        """
        out = run.out.parent / run_id
        part = Run(run_id, cluster, suite, out, day=now().toordinal(), every_s=campaign.every_s)
        try:
            set_aside(writable(out, "out"))
            with reserved(out, cluster.nodes), at_work(part):
                return chain(part)
        except (SeatrialError, OSError) as error:
            failed = RunState(part)
            failed.add_failure("run", error)
            return failed.result()

    with closing(FileLock(f"{run.cluster.name}.{run.suite.name}", run.run_id)) as lock:
        if not lock.take():  # its state is that of a campaign at work, not of one that was killed
            raise MissingError.of("cluster-taken", holds=lock.holder())
        state = _state(run, campaign.seconds, store)
        loop = Loop(state, run.cluster, suites, phase, keep, new_run_id)
        stopped = loop.run()
        result = publish(_concluded(run, loop, stopped, store))
        if loop.is_over:
            keep(replace(loop.state, ended=True))
    return result


def _state(run: Run, goal_s: float, store: "Store") -> CampaignState:
    """Return the state of the campaign that was killed, if it had the same plan; else a new one of
    `goal_s` seconds.
    """
    suite_bytes = run.suite.model_dump_json().encode()
    plan = hashlib.sha256(suite_bytes).hexdigest()
    cluster = run.cluster.name
    suite = run.suite.name
    earlier = store.campaign(cluster, suite)
    goes_on = earlier and earlier.plan == plan and not earlier.ended
    if earlier and goes_on and now() - earlier.seen < _STALE:
        hours = earlier.spent_s / 3600
        log.info("campaign %s goes on at hour %.2f", earlier.campaign_id, hours)
        return resumed(earlier)
    return CampaignState(run.run_id, cluster, suite, plan, goal_s, now(), now())


def _concluded(run: Run, loop: Loop, stopped: Reason | None, store: "Store") -> RunState:
    """Return the campaign as a run: one check over all phases, and the nodes of the first phase
    that counts.

    An error in the search for drift becomes a check of its own. `stopped` says why the campaign
    could not go on.
    """
    state = loop.state
    run_ids = [phase.run_id for phase in state.phases]
    rows = {row.run_id: row for row in store.runs_by_id(run_ids)}
    run_state = RunState(run, state.started)
    first = None
    if state.counted:
        first = store.result(state.counted[0].run_id)
    if first:
        run_state.nodes = {str(node["name"]): dict(node) for node in first.nodes}
    run_state.add(campaign_check(state, rows, stopped, loop.notes))
    with run_state.attempt(DRIFT):
        others = other_machines(state, store)
        metrics = store.minute_metrics(run_ids)
        minutes = [series_of(state, store, metric, others) for metric in metrics]
        check, notes = minutes_check(minutes)
        run_state.notes += notes
        run_state.add(check)
        numbers = phase_numbers(state, store, others)
        by_hour = [*filter(None, map(hourly, minutes))]
        one_machine = bool(first and first.setup and first.setup.one_machine)
        run_state.add(drift_check(numbers, one_machine=one_machine, minutes=by_hour))
    run_state.finished = now()
    return run_state
