"""The first contact with a node: connect, bring the probes, ask what it is and what time it has."""

import json
import logging
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from seatrial.model.errors import FloodError, NodesError, RemoteError
from seatrial.model.reason import Reason, placed
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.answers import Facts, StreamAnswer, StreamError, printable, read_answer
from seatrial.remote.command import run_command
from seatrial.remote.probes import PROBES
from seatrial.remote.reach_program import reach_request, reach_timeout_s, unreached
from seatrial.remote.ssh import HostKeyError, connect, fan_out, on_each
from seatrial.text.lines import last_line

if TYPE_CHECKING:
    import paramiko

log = logging.getLogger("seatrial.contact")

_ATTEMPTS = 3  # sshd drops connections when many arrive at once; only the set-up is tried again
_PAUSE_S = 0.3
FACTS_TIMEOUT_S = 60  # a driver that wakes its GPUs, a cold network home: slow is not broken
STREAM_BYTES = 64 * 1024**2  # per direction, or STREAM_S where that takes longer
SHARED_STREAM_BYTES = 8 * 1024**2  # of streams that wait for each other on the cores of one machine
STREAM_S = 0.5
_SECONDS = re.compile(r"\d{1,12}\.\d{1,9}")  # since the epoch, as date prints them
_STREAM_SPARE_S = 20  # what stream.py may take besides the connection: its waits for first bytes, a loaded machine

_NOT_WRITTEN = 73  # EX_CANTCREAT

# Write the probes, then be one or two of them: Python starts once. Several nodes may share the folder (a network home,
# namespaces of one machine): each file appears whole or not at all.
_INSTALL = f"""
import io, json, os, sys
request = json.load(sys.stdin)
try:
    os.makedirs(request["folder"], exist_ok=True)
    for name, text in request["files"].items():
        path = os.path.join(request["folder"], name)
        new = path + "." + os.urandom(8).hex()
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        os.replace(new, path)
except OSError as problem:
    print(problem)
    sys.exit({_NOT_WRITTEN})
sys.argv[:] = sys.argv[1:]
def run(probe):
    exec(compile(request["files"][os.path.basename(probe)], probe, "exec"), {{"__name__": "__main__"}})
run(sys.argv[0])
if request["reach"]:
    sys.stdin = io.StringIO(json.dumps(request["reach"]))
    run("reach.py")
"""


@dataclass(frozen=True, slots=True)
class NodeConnection:
    """A node that answered.

    `clock_offset_s` is its clock minus ours, known to within `clock_error_s`; `connect_ms` is how long the SSH
    connection took to come up. `reached` is None unless the node was asked for its peers at once; else by peer why it
    does not reach it, "" where it does.
    """

    transport: "paramiko.Transport"
    facts: Mapping[str, Any]
    connect_ms: float
    clock_offset_s: float
    clock_error_s: float
    reached: Mapping[str, str] | None = None

    @property
    def hostname(self) -> str:
        return str(self.facts["hostname"])

    @property
    def versions(self) -> dict[str, str | None]:
        """Version by package: "" where it is not installed, None where the node could not tell."""
        return dict(self.facts["versions"])


def set_up_node(testbed: Testbed, node: Node, timeout_s: float, peers: Sequence[Node] = ()) -> NodeConnection:
    """Connect to `node` with its pinned host key, copy the probes to it and ask for its facts.

    Which of `peers` it reaches is asked by the same program.

    The connection stays open; whoever called closes it. Raises RemoteError naming node and cause.
    """
    started = time.monotonic()
    transport = _connect_patiently(testbed, node, timeout_s)
    connect_ms = (time.monotonic() - started) * 1000
    try:
        facts, reached = _install_and_ask(testbed, node, transport, timeout_s, peers)
        one_clock = testbed.shared_cores is not None  # of the one machine that all nodes are
        offset, error = (0.0, 0.0) if one_clock else _clock(node, transport, timeout_s)
    except BaseException:
        transport.close()
        raise
    return NodeConnection(transport, facts, connect_ms, offset, error, reached)


def _connect_patiently(testbed: Testbed, node: Node, timeout_s: float) -> "paramiko.Transport":
    started = time.monotonic()
    for attempt in range(_ATTEMPTS):
        try:
            return connect(testbed, node, timeout_s)
        except HostKeyError:
            raise
        except RemoteError:
            if attempt == _ATTEMPTS - 1 or time.monotonic() - started >= timeout_s:  # dropped is not silent
                raise
            time.sleep(_PAUSE_S)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _install_and_ask(
    testbed: Testbed, node: Node, transport: "paramiko.Transport", connect_s: float, peers: Sequence[Node]
) -> tuple[Mapping[str, Any], Mapping[str, str] | None]:
    """Write the probes to the node, and run the one that tells its facts and, for `peers`, the one that tries them."""
    reach = reach_request(peers, connect_s) if peers else None
    timeout_s = max(connect_s, FACTS_TIMEOUT_S) + (reach_timeout_s(peers, connect_s) if peers else 0)
    request = json.dumps({"folder": testbed.workdir, "files": _probe_sources(), "reach": reach})
    command = shlex.join([testbed.python, "-c", _INSTALL, f"{testbed.workdir}/facts.py", testbed.mpirun])
    done = run_command(transport, command, stdin=request.encode(), timeout_s=timeout_s)
    lines = done.output.splitlines()
    reached = _reached(lines.pop() if len(lines) > 1 else "", peers) if peers else None
    told = last_line("\n".join(lines))
    answer = printable(told) or "nothing was printed"
    if done.exit_status == 127:
        raise RemoteError(placed(node.name, Reason.of("node-python-missing", python=testbed.python)))
    if done.exit_status == _NOT_WRITTEN:
        raise RemoteError(
            placed(node.name, Reason.of("node-probes-not-written", folder=testbed.workdir, problem=answer))
        )
    if done.timed_out:
        raise RemoteError(placed(node.name, Reason.of("node-facts-timeout", timeout_s=timeout_s)))
    try:
        return read_answer(Facts, told).model_dump(), reached
    except ValueError as error:
        raise RemoteError(
            placed(node.name, Reason.of("node-facts-unreadable", answer=answer, problem=str(error)))
        ) from None


def _reached(line: str, peers: Sequence[Node]) -> dict[str, str]:
    try:
        failed = unreached([line], peers)
    except RemoteError as error:
        failed = {peer.name: error.reason for peer in peers}
    return {peer.name: failed.get(peer.name, "") for peer in peers}


def standard_library_program(testbed: Testbed, name: str) -> list[str]:
    """The command of a probe that imports the standard library alone: what else Python knows is not looked for."""
    return [testbed.python, "-S", f"{testbed.workdir}/{name}"]


@cache
def _probe_sources() -> dict[str, str]:
    return {path.name: path.read_text() for path in PROBES}


def _clock(node: Node, transport: "paramiko.Transport", timeout_s: float) -> tuple[float, float]:
    """The node's clock minus ours in seconds, and the most that can be wrong about it: half of the round trip."""
    before = time.time()
    done = run_command(transport, "date +%s.%N", timeout_s=timeout_s)
    after = time.time()
    answer = last_line(done.output)
    if not _SECONDS.fullmatch(answer):
        raise RemoteError(
            placed(node.name, Reason.of("node-clock-unreadable", answer=printable(answer) or "nothing was printed"))
        )
    return float(answer) - (before + after) / 2, (after - before) / 2


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
