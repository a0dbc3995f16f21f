"""Run the phases of a campaign until its time is over, without the nodes that break."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from seatrial.config.cluster import Cluster
from seatrial.config.run import Suite
from seatrial.history.campaigns import CampaignState, LeftOut, PhaseRun
from seatrial.model.reason import Reason
from seatrial.model.result import SURE, RunResult
from seatrial.model.verdict import Verdict
from seatrial.text.words import some_of

log = logging.getLogger("seatrial.campaign")

PAUSES_S = (10.0, 60.0, 300.0)  # waits after consecutive phases that did not count
# Codes of nodes that are only slow
_SLOW = frozenset({"tcp-node-slow", "tcp-link-slow", "gpu-slowed-down"})
# Codes of runs whose scheduler took the nodes away.
_TAKEN = frozenset(
    {"pod-preempted", "slurm-job-cancelled", "slurm-job-gone", "slurm-job-timed-out"}
)
# Steps of a run during which no node is up.
_WITHOUT_NODES = frozenset(
    {"startup", "image", "launch", "teardown", "record", "upload", "metrics", "notify"}
)

# Takes the cluster of the remaining nodes, the suite and the run id
RunPhase = Callable[[Cluster, Suite, str], RunResult]


@dataclass(slots=True)
class Loop:
    """The loop of a campaign.

    `keep` saves each state, `new_run_id` returns the next run id, `wait` sleeps, and `notes` are
    added to the campaign's result.
    """

    state: CampaignState
    cluster: Cluster
    suites: Sequence[Suite]
    run_phase: RunPhase
    keep: Callable[[CampaignState], None]
    new_run_id: Callable[[], str]
    wait: Callable[[float], None] = time.sleep
    notes: list[Reason] = field(default_factory=list)

    def run(self) -> Reason | None:
        """Run phases until the time is over; return the reason if the campaign cannot go on, else
        None.

        A phase that did not count is tried again after each of `PAUSES_S`, unless nodes broke in
        it.
        """
        tries = 0
        while not self.state.is_over:
            before = len(self.state.left_out)
            cluster = self._cluster()
            if cluster is None:
                nodes = self.cluster.nodes
                return Reason.of("campaign-too-few-nodes", left=nodes - before, of=nodes)
            suite = self.suites[len(self.state.counted) % len(self.suites)]  # suites take turns
            result = self._phase(cluster.at(self.state.spent_s), suite)
            if self.state.phases[-1].seconds or len(self.state.left_out) > before:
                tries = 0
                continue
            if tries == len(PAUSES_S):
                return Reason.of("campaign-stuck", tries=tries + 1, reason=result.reason)
            log.warning(
                "the phase counts for nothing: %s; the next try is in %.0f s",
                result.reason,
                PAUSES_S[tries],
            )
            self.wait(PAUSES_S[tries])
            tries += 1
        return None

    @property
    def is_over(self) -> bool:
        """Whether its time is over, or too few nodes are left to go on."""
        return self.state.is_over or self._cluster() is None

    def _cluster(self) -> Cluster | None:
        """Return the cluster of the remaining nodes; None if there are too few.

        One node may always be left out, and up to half of the nodes.
        """
        names = [out.node for out in self.state.left_out]
        if not names:
            return self.cluster
        if len(names) > max(1, self.cluster.nodes // 2):
            return None
        # A platform that cannot choose nodes goes on with all of them
        return self.cluster.without(names) or self.cluster

    def _phase(self, cluster: Cluster, suite: Suite) -> RunResult:
        """Run one phase and record its result.

        The state is saved before and after, so that a killed campaign can resume from it.
        """
        run_id = self.new_run_id()
        self._keep(self.state.begin(suite.name, run_id))
        result = self.run_phase(cluster, suite, run_id)
        began_s = self.state.phases[-1].began_s
        phase = PhaseRun(
            suite=suite.name,
            run_id=run_id,
            began_s=began_s,
            seconds=counted_s(result),
            verdict=result.verdict,
            code=result.reason.code,
        )
        self._keep(self.state.end(phase, self._lost(result, phase)))
        for line in self.state.lines():
            log.info("%s", line)
        return result

    def _keep(self, state: CampaignState) -> None:
        """Set the current state, and save it."""
        self.state = state
        self.keep(state)

    def _lost(self, result: RunResult, phase: PhaseRun) -> list[LeftOut]:
        """Return the nodes to leave out from now on; none if so many broke at once that they share
        a cause.
        """
        known = {out.node for out in self.state.left_out}
        lost = {node: code for node, code in broken_nodes(result).items() if node not in known}
        nodes = self.cluster.nodes - len(known)
        if len(lost) > max(1, nodes // 3):
            note = Reason.of(
                "campaign-common-cause", lost=len(lost), of=nodes, nodes=some_of(sorted(lost))
            )
            self.notes.append(note)
            log.warning("%s", note)
            return []
        since_s = phase.began_s + phase.seconds
        return [LeftOut(node, result.run_id, since_s, code) for node, code in sorted(lost.items())]


def counted_s(result: RunResult) -> float:
    """Return the seconds of the run that count for the campaign: 0 if its nodes were taken away
    before it could conclude.
    """
    was_taken = result.verdict is Verdict.INCONCLUSIVE and result.reason.code in _TAKEN
    if was_taken:
        return 0.0
    return held_s(result)


def held_s(result: RunResult) -> float:
    """Return for how many seconds the nodes of the run were up, by a monotonic clock; 0 if none
    came up.

    It is the sum of its steps, except those during which no node is up.
    """
    if not result.nodes:
        return 0.0
    return sum(seconds for step, seconds in result.timings.items() if step not in _WITHOUT_NODES)


def broken_nodes(result: RunResult) -> dict[str, str | None]:
    """Return the nodes that a check could not use or that gave wrong results, each with its first
    code.

    A slow node is not broken. A GPU counts as its node.
    """
    broken: dict[str, str | None] = {}
    for check in result.checks:
        for suspect in check.raw.suspects:
            code = suspect.evidence.code
            if suspect.kind not in ("node", "gpu") or suspect.confidence < SURE:
                continue
            verdict = suspect.verdict or check.raw.verdict
            if verdict in (Verdict.FAIL, Verdict.CORRUPT) and code not in _SLOW:
                broken.setdefault(suspect.name.partition("/")[0], code)
    return broken


def resumed(state: CampaignState) -> CampaignState:
    """Return the state with the phase that was killed with the campaign as inconclusive, with 0
    seconds.
    """
    phases = []
    for phase in state.phases:
        ended = phase
        if not phase.verdict:
            ended = replace(phase, verdict=Verdict.INCONCLUSIVE, code="run-killed", seconds=0.0)
        phases.append(ended)
    return replace(state, phases=tuple(phases))
