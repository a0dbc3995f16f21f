"""Nodes that their platform took away during a check: they no longer answer, and are not
to blame.
"""

from collections.abc import Iterable
from dataclasses import replace

from seatrial.model.reason import Reason, join
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict

# Codes of nodes and links that could not be reached, including how the pod at the other end ended.
_UNREACHED = frozenset({
    "container-exited", "link-ssh-failed", "node-facts-timeout", "node-facts-unreadable", "node-probes-not-written",
    "node-ssh-failed", "pod-failed", "ssh-connection-lost", "ssh-handshake", "ssh-host-key", "ssh-key-rejected",
    "ssh-no-server", "ssh-refused", "ssh-session", "ssh-timeout", "ssh-unreachable",
})  # fmt: skip


def excuses(suspects: Iterable[Suspect], testbed: Testbed) -> dict[Suspect, Reason]:
    """Return the platform's reason for each unreachable suspect that it took away; for a link, one
    of its ends.
    """
    nodes = testbed.by_name
    taken = {}
    for suspect in suspects:
        if suspect.evidence.code not in _UNREACHED:
            continue
        reasons = (testbed.blameless_reason(nodes[end]) for end in suspect.nodes if end in nodes)
        reason = next(filter(None, reasons), None)
        if reason:
            taken[suspect] = reason
    return taken


def excused(check: Check, testbed: Testbed) -> Check:
    """Return the check without suspects that the platform took away; inconclusive if no other is
    left.
    """
    taken = excuses(check.suspects, testbed) if check.verdict is Verdict.FAIL else {}
    if not taken:
        return check
    left = tuple(suspect for suspect in check.suspects if suspect not in taken)
    if left:
        return replace(check, reason=join((check.reason, *taken.values())), suspects=left)
    return replace(check, verdict=Verdict.INCONCLUSIVE, reason=join(taken.values()), suspects=())
