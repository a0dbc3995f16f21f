"""How nodes see each other: which sshd they reach, which logins work, and TCP rates
between them.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from seatrial.model.errors import FloodError, NodesError, RemoteError
from seatrial.model.reason import Reason, placed, uncoded
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.answers import (
    PeerAnswer,
    ReachAnswer,
    Unreached,
    printable,
    read_answer,
)
from seatrial.remote.line_probe import StreamProbe
from seatrial.remote.node_setup import NodeConnection, printed, standard_library_program
from seatrial.remote.ssh import fan_out, on_each

LOGINS_AT_ONCE = 32  # parallel ssh processes on one node
_SPARE_S = 10  # additional time to start Python on a loaded machine
CONNECTIONS_AT_ONCE = 128  # parallel TCP connections of one node to its peers
_REASONS: Mapping[Unreached, tuple[str, dict[str, str]]] = {
    "refused": ("ssh-refused", {}),
    "timeout": ("ssh-timeout", {}),
    "no-route": ("ssh-unreachable", {"problem": "no route to host"}),
    "closed": ("ssh-no-server", {"problem": "the connection was closed before the banner"}),
    "other-banner": ("ssh-no-server", {"problem": "the banner is not SSH-2.0"}),
    "max-startups": ("ssh-max-startups", {}),
    "local": ("node-cannot-connect", {}),
}
log = logging.getLogger("seatrial.streams")


def reach_peers(
    testbed: Testbed, contact: NodeConnection, peers: Sequence[Node], timeout_s: float
) -> dict[str, Reason]:
    """Return the reason, by name, for each peer whose sshd sends no banner to the node, without
    logging in.

    `timeout_s` is for one peer. Raises RemoteError if the node does not report the result.
    """
    addresses = [[peer.address, peer.port] for peer in peers]
    request = {"peers": addresses, "timeout_s": timeout_s, "parallel": CONNECTIONS_AT_ONCE}
    # The duration if no peer answers
    longest_s = timeout_s * -(-len(peers) // CONNECTIONS_AT_ONCE) + _SPARE_S
    output = printed(testbed, contact.transport, "reach.py", longest_s, request)
    return unreached(output.splitlines(), peers)


def log_in_to_peers(
    testbed: Testbed, contact: NodeConnection, peers: Sequence[Node], timeout_s: float
) -> dict[str, Reason]:
    """Log in by SSH from the node to each peer, checking its host key.

    Return the error by peer name, empty for a success; a peer without an answer counts as not
    tried.
    """
    request = {
        "peers": [
            {"name": peer.name, "address": peer.address, "port": peer.port} for peer in peers
        ],
        "timeout_s": timeout_s,
        "parallel": LOGINS_AT_ONCE,
    }
    rounds = -(-len(peers) // LOGINS_AT_ONCE)
    longest_s = timeout_s * rounds + _SPARE_S
    output = printed(testbed, contact.transport, "pairs.py", longest_s, request)
    answers = {peer.name: Reason.of("peers-not-tried") for peer in peers}
    for line in output.splitlines():
        with suppress(ValueError):  # ignore other output of the login, and incomplete lines
            answer = read_answer(PeerAnswer, line)
            if answer.peer in answers:
                answers[answer.peer] = uncoded(printable(answer.error))
    return answers


def unreached(lines: Iterable[str], peers: Sequence[Node]) -> dict[str, Reason]:
    """Return the reason, by name, for each peer whose sshd sent no banner, from the output of
    reach.py.

    Raises RemoteError without an answer.
    """
    for line in lines:
        with suppress(ValueError):  # ignore other output of the login
            answer = read_answer(ReachAnswer, line)
            if answer.tried == len(peers):
                reasons = {}
                for why, places in answer.failed.items():
                    code, values = _REASONS[why]
                    for peer in (peers[place] for place in places):
                        at = {"address": peer.address, "port": peer.port}
                        reasons[peer.name] = Reason.of(code, **at, **values)
                return reasons
    raise RemoteError.of("peers-not-tried")


def try_streams(
    testbed: Testbed,
    contacts: Mapping[str, NodeConnection],
    pairs: Sequence[tuple[str, str]],
    timeout_s: float,
) -> dict[tuple[str, str], float]:
    """Return the TCP rate in MB/s (1e6 bytes) between the nodes of each pair, in both directions,
    all pairs at once.

    A pair that cannot be measured is left out, with a warning. Raises NodesError naming nodes that
    flood their output.
    """
    by_name = testbed.by_name
    new = [
        node
        for node in testbed.nodes
        if node.name in contacts and contacts[node.name].streams is None
    ]
    program = standard_library_program(testbed, "stream.py")

    def start(node: Node) -> StreamProbe:
        return StreamProbe(contacts[node.name].transport, [*program, node.address], timeout_s)

    started = on_each(new, start, at_once=fan_out(testbed))
    for name, probe in started.items():
        contacts[name].streams = probe
    _raise_floods(started)
    peer_of = dict(pairs)

    def measure(node: Node) -> tuple[float, float]:
        peer = by_name[peer_of[node.name]]
        own, of_peer = (_running(name, contacts[name]) for name in (node.name, peer.name))
        return own.measure(peer, of_peer.listener, timeout_s)

    answers = on_each([by_name[name] for name in peer_of], measure, at_once=fan_out(testbed))
    _raise_floods(answers)
    streams = {}
    for name, answer in answers.items():
        peer = peer_of[name]
        if isinstance(answer, RemoteError):
            log.warning("%s to %s: throughput cannot be measured: %s", name, peer, answer)
        else:
            streams[name, peer], streams[peer, name] = answer
    return streams


def _raise_floods(answers: Mapping[str, object]) -> None:
    """Raise NodesError if probes flooded their output, with their nodes."""
    if floods := {
        name: answer.reason for name, answer in answers.items() if isinstance(answer, FloodError)
    }:
        raise NodesError(floods)


def _running(name: str, contact: NodeConnection) -> StreamProbe:
    """Return the running probe of a node. Raises RemoteError, naming the node, if it has not
    started.
    """
    if isinstance(contact.streams, RemoteError):
        raise RemoteError(placed(name, contact.streams.reason))
    assert contact.streams is not None
    return contact.streams
