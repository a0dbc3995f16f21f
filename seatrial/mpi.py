"""mpirun over a hostfile, started on the head node; works with Open MPI 4 and 5."""

import logging
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.ssh import RemoteProcess, connected, run_command, start_process
from seatrial.testbed import Node, Testbed

log = logging.getLogger("seatrial.mpi")

SETTLE_S = 3.0  # mpirun that has printed everything normally ends within tenths of a second; some never do
SUPERVISOR_GRACE_S = 10.0  # the supervisor asks for 3 s, forces for 3 s
_MAX_LINES = 200_000  # bounds memory when a rank prints without end
_TIME_UP, _ENDED_BY_US, _NOT_FOUND = 124, 125, 127


@dataclass(frozen=True, slots=True)
class MpiResult:
    """What an mpirun came to.

    `exit_status` is None when it had to be ended; `lines` are stdout and stderr in order. `timed_out`: it ran past its
    time. `reaped`: it had printed everything, then hung, and was ended; its output counts.
    """

    exit_status: int | None
    lines: tuple[str, ...]
    seconds: float
    timed_out: bool = False
    reaped: bool = False

    @property
    def ok(self) -> bool:
        return self.exit_status == 0 or self.reaped

    @property
    def missing(self) -> bool:
        """Whether mpirun itself is not there."""
        return self.exit_status == _NOT_FOUND

    @property
    def cause(self) -> str | None:
        """The earliest primary cause that the output names, in one line; None when it names none."""
        from seatrial.nccl import classify

        findings = classify(self.lines)
        return findings[0].cause if findings else None


def hostfile(nodes: Iterable[Node]) -> str:
    """One line per node. Addresses instead of names keep DNS out of the way."""
    return "".join(f"{node.address} slots={node.slots} port={node.port}\n" for node in nodes)


def mpirun_argv(testbed: Testbed, argv: Sequence[str], env: Mapping[str, str], ranks: int | None = None) -> list[str]:
    """The command line that runs `argv` on `ranks` ranks (one per slot when unset), consecutive ranks on one node."""
    network = ("--mca", "btl_tcp_if_include", testbed.network, "--mca", "oob_tcp_if_include", testbed.network)
    exports = [part for key, value in {**dict(testbed.env), **env}.items() for part in ("-x", f"{key}={value}")]
    return [
        testbed.mpirun,
        *(("--allow-run-as-root",) if testbed.user == "root" else ()),
        *("--hostfile", hostfile_path(testbed), "-np", str(ranks or testbed.world_size)),
        *("--map-by", "slot", "--bind-to", "none"),
        *("--mca", "orte_keep_fqdn_hostnames", "1"),
        *(part for part in (network if testbed.network else ()) if part),
        *testbed.mpirun_args,
        *exports,
        *argv,
    ]


def hostfile_path(testbed: Testbed) -> str:
    """Where `mpirun` finds the hostfile on the head node."""
    return f"{testbed.workdir}/hostfile"


def mpirun(
    testbed: Testbed,
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    is_done: Callable[[str], bool] | None = None,
    log_file: Path | None = None,
) -> MpiResult:
    """Run `argv` on every slot of the testbed and follow its output.

    `is_done(line)` says that nothing of interest follows that line: mpirun then gets a few seconds to leave and is
    ended if it does not. The head's supervisor ends everything when this connection goes away. Raises RemoteError when
    the head cannot be reached.
    """
    supervisor = [testbed.python, f"{testbed.workdir}/supervise.py", str(timeout_s)]
    command = shlex.join([*supervisor, *mpirun_argv(testbed, argv, env or {})])
    with connected(testbed, testbed.head, 30) as head:
        run_command(
            head, f"cat > {shlex.quote(hostfile_path(testbed))}", stdin=hostfile(testbed.nodes).encode(), timeout_s=30
        )
        follower = _Follower(start_process(head, command), timeout_s, on_line, is_done)
        try:
            result = follower.follow()
        finally:
            follower.process.close()
            if log_file:
                _keep(log_file, command, follower.lines)
    return result


class _Follower:
    """Reads one mpirun to its end, whichever end that is."""

    def __init__(
        self,
        process: RemoteProcess,
        timeout_s: float,
        on_line: Callable[[str], None] | None,
        is_done: Callable[[str], bool] | None,
    ) -> None:
        self.process = process
        self.lines: list[str] = []
        self._on_line = on_line or (lambda line: None)
        self._is_done = is_done or (lambda line: False)
        self._started = time.monotonic()
        self._deadline = self._started + timeout_s + SUPERVISOR_GRACE_S
        self._settled_at: float | None = None
        self._asked_to_end = False

    def follow(self) -> MpiResult:
        while (batch := self.process.read_lines(0.2)) is not None:
            for line in batch:
                self._take(line)
            if time.monotonic() > self._deadline:
                return self._result(None)
            if self._settled_at and time.monotonic() > self._settled_at and not self._asked_to_end:
                self._ask_to_end()
        return self._result(self.process.exit_status())

    def _take(self, line: str) -> None:
        if len(self.lines) < _MAX_LINES:
            self.lines.append(line)
        self._on_line(line)
        if self._is_done(line):
            self._settled_at = time.monotonic() + SETTLE_S

    def _ask_to_end(self) -> None:
        log.warning("mpirun has printed everything and does not leave; ending it and using its output")
        self._asked_to_end = True
        self.process.close_stdin()
        self._deadline = time.monotonic() + SUPERVISOR_GRACE_S

    def _result(self, status: int | None) -> MpiResult:
        seconds = time.monotonic() - self._started
        ended = status is None or status in (_TIME_UP, _ENDED_BY_US)
        return MpiResult(
            exit_status=None if ended else status,
            lines=tuple(self.lines),
            seconds=seconds,
            timed_out=ended and not self._asked_to_end,
            reaped=ended and self._asked_to_end,
        )


def _keep(log_file: Path, command: str, lines: Sequence[str]) -> None:
    log_file.parent.mkdir(parents=True, exist_ok=True)
    log_file.write_text("\n".join([f"$ {command}", *lines, ""]), errors="replace")
