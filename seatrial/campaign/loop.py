"""Run the phases of a campaign until its time is over, and leave out nodes that break."""

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

PAUSES_S = (10.0, 60.0, 300.0)  # after phases in a row that count for nothing
# Codes of nodes that are there, and slow
_SLOW = frozenset({"tcp-node-slow", "tcp-link-slow", "gpu-slowed-down"})
# Codes of runs whose scheduler took the nodes away.
_TAKEN = frozenset(
    {"pod-preempted", "slurm-job-cancelled", "slurm-job-gone", "slurm-job-timed-out"}
)
# Steps of a run in which no node is up.
_WITHOUT_NODES = frozenset(
    {"startup", "image", "launch", "teardown", "record", "upload", "metrics", "notify"}
)

# The cluster with the nodes that are left, the suite, the run id
RunPhase = Callable[[Cluster, Suite, str], RunResult]


@dataclass(slots=True)
class Loop:
    """A campaign at work.

    `keep` saves each state, `new_run_id` names the next run, `wait` sleeps, and `notes` are for the
    campaign's result.
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
        """Run phases until the time is over; return the reason if the campaign cannot go on.

        A phase that counts for nothing is tried again after each of `PAUSES_S`; one in which nodes
        broke is not such a phase.
        """
        tries = 0
        while not self.state.is_over:
            before = len(self.state.left_out)
            cluster = self._cluster()
            if cluster is None:
                nodes = self.cluster.nodes
                return Reason.of("campaign-too-few-nodes", left=nodes - before, of=nodes)
            suite = self.suites[len(self.state.counted) % len(self.suites)]  # in turn
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

    def _cluster(self) -> Cluster | None:
        """Return the cluster with the nodes that are left; None if they are too few.

        One node may always be left out, of more up to the half.
        """
        names = [out.node for out in self.state.left_out]
        if not names:
            return self.cluster
        if len(names) > max(1, self.cluster.nodes // 2):
            return None
        # A platform that cannot choose goes on with all
        return self.cluster.without(names) or self.cluster

    def _phase(self, cluster: Cluster, suite: Suite) -> RunResult:
        """Run one phase and note what came of it; the state is saved before and after, so that a
        campaign that is killed goes on from there.
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
        """Go on from a state, and save it."""
        self.state = state
        self.keep(state)

    def _lost(self, result: RunResult, phase: PhaseRun) -> list[LeftOut]:
        """Return the nodes to leave out from now on; none if so many broke at once that they share
        a cause.
        """
        known = {out.node for out in self.state.left_out}
        lost = {}
        for node, code in broken_nodes(result).items():
            if node not in known:
                lost[node] = code
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
    """Return seconds that the run had its nodes up, by a clock that does not jump; 0 if none came
    up.

    The sum of its steps, but for those in which no node is up.
    """
    if not result.nodes:
        return 0.0
    return sum(seconds for step, seconds in result.timings.items() if step not in _WITHOUT_NODES)


def broken_nodes(result: RunResult) -> dict[str, str | None]:
    """Return the nodes that a check could not use or that computed wrongly, with the code; a slow
    one is not broken.

    A GPU counts as its node. The first code of a node is its code.
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
    """Return the state in which the phase that was killed with the campaign is inconclusive, with 0
    seconds: what it was up to is not known.
    """
    phases = []
    for phase in state.phases:
        ended = phase
        if not phase.verdict:
            ended = replace(phase, verdict=Verdict.INCONCLUSIVE, code="run-killed", seconds=0.0)
        phases.append(ended)
    return replace(state, phases=tuple(phases))
