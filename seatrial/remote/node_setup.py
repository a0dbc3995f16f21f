"""The first contact with a node: connect, copy the probes, ask for its facts and its clock."""

import json
import re
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seatrial.model.errors import RemoteError
from seatrial.model.reason import Reason, placed
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.answers import Answer, Facts, read_answer, shown
from seatrial.remote.command import run_command
from seatrial.remote.probes import PROBES
from seatrial.remote.probes.facts import NCCL_TESTS
from seatrial.remote.ssh import HostKeyError, connect
from seatrial.text.lines import last_line

if TYPE_CHECKING:
    import paramiko

    from seatrial.remote.line_probe import StreamProbe


_MARK = "seatrial-system"
FactsOfNode = Mapping[str, Any]  # by field name of Facts
# Device and inode, which identify a file within one boot of a kernel
_FILE = r"\d{1,20}:\d{1,20}"
_ANSWER = re.compile(
    rf"^{_MARK} (\S{{1,253}}) ([0-9a-f-]{{36}}) ({_FILE})(?: ({_FILE}))?$", re.MULTILINE
)
_ATTEMPTS = 3  # sshd drops connections if many arrive at once, so connecting is retried
_PAUSE_S = 0.3
FACTS_TIMEOUT_S = 60  # long, as waking GPUs or a cold network home take time
_SCRIPTS = ("rsh_agent.sh", "rank.sh")  # scripts for mpirun, next to the probes
_NOT_WRITTEN = 73  # exit status if probes cannot be written: EX_CANTCREAT
# Write the probes, then run one in the same process. Nodes may share the folder (a network home,
# namespaces of one machine), so each file is replaced atomically.
_INSTALL = f"""
import json, os, sys
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
if sys.argv:
    exec(compile(request["files"][os.path.basename(sys.argv[0])], sys.argv[0], "exec"), {{"__name__": "__main__"}})
"""


class System(NamedTuple):
    """A node's host name, boot id, root folder, and the identity of a probe's file, "" if the probe
    is missing.
    """

    hostname: str
    boot: str
    root: str
    probes: str

    def has_files_of(self, other: "System") -> bool:
        """Return whether both nodes see the same files, and so have the same software."""
        return (self.boot, self.root) == (other.boot, other.root)


def ask_system(transport: "paramiko.Transport", probe: str, timeout_s: float) -> System | None:
    """Return the identity of a node's system; None if the node does not report one.

    Raises RemoteError if the connection breaks.
    """
    files = f"$(stat -L -c %d:%i / {shlex.quote(probe)} 2>/dev/null)"
    command = f"echo {_MARK} $(uname -n) $(cat /proc/sys/kernel/random/boot_id) {files}"
    answer = _ANSWER.search(run_command(transport, command, timeout_s=timeout_s).output)
    return System(*(part or "" for part in answer.groups())) if answer else None


@dataclass(slots=True)
class NodeConnection:
    """A node that answered.

    `clock_offset_s` is its clock minus ours, with an error of up to `clock_error_s`; `connect_ms`
    is the time to establish the SSH connection. `streams` is the TCP probe once it was started, or
    the error of its start.
    """

    transport: "paramiko.Transport"
    facts: FactsOfNode
    connect_ms: float
    clock_offset_s: float
    clock_error_s: float
    streams: "StreamProbe | RemoteError | None" = None

    @property
    def hostname(self) -> str:
        return str(self.facts["hostname"])

    @property
    def versions(self) -> dict[str, str | None]:
        """The version by package: "" if it is not installed, None if it is unknown."""
        return dict(self.facts["versions"])


