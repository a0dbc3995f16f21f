"""Ranks, started by mpirun over a hostfile on the head node (Open MPI 4 and 5) or as the testbed
says, and followed.
"""

import base64
import json
import logging
import os
import re
import shlex
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from seatrial.model.errors import LaunchError, RemoteError
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.testbed import Node, RankProcess, Testbed
from seatrial.remote.command import RemoteRanks, is_piece, run_command, start_process
from seatrial.remote.mpi_result import SSH_FAILED, MpiResult, Session
from seatrial.remote.ranks import RankLine, SrunLines, rank_line, rank_of, reported_rank
from seatrial.remote.ssh import connected
from seatrial.system.rawlog import RawLog
from seatrial.text.redact import Secrets
from seatrial.text.words import fraction

Environ = Mapping[str, str]
OnLine = Callable[[str], None] | None  # is called with each line that is printed
# Of the beginning and of the end each: bounds memory
_MOST_LINES = 100_000
_MOST_CHARS = 8 * 1024**2
log = logging.getLogger("seatrial.mpi")
# An mpirun that has printed everything normally ends within tenths of a second; some never do
SETTLE_S = 3.0
SETTLE_S_PER_RANK = 0.01  # thousands of ranks take their time to finalise
SUPERVISOR_GRACE_S = 10.0  # the supervisor asks for 3 s, forces for 3 s
# Characters of any line but an event of a probe, which may have an entry per rank
_LONGEST_LINE = 16 * 1024
# NCCL_DEBUG=INFO prints some 40 KiB per rank
OUTPUT_BYTES = 32 * 1024**2
OUTPUT_BYTES_PER_RANK = 128 * 1024
# Of each node
_SESSION_LINES = 20
_SESSION_CHARACTERS = 1000
_SESSIONS_BYTES = 4 * 1024**2  # of all nodes
_FILE_NAME = re.compile(r"[^A-Za-z0-9.-]")  # as rsh_agent.sh names a host's file
_RANK_0 = "[1,0]<stdout>:"  # in logs, as mpirun has it in front of other ranks' lines
_LINE_COST = 256  # bytes that a line counts as at least: many short lines take long to read
# Open MPI's launcher says so when its child was the faster of the two: both set the same process
# group.
_LOST_RACE = "plm:rsh: Warning: setpgid("
_MAX_LOG = 1 << 30  # characters; bounds the disk likewise
# Of seatrial/remote/probes/supervise.py, before it says why it ended, or did not start, the
# command.
_SUPERVISOR = "seatrial-supervisor: "
_CANNOT_START = "cannot start "
_WAITED = re.compile(r"time is up; (?P<seconds>\d{1,9}\.\d) s of it a process waited")
_BYTES = 4 * 1024**2  # some lines, also where a line takes 2 MiB to be one
# What a rank that does not flood prints at most until the others have flooded
_BYTES_PER_RANK = 64 * 1024


class KeptLines:
    """The first and the last lines of an output that may be endless."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_chars = 0
        self._tail_chars = 0
        self._left_out = 0

    def add(self, line: str) -> None:
        head_chars = self._head_chars + len(line)
        has_room = len(self._head) < _MOST_LINES and head_chars <= _MOST_CHARS
        if has_room and not self._tail:
            self._head.append(line)
            self._head_chars = head_chars
            return
        self._tail.append(line)
        self._tail_chars += len(line)
        while len(self._tail) > _MOST_LINES or self._tail_chars > _MOST_CHARS:
            oldest = self._tail.popleft()
            self._tail_chars -= len(oldest)
            self._left_out += 1

    def kept(self) -> tuple[str, ...]:
        if not self._left_out:
            return (*self._head, *self._tail)
        note = f"[{self._left_out} lines are left out here; the log has them]"
        return (*self._head, note, *self._tail)


def hostfile(nodes: Iterable[Node]) -> str:
    """Return one line per node, by the address or the name that its peers reach it at."""
    lines = []
    for node in nodes:
        lines.append(f"{node.address} slots={node.slots} port={node.port}\n")
    return "".join(lines)


def mpirun_argv(testbed: Testbed, argv: Sequence[str], env: Environ) -> list[str]:
    """Return the command line that runs `argv` on one rank per slot, consecutive ranks on one node.

    It names the variables of `variables(testbed, env)`, and mpirun takes their values from its own
    environment: command lines are logged, and anybody on the node can read them.
    """
    network: list[str] = []
    if testbed.network:
        for parameter in ("btl_tcp_if_include", "oob_tcp_if_include"):
            network += ["--mca", parameter, testbed.network]
    exports: list[str] = []
    for name in variables(testbed, env):
        exports += ["-x", name]
    return [
        testbed.mpirun,
        *(("--allow-run-as-root",) if testbed.user == "root" else ()),
        *("--hostfile", hostfile_path(testbed), "-np", str(testbed.world_size)),
        *("--map-by", "slot", "--bind-to", "none"),
        *("--mca", "orte_keep_fqdn_hostnames", "1"),
        *network,
        *testbed.mpirun_args,
        "--tag-output",
        *exports,
        *argv,
    ]


def variables(testbed: Testbed, env: Environ) -> dict[str, str]:
    """Return the environment that every rank gets: the testbed's, and `env` on top."""
    return {**dict(testbed.env), **env}


