"""Which nodes still answer and reach the others, asked after something broke."""

import logging
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from seatrial.checks.connectivity.findings import Findings
from seatrial.checks.connectivity.stages import contact_nodes, settings_of, try_pairs
from seatrial.checks.repeated import Repeated
from seatrial.config.run import Run
from seatrial.model.errors import LaunchError
from seatrial.model.reason import identity, join, placed
from seatrial.model.result import Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.node_setup import NodeConnection
from seatrial.text.hostlist import host_list

log = logging.getLogger("seatrial.connectivity")

_ENDED_EARLY = (Verdict.FAIL, Verdict.INCONCLUSIVE)


@dataclass(frozen=True, slots=True)
class RollCall:
    """Who still answers and reaches the others: the testbed without those that do not.

    `suspects` are to blame; of the others the platform itself says why they went (preempted, deleted). `problems` names
    all of them.
    """

    testbed: Testbed
    suspects: tuple[Suspect, ...] = ()
    problems: tuple[str, ...] = ()

    def reason(self, broken: str) -> str:
        """Why what `broken` says has happened; where nobody is to blame, the platform's reason weighs most."""
        return join((broken, *self.problems) if self.suspects else (*self.problems, broken))


def roll_call(run: Run, testbed: Testbed) -> RollCall:
    """Ask every node once more, after something broke: a node or a link may have died since connectivity was tried."""
    findings = Findings(testbed)
    timeout_s = settings_of(run).timeout_s
    contacts: dict[str, NodeConnection] = {}
    try:
        contacts = contact_nodes(findings, timeout_s)
        if len(findings.testbed.nodes) > 1:
            try_pairs(findings, contacts, timeout_s)
    except LaunchError as error:
        log.warning("nobody can be asked whether they are still there: %s", error)
        return RollCall(testbed)
    finally:
        for contact in contacts.values():
            contact.transport.close()
    return _excused(testbed, findings)


def _excused(testbed: Testbed, findings: Findings) -> RollCall:
    by_name = {node.name: node for node in testbed.nodes}
    excuses = {
        suspect.name: blameless_reason
        for suspect in findings.suspects
        if suspect.name in by_name and (blameless_reason := testbed.blameless_reason(by_name[suspect.name]))
    }
    blamed = tuple(suspect for suspect in findings.suspects if suspect.name not in excuses)
    problems = [
        problem for problem in (*findings.problems, *findings.doubts) if problem.partition(":")[0] not in excuses
    ]
    return RollCall(findings.testbed, blamed, (*problems, *_placed(excuses)))


def _placed(excuses: Mapping[str, str]) -> list[str]:
    """Each reason once, with the nodes that it holds for: a job that ends takes all of its nodes away."""
    nodes_by_reason: dict[Hashable, list[str]] = {}
    for name, why in excuses.items():
        nodes_by_reason.setdefault(identity(why), []).append(name)
    return [placed(host_list(sorted(names)), excuses[names[0]]) for names in nodes_by_reason.values()]


def conclude_repeat(run: Run, testbed: Testbed, repeated: Repeated, verdict: Verdict, reason: str) -> None:
    """Add to `repeated` what one repeat came to, and the nodes that are gone if it did not get through."""
    now = roll_call(run, testbed) if verdict in _ENDED_EARLY or repeated.over else None
    if now and now.problems:
        # Nodes that were taken away on purpose are no failure of the cluster.
        verdict = Verdict.FAIL if now.suspects else Verdict.INCONCLUSIVE
        reason = now.reason(reason)
        repeated.suspects += now.suspects
        repeated.over = True
    repeated.broke(verdict, reason)
