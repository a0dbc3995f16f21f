"""What TCP carries between nodes: the probe stream.py on one of each pair, which starts its other part over SSH."""

import json
import logging
import shlex
from collections.abc import Mapping, Sequence

from seatrial.model.errors import FloodError, NodesError, RemoteError
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.answers import StreamAnswer, StreamError, printable, read_answer
from seatrial.remote.command import run_command
from seatrial.remote.node_setup import NodeConnection, standard_library_program
from seatrial.remote.ssh import fan_out, on_each
from seatrial.text.lines import last_line

log = logging.getLogger("seatrial.streams")

STREAM_BYTES = 64 * 1024**2  # per direction, or STREAM_S where that takes longer
SHARED_STREAM_BYTES = 8 * 1024**2  # of streams that wait for each other on the cores of one machine
STREAM_S = 0.5
_STREAM_SPARE_S = 20  # what stream.py may take besides the connection: its waits for first bytes, a loaded machine


def try_streams(
    testbed: Testbed, contacts: Mapping[str, NodeConnection], pairs: Sequence[tuple[str, str]], timeout_s: float
) -> dict[tuple[str, str], float]:
    """MB/s (1e6 bytes) that TCP carries between the nodes of each pair, both ways, all pairs at once.

    A pair that cannot be measured is left out, with a warning. Raises NodesError naming the nodes that flood.
    """
    by_name = {node.name: node for node in testbed.nodes}
    peer_of = dict(pairs)
    crowded = testbed.shared_cores is not None and len(pairs) > testbed.shared_cores
    max_bytes = SHARED_STREAM_BYTES if crowded else STREAM_BYTES
    answers = on_each(
        [by_name[name] for name in peer_of],
        lambda node: _try_stream(testbed, contacts[node.name], by_name[peer_of[node.name]], max_bytes, timeout_s),
        at_once=fan_out(testbed),
    )
    floods = {name: answer.reason for name, answer in answers.items() if isinstance(answer, FloodError)}
    if floods:
        raise NodesError(floods)
    streams = {}
    for name, answer in answers.items():
        peer = peer_of[name]
        if isinstance(answer, RemoteError):
            log.warning("%s to %s: throughput cannot be measured: %s", name, peer, answer)
        else:
            streams[name, peer], streams[peer, name] = answer
    return streams


def _try_stream(
    testbed: Testbed, contact: NodeConnection, peer: Node, max_bytes: int, timeout_s: float
) -> tuple[float, float]:
    """MB/s to `peer` and from it. Raises RemoteError."""
    program = standard_library_program(testbed, "stream.py")
    request = {
        "peer": {"address": peer.address, "port": peer.port},
        "serve": shlex.join([*program, "serve", str(max_bytes), str(STREAM_S)]),
        "max_bytes": max_bytes,
        "max_seconds": STREAM_S,
        "timeout_s": timeout_s,
    }
    done = run_command(
        contact.transport,
        shlex.join(program),
        stdin=json.dumps(request).encode(),
        timeout_s=timeout_s + _STREAM_SPARE_S,
    )
    answer = last_line(done.output)
    try:
        streams = read_answer(StreamAnswer, answer)
    except ValueError:
        raise RemoteError(_stream_problem(answer)) from None
    return streams.out.mb_s, streams.in_.mb_s


def _stream_problem(answer: str) -> str:
    try:
        return read_answer(StreamError, answer).error
    except ValueError:
        return printable(answer) or "nothing was printed"