def hostfile_path(testbed: Testbed) -> str:
    """Return the path of the hostfile on the head node; parts of a testbed may share head and
    folder.
    """
    path = f"{testbed.workdir}/hostfile"
    if testbed.label:
        path += f"-{testbed.label}"
    return path


def mpirun(
    testbed: Testbed,
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Environ | None = None,
    on_line: OnLine = None,
    is_done: Callable[[str], bool] | None = None,
    log_file: Path | None = None,
    max_bytes: int | None = None,
    secrets: Secrets | None = None,
) -> MpiResult:
    """Run `argv` on every slot of the testbed and follow its output, at most `max_bytes` of it.

    `is_done(line)` says that nothing of interest follows that line: mpirun, or what the testbed has
    in its place, then gets a few seconds to leave and is ended if it does not. A supervisor ends
    everything when this connection goes away. Raises RemoteError when the head cannot be reached.

    Nothing of the output goes anywhere before `secrets` are taken out of it; without, those of this
    process' environment and of the testbed's.
    """
    launcher = testbed.launcher
    ranks_env = variables(testbed, env or {})
    python = launcher.python if launcher else testbed.python
    program = ["sh", f"{testbed.workdir}/supervise.sh"]
    if python:
        program = [python, f"{testbed.workdir}/supervise.py"]
    sessions = f"{testbed.workdir}/sessions-{uuid4().hex}"  # on the head; of this mpirun alone
    argv = ["sh", f"{testbed.workdir}/rank.sh", _pipe(sessions), *argv]
    ranks = mpirun_argv(testbed, argv, env or {})
    if launcher:
        ranks = launcher.argv(testbed, argv, ranks_env)
    command = shlex.join([*program, str(timeout_s), *ranks])
    start = launcher.started if launcher else _started_on_head
    with start(testbed, command) as process:
        with suppress(OSError, EOFError):  # it ended at once; its output says why
            environment = _supervisor_env(testbed, ranks_env, sessions)
            encoded = _for_shell(environment)
            if python:
                encoded = json.dumps(environment).encode()
            process.send(encoded + b"\n")
        hidden = secrets or Secrets.of({**os.environ, **dict(testbed.env)})
        with RawLog(log_file, hidden, max_characters=_MAX_LOG) as file:
            file.write(f"$ {command}\n")
            ranks_count = testbed.world_size
            follower = _Follower(
                process,
                timeout_s=timeout_s,
                settle_s=SETTLE_S + SETTLE_S_PER_RANK * ranks_count,
                log_file=file,
                on_line=on_line,
                is_done=is_done,
                max_bytes=max_bytes or OUTPUT_BYTES + OUTPUT_BYTES_PER_RANK * ranks_count,
            )
            done = follower.follow()
            logins: tuple[Session, ...] = ()
            if not launcher and not done.ok:
                logins = _sessions(testbed, sessions, hidden)
            unreported = set(range(ranks_count)) - follower.reported
            return replace(
                done,
                node_names={node.address: node.name for node in testbed.nodes},
                rank_nodes=_rank_nodes(testbed),
                waited_s=0.0 if testbed.shared_cores is None else done.waited_s,
                sessions=logins,
                unreported=tuple(sorted(unreported)),
            )


def _supervisor_env(testbed: Testbed, ranks_env: Environ, sessions: str) -> Environ:
    """Return the variables of the launcher; of mpirun also those of its remote shell and of rank
    0's pipe.
    """
    if testbed.launcher:
        return testbed.launcher.environment(ranks_env)
    return {**_agent(testbed, sessions), "SEATRIAL_PIPE": _pipe(sessions), **ranks_env}


def _pipe(sessions: str) -> str:
    """Return the named pipe into which rank 0 prints."""
    return f"{sessions}/rank-0"


def _for_shell(environment: Environ) -> bytes:
    """Return the variables as one line for supervise.sh."""
    exports = ""
    for name, value in environment.items():
        exports += f"export {name}={shlex.quote(value)}\n"
    return base64.b64encode(exports.encode())


def _rank_nodes(testbed: Testbed) -> tuple[str, ...]:
    names: list[str] = []
    for node in testbed.nodes:
        names += [node.name] * node.slots
    return tuple(names)


