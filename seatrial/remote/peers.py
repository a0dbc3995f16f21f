"""What nodes see of each other: whose sshd each of them reaches, and where a login from one to another works."""

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress

from seatrial.model.errors import RemoteError
from seatrial.model.reason import Reason
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.answers import PeerAnswer, ReachAnswer, Unreached, printable, read_answer
from seatrial.remote.command import run_command
from seatrial.remote.node_setup import NodeConnection, standard_library_program

CONNECTIONS_AT_ONCE = 128  # TCP connections that one node has open to its peers
LOGINS_AT_ONCE = 32  # ssh processes on one node
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


def reach_peers(testbed: Testbed, contact: NodeConnection, peers: Sequence[Node], timeout_s: float) -> dict[str, str]:
    """The peers whose sshd sends no banner to the contacted node: why, by name. Nobody logs in.

    Raises RemoteError where the node does not say it.
    """
    request = {
        "peers": [[peer.address, peer.port] for peer in peers],
        "timeout_s": timeout_s,
        "parallel": CONNECTIONS_AT_ONCE,
    }
    rounds = -(-len(peers) // CONNECTIONS_AT_ONCE)
    done = run_command(
        contact.transport,
        shlex.join(standard_library_program(testbed, "reach.py")),
        stdin=json.dumps(request).encode(),
        timeout_s=timeout_s * rounds + _SPARE_S,
    )
    for line in done.output.splitlines():
        with suppress(ValueError):  # what else a login prints
            answer = read_answer(ReachAnswer, line)
            if answer.tried == len(peers):
                reason_by_position = {place: reason for reason, places in answer.failed.items() for place in places}
                return {peers[place].name: _reason(peers[place], why) for place, why in reason_by_position.items()}
    raise RemoteError(Reason.of("peers-not-tried"))


def _reason(peer: Node, unreached: Unreached) -> str:
    code, values = _REASONS[unreached]
    return Reason.of(code, address=peer.address, port=peer.port, **values)


def log_in_to_peers(
    testbed: Testbed, contact: NodeConnection, peers: Sequence[Node], timeout_s: float
) -> dict[str, str]:
    """SSH from the contacted node to each of `peers`, with host key and key: the error by peer name, "" if none."""
    request = {
        "peers": [{"name": peer.name, "address": peer.address, "port": peer.port} for peer in peers],
        "timeout_s": timeout_s,
        "parallel": LOGINS_AT_ONCE,
    }
    rounds = -(-len(peers) // LOGINS_AT_ONCE)
    done = run_command(
        contact.transport,
        shlex.join(standard_library_program(testbed, "pairs.py")),
        stdin=json.dumps(request).encode(),
        timeout_s=timeout_s * rounds + _SPARE_S,
    )
    answers = {peer.name: str(Reason.of("peers-not-tried")) for peer in peers}
    for line in done.output.splitlines():
        with suppress(ValueError):  # what else a login prints, or a line that was cut off
            answer = read_answer(PeerAnswer, line)
            if answer.peer in answers:
                answers[answer.peer] = printable(answer.error)
    return answers
