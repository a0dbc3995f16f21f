"""Nodes that their platform took away in the middle of a check: they answer no more, and are not to blame."""

from dataclasses import replace

from seatrial.model.reason import Reason, join
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict

# Codes of nodes and links that could not be reached.
_UNREACHED = frozenset({
    "link-ssh-failed", "node-ssh-failed", "ssh-connection-lost", "ssh-handshake", "ssh-no-server", "ssh-refused",
    "ssh-session", "ssh-timeout", "ssh-unreachable",
})  # fmt: skip


def excused(check: Check, testbed: Testbed) -> Check:
    """The check without suspects that were taken away, and inconclusive if no other is left."""
    if check.verdict is not Verdict.FAIL:
        return check
    excuses = [_excuse(suspect, testbed) for suspect in check.suspects]
    left = tuple(suspect for suspect, excuse in zip(check.suspects, excuses, strict=True) if not excuse)
    if len(left) == len(check.suspects):
        return check
    if left:
        return replace(check, reason=join((check.reason, *excuses)), suspects=left)
    return replace(check, verdict=Verdict.INCONCLUSIVE, reason=join(excuses), suspects=())


def _excuse(suspect: Suspect, testbed: Testbed) -> Reason | None:
    """Why the platform took away the node, or an end of the link; None if it did not, or the node was reached."""
    if suspect.evidence.code not in _UNREACHED:
        return None
    nodes = [node for node in testbed.nodes if node.name in suspect.name.split("--")]
    return next(filter(None, map(testbed.blameless_reason, nodes)), None)