def _agent(testbed: Testbed, sessions: str) -> dict[str, str]:
    """Return the variables that name mpirun's remote shell: Open MPI 4's and 5's.

    A cluster file may have another one.
    """
    agent = f"sh {testbed.workdir}/rsh_agent.sh {sessions}"
    return {"OMPI_MCA_plm_rsh_agent": agent, "PRTE_MCA_plm_ssh_agent": agent}


def _sessions(testbed: Testbed, folder: str, secrets: Secrets) -> tuple[Session, ...]:
    """Return the logins by mpirun that printed something or failed; each is evidence about its own
    node only.

    Of several that failed, the first one counts: mpirun ends the other daemons for it.
    """
    first = f'FNR <= {_SESSION_LINES} {{ print FILENAME ":" substr($0, 1, {_SESSION_CHARACTERS}) }}'
    oldest_first = "ls -tr | grep -v -e '\\.ssh$' -e '^rank-0$'"
    firsts = f"{oldest_first} | xargs awk {shlex.quote(first)}"
    command = f"cd {shlex.quote(folder)} && {firsts}"
    try:
        with connected(testbed, testbed.head, 30) as head:
            output = run_command(head, command, timeout_s=30, max_bytes=_SESSIONS_BYTES).output
    except (RemoteError, LaunchError):  # what failed says more
        return ()
    by_file: dict[str, list[str]] = defaultdict(list)
    for line in output.splitlines():
        file, _, words = line.partition(":")
        by_file[file].append(secrets.out_of_line(words))
    first_failed = _first_failed(by_file)
    sessions = []
    for node in testbed.nodes:
        file = _FILE_NAME.sub("_", node.address)
        status_file = f"{file}.status"
        status = "".join(by_file.get(status_file, ()))
        is_status = re.fullmatch(r"\d{1,3}", status)
        exit_status = int(status) if is_status else None
        lines = tuple(by_file.get(file, ()))
        session = Session(node.name, lines, exit_status)
        if session.failed and status_file != first_failed:
            session = replace(session, exit_status=None)
        if session.lines or session.failed:
            sessions.append(session)
    return tuple(sessions)


def _first_failed(by_file: Mapping[str, Sequence[str]]) -> str | None:
    """Return the oldest file of exit statuses whose command failed, other than by ssh itself."""
    harmless = ("0", str(SSH_FAILED))
    for file, lines in by_file.items():
        if file.endswith(".status") and lines[0] not in harmless:
            return file
    return None


@contextmanager
def _started_on_head(testbed: Testbed, command: str) -> Iterator[RankProcess]:
    with connected(testbed, testbed.head, 30) as head:
        path = shlex.quote(hostfile_path(testbed))
        lines = hostfile(testbed.nodes).encode()
        run_command(head, f"cat > {path}", stdin=lines, timeout_s=30)
        process = start_process(head, command, RemoteRanks)
        try:
            yield process
        finally:
            process.close()