class SharedFacts:
    """Facts of the first node, shared by the nodes of one machine that see the same files.

    Each node still reports its own name and shows that it sees the same files; otherwise it is
    asked itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: tuple[FactsOfNode, System | None] | None = None

    def of(self, contact: "_Contact") -> FactsOfNode:
        """Return the facts of one node, and install its probes.

        Raises RemoteError naming node and cause.
        """
        with self._lock:  # the first node to get here is asked for all, while others wait
            if self._first is None:
                self._first = contact.install_and_ask(), contact.system()
                return self._first[0]
        facts, first = self._first
        own = contact.system()
        if first is None or own is None or not own.has_files_of(first):
            return contact.install_and_ask()
        if own.probes != first.probes:
            contact.install()
        return {**facts, "hostname": own.hostname}


def set_up_node(
    testbed: Testbed, node: Node, timeout_s: float, shared_facts: SharedFacts | None = None
) -> NodeConnection:
    """Connect to `node` with its pinned host key, copy the probes to it and ask for its facts.

    The connection stays open; the caller closes it. Raises RemoteError naming node and cause.
    """
    started = time.monotonic()
    transport = _connect_patiently(testbed, node, timeout_s)
    connect_ms = (time.monotonic() - started) * 1000
    try:
        contact = _Contact(testbed, node, transport, timeout_s)
        facts = shared_facts.of(contact) if shared_facts else contact.install_and_ask()
        one_clock = testbed.shared_cores is not None  # all nodes are one machine
        offset, error = (0.0, 0.0) if one_clock else _clock(node, transport, timeout_s)
    except BaseException:
        transport.close()
        raise
    return NodeConnection(transport, facts, connect_ms, offset, error)


def _connect_patiently(testbed: Testbed, node: Node, timeout_s: float) -> "paramiko.Transport":
    started = time.monotonic()
    for _ in range(_ATTEMPTS - 1):
        try:
            return connect(testbed, node, timeout_s)
        except HostKeyError:
            raise
        except RemoteError:
            # The node was silent; the connection was not dropped
            if time.monotonic() - started >= timeout_s:
                raise
        time.sleep(_PAUSE_S)
    return connect(testbed, node, timeout_s)


@dataclass(frozen=True, slots=True)
class _Contact:
    """A node with an authenticated connection."""

    testbed: Testbed
    node: Node
    transport: "paramiko.Transport"
    connect_s: float

    def install_and_ask(self) -> FactsOfNode:
        """Write the probes to the node and run `facts`."""
        python = self.testbed.python
        workdir = self.testbed.workdir
        argv = [
            python,
            "-c",
            _INSTALL,
            f"{workdir}/facts.py",
            self.testbed.mpirun,
            self._nccl_tests,
        ]
        answer = self._install(argv) if python else None
        if answer is None:
            answer = self._ask_shell()
        try:
            return read_answer(Facts, answer).model_dump()
        except ValueError as error:
            words = f"{shown(answer)} ({error})"
            raise self._error(
                "node-facts-unreadable", what="say what it is", answer=words
            ) from None

    def _ask_shell(self) -> str:
        """Return the facts as found by a shell script, on a node without Python, and install the
        scripts for mpirun.
        """
        folder = shlex.quote(self.testbed.workdir)
        for script in ("supervise.sh", *_SCRIPTS):
            install = f"mkdir -p {folder} && cat >{folder}/{script}"
            run_command(
                self.transport, install, stdin=_script(script).encode(), timeout_s=self._timeout_s
            )
        ask = shlex.join(["sh", "-s", self.testbed.mpirun, self._nccl_tests])
        facts = run_command(
            self.transport, ask, stdin=_script("facts.sh").encode(), timeout_s=self._timeout_s
        )
        return last_line(facts.output)

    @property
    def _nccl_tests(self) -> str:
        """The folders to search for nccl-tests, in the format of PATH."""
        return self.testbed.nccl_tests or NCCL_TESTS

    def install(self) -> None:
        """Write the probes to the node."""
        self._install([self.testbed.python, "-S", "-c", _INSTALL])

    def system(self) -> System | None:
        """Return the identity of the node's system."""
        return ask_system(self.transport, f"{self.testbed.workdir}/facts.py", self._timeout_s)

    @property
    def _timeout_s(self) -> float:
        return max(self.connect_s, FACTS_TIMEOUT_S)

    def _install(self, argv: Sequence[str]) -> str | None:
        """Run `argv`, which reads the probes from standard input; return its last line, None
        without Python.
        """
        request = json.dumps({"folder": self.testbed.workdir, "files": _probe_sources()})
        done = run_command(
            self.transport, shlex.join(argv), stdin=request.encode(), timeout_s=self._timeout_s
        )
        answer = last_line(done.output)
        if done.exit_status == 127:
            return None
        if done.exit_status == _NOT_WRITTEN:
            raise self._error(
                "node-probes-not-written", folder=self.testbed.workdir, problem=shown(answer)
            )
        if done.timed_out:
            raise self._error("node-facts-timeout", timeout_s=self._timeout_s)
        return answer

    def _error(self, code: str, **values: object) -> RemoteError:
        return RemoteError(placed(self.node.name, Reason.of(code, **values)))


def standard_library_program(testbed: Testbed, name: str) -> list[str]:
    """Return the command of a probe that needs only the standard library; skipping site packages
    saves time.
    """
    return [testbed.python, "-S", f"{testbed.workdir}/{name}"]


def printed(
    testbed: Testbed,
    transport: "paramiko.Transport",
    program: str,
    timeout_s: float,
    request: Mapping[str, Any] | None = None,
) -> str:
    """Return what a probe of the standard library prints, given its request on standard input.

    Raises RemoteError when it cannot be started or the connection breaks.
    """
    command = shlex.join(standard_library_program(testbed, program))
    stdin = json.dumps(request).encode() if request else b""
    return run_command(transport, command, stdin=stdin, timeout_s=timeout_s).output


def asked(
    testbed: Testbed,
    transport: "paramiko.Transport",
    program: str,
    model: type[Answer],
    timeout_s: float,
) -> Answer:
    """Return the answer in the last line that a probe of the standard library prints.

    Raises RemoteError.
    """
    output = printed(testbed, transport, program, timeout_s)
    try:
        return read_answer(model, last_line(output))
    except ValueError as error:
        raise RemoteError(str(error)) from None


@cache
def _probe_sources() -> dict[str, str]:
    probes = {path.name: path.read_text() for path in PROBES}
    return probes | {name: _script(name) for name in _SCRIPTS}


def _script(name: str) -> str:
    return Path(__file__).with_name("shell").joinpath(name).read_text()


def _clock(node: Node, transport: "paramiko.Transport", timeout_s: float) -> tuple[float, float]:
    """Return the node's clock minus ours in seconds, and its largest error: half of the round
    trip.
    """
    before = time.time()
    done = run_command(transport, "date +%s.%N", timeout_s=timeout_s)
    after = time.time()
    answer = last_line(done.output)
    if not re.fullmatch(r"\d{1,12}\.\d{1,9}", answer):  # seconds of the epoch, as printed by date
        reason = Reason.of("node-facts-unreadable", what="tell the time", answer=shown(answer))
        raise RemoteError(placed(node.name, reason))
    return float(answer) - (before + after) / 2, (after - before) / 2
