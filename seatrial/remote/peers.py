"""What nodes see of each other: whose sshd each of them reaches, and where a login from one to another works."""

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress

from seatrial.model.reason import Reason
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.answers import PeerAnswer, printable, read_answer
from seatrial.remote.command import run_command
from seatrial.remote.node_setup import NodeConnection, standard_library_program
from seatrial.remote.reach_program import reach_request, reach_timeout_s, unreached

LOGINS_AT_ONCE = 32  # ssh processes on one node
_SPARE_S = 10  # besides the waiting: a loaded machine that starts Python


def reach_peers(testbed: Testbed, contact: NodeConnection, peers: Sequence[Node], timeout_s: float) -> dict[str, str]:
    """The peers whose sshd sends no banner to the contacted node: why, by name. Nobody logs in.

    Raises RemoteError where the node does not say it.
    """
    done = run_command(
        contact.transport,
        shlex.join(standard_library_program(testbed, "reach.py")),
        stdin=json.dumps(reach_request(peers, timeout_s)).encode(),
        timeout_s=reach_timeout_s(peers, timeout_s),
    )
    return unreached(done.output.splitlines(), peers)


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