class _Follower:
    """Reads one mpirun to its end, whichever end that is."""

    def __init__(
        self,
        process: RankProcess,
        timeout_s: float,
        settle_s: float,
        log_file: RawLog,
        on_line: OnLine,
        is_done: Callable[[str], bool] | None,
        max_bytes: int,
    ) -> None:
        self._max_bytes = self._room = max_bytes
        self._process = process
        self._lines = KeptLines()
        self._srun = SrunLines()
        self._log_file = log_file
        self._on_line = on_line or (lambda line: None)
        self._is_done = is_done or (lambda line: False)
        self._started = time.monotonic()
        self._deadline = self._started + timeout_s + SUPERVISOR_GRACE_S
        self._settle_s = settle_s
        self._settled_at: float | None = None
        self._asked_to_end = False
        self._supervisor: str | None = None  # its message about the end
        self._piece_of: int | None = None  # the rank whose line goes on with the next that is read
        self.reported: set[int] = set()  # ranks that took part
        self._begun: set[int | None] = set()  # ranks with a line
        self._has_pipe = isinstance(process, RemoteRanks)  # of rank 0

    def follow(self) -> MpiResult:
        while (batch := self._process.read_lines(0.2)) is not None:
            for line in batch:
                self._room -= max(len(line) + 1, _LINE_COST)
                whole: str | None = line
                if self._piece_of is None:
                    whole = self._srun.whole(line)
                if whole is not None:
                    self._take(whole)
            too_late = time.monotonic() > self._deadline
            # Everything was ended a while ago: what still comes then has piled up faster than it
            # could be read.
            if (
                self._room < 0
                or self._process.received_bytes > self._max_bytes
                or (too_late and batch)
            ):
                return self._ended_for_flooding()
            if too_late:
                return self._result(None, past_deadline=True)
            is_settled = self._settled_at and time.monotonic() > self._settled_at
            if is_settled and not self._asked_to_end:
                log.warning(
                    "mpirun has printed everything and does not leave; ending it and "
                    "using its output"
                )
                self._asked_to_end = True
                self._process.close_stdin()
                self._deadline = time.monotonic() + SUPERVISOR_GRACE_S
        return self._result(self._process.exit_status())

    def _ended_for_flooding(self) -> MpiResult:
        """Discard further output until the end: the next mpirun must not start beside this one."""
        now = time.monotonic()
        seconds = now - self._started
        deadline = now + SUPERVISOR_GRACE_S
        self._process.close_stdin()
        while time.monotonic() < deadline:
            if self._process.read(0.2) is None:
                break
        return MpiResult(None, self._lines.kept(), seconds, flooded=True)

    def _take(self, read: str) -> None:
        """Log a line, or a piece of one, and keep it."""
        if isinstance(read, RankLine):  # by the pipe of rank 0
            written = self._log_file.write(f"{_RANK_0}{read}\n")
            logged = written.removesuffix("\n").removeprefix(_RANK_0)
            self._keep(RankLine(logged, read.rank))
            return
        goes_on = is_piece(read)  # it waits in the log for what a secret may end with
        written = self._log_file.write(read if goes_on else f"{read}\n")
        logged = written.removesuffix("\n")
        line = rank_line(logged, self._piece_of)
        self._piece_of = line.rank if goes_on else None
        if line.rank == 0 and self._has_pipe:
            line = RankLine(line, None)
        self._keep(line)

    def _keep(self, line: RankLine) -> None:
        if self._supervisor is not None:  # ranks that are ended complain of each other
            return
        text = str(line)
        rank = line.rank
        reported = reported_rank(line)
        if reported is not None:
            self.reported.add(reported)
            return
        is_first = rank is not None and rank not in self._begun
        if is_first:
            self._begun.add(rank)
            if not text:  # the end of what may have stood before a rank's report
                return
        if rank is None and _LOST_RACE in text:
            return
        beginning = text[:_LONGEST_LINE]
        if '{"event"' not in beginning:
            text = beginning
        if rank is None and _SUPERVISOR in text:  # it may stand behind half a line of the launcher
            text, _, self._supervisor = text.rpartition(_SUPERVISOR)
            if not text:
                return
        kept = RankLine(text, rank)
        self._lines.add(kept)
        self._on_line(kept)
        if self._is_done(kept):
            self._settled_at = time.monotonic() + self._settle_s

    def _result(self, status: int | None, *, past_deadline: bool = False) -> MpiResult:
        seconds = time.monotonic() - self._started
        for line in self._srun.unended():
            self._take(line)
        message = self._supervisor or ""
        not_started = None
        if message.startswith(_CANNOT_START):
            not_started = message.removeprefix(_CANNOT_START)
        ended = not_started is None and (past_deadline or bool(message))
        waited = _WAITED.match(message)
        return MpiResult(
            exit_status=None if message else status,
            lines=self._lines.kept(),
            seconds=seconds,
            timed_out=ended and not self._asked_to_end,
            reaped=ended and self._asked_to_end,
            not_started=not_started,
            lost=status is None and not message and not past_deadline,
            waited_s=float(waited["seconds"]) if waited else 0.0,
        )


def flooding_nodes(testbed: Testbed, argv: Sequence[str], env: Environ) -> tuple[Suspect, ...]:
    """Return the node whose ranks print most, where it is most of all that is printed; empty if
    none stands out.
    """
    printed: Counter[int] = Counter()

    def count(line: str) -> None:
        if (rank := rank_of(line)) is not None:
            printed[rank] += len(line)

    most = _BYTES + _BYTES_PER_RANK * testbed.world_size
    try:
        mpirun(testbed, argv, timeout_s=20, env=env, on_line=count, max_bytes=most)
    except RemoteError:
        return ()
    return node_printing_most(testbed, printed)


def node_printing_most(testbed: Testbed, printed: Mapping[int, int]) -> tuple[Suspect, ...]:
    """Return the node with more than half of the `printed` characters, by rank. Pure."""
    by_node: Counter[str] = Counter()
    owners = _rank_nodes(testbed)
    for rank, characters in printed.items():
        if rank < len(owners):
            by_node[owners[rank]] += characters
    for name, characters in by_node.most_common(1):
        total = by_node.total()
        if 2 * characters > total > 0:
            excess = f"its ranks printed {fraction(characters / total)} of all output"
            reason = Reason.of("output-flood", excess=excess)
            return (Suspect("node", name, 0.9, reason),)
    return ()
