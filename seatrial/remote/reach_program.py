"""What the probe reach.py is asked on a node, and what its answer says."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from seatrial.model.errors import RemoteError
from seatrial.model.reason import Reason
from seatrial.model.testbed import Node
from seatrial.remote.answers import ReachAnswer, Unreached, read_answer

CONNECTIONS_AT_ONCE = 128  # TCP connections that one node has open to its peers
_SPARE_S = 10  # besides the waiting: a loaded machine that starts Python
_REASONS: Mapping[Unreached, tuple[str, dict[str, str]]] = {
    "refused": ("ssh-refused", {}),
    "timeout": ("ssh-timeout", {}),
    "no-route": ("ssh-unreachable", {"problem": "no route to host"}),
    "closed": ("ssh-no-server", {"problem": "the connection was closed before the banner"}),
    "other-banner": ("ssh-no-server", {"problem": "the banner is not SSH-2.0"}),
    "max-startups": ("ssh-max-startups", {}),
    "local": ("node-cannot-connect", {}),
}


def reach_request(peers: Sequence[Node], timeout_s: float) -> dict[str, Any]:
    """The probe's standard input."""
    addresses = [[peer.address, peer.port] for peer in peers]
    return {"peers": addresses, "timeout_s": timeout_s, "parallel": CONNECTIONS_AT_ONCE}


def reach_timeout_s(peers: Sequence[Node], timeout_s: float) -> float:
    """How long the probe takes at most, if no peer answers."""
    return timeout_s * -(-len(peers) // CONNECTIONS_AT_ONCE) + _SPARE_S


def unreached(lines: Iterable[str], peers: Sequence[Node]) -> dict[str, str]:
    """The peers whose sshd sends no banner to the node that printed the lines: why, by name. Raises RemoteError."""
    for line in lines:
        with suppress(ValueError):  # what else a login prints
            answer = read_answer(ReachAnswer, line)
            if answer.tried == len(peers):
                reason_by_position = {place: reason for reason, places in answer.failed.items() for place in places}
                return {peers[place].name: _reason(peers[place], why) for place, why in reason_by_position.items()}
    raise RemoteError(Reason.of("peers-not-tried"))


def _reason(peer: Node, unreached: Unreached) -> str:
    code, values = _REASONS[unreached]
    return Reason.of(code, address=peer.address, port=peer.port, **values)
