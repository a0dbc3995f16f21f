"""Run commands on nodes over SSH, or on this machine, with limits on time, bytes and lines."""

import math
import os
import select
import shlex
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.model.errors import FloodError, RemoteError
from seatrial.remote.ranks import RankLine

if TYPE_CHECKING:
    import paramiko


MAX_OUTPUT_BYTES = 1024**2  # default limit on a command's output
_EXEC_TIMEOUT_S = 30  # otherwise paramiko waits forever for a node to confirm a command
_EXIT_S = 10.0  # wait for the exit status after the end of the output
# Limit on unread data; the window that paramiko opens is half of it
_WINDOW_BYTES = 4 * 1024**2
_CHUNK_BYTES = 64 * 1024
_MAX_LINE_BYTES = 2 * 1024**2  # the training probe's summary has some 250 bytes per rank


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command on a node.

    `exit_status` is None if the command was ended at its time limit; `output` is stdout and stderr
    in order.
    """

    exit_status: int | None
    output: str
    timed_out: bool = False


class LineReader(ABC):
    """A process whose output is read in lines."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self._rest = b""

    @abstractmethod
    def read(self, timeout_s: float) -> bytes | None:
        """Return at most 64 KiB that arrive within `timeout_s`; empty when nothing does, None at
        the end of output.
        """

    def read_lines(self, timeout_s: float) -> list[str] | None:
        """Return the whole lines that arrive within `timeout_s`; an empty list when none do, None
        at the end of output.

        A line longer than 2 MiB comes in pieces.
        """
        data = self.read(timeout_s)
        if data is None:
            rest = self._rest
            self._rest = b""
            return [_text(rest)] if rest else None
        lines, self._rest = _lines(self._rest + data)
        return lines


class RemoteProcess(LineReader):
    """A command that runs on a node; `close_stdin` closes its standard input, which asks
    it to end.
    """

    _combines_stderr = True

    def __init__(self, transport: "paramiko.Transport", command: str) -> None:
        super().__init__()
        self._channel = transport.open_session(timeout=_EXEC_TIMEOUT_S)
        self._channel.set_combine_stderr(self._combines_stderr)
        given_up = threading.Timer(_EXEC_TIMEOUT_S, transport.close)
        given_up.start()
        try:
            self._channel.exec_command(command)
        finally:
            given_up.cancel()

    def send(self, data: bytes) -> None:
        """Write to its standard input. Raises OSError if the node does not take it."""
        self._channel.settimeout(_EXEC_TIMEOUT_S)
        self._channel.sendall(data)

    def close_stdin(self) -> None:
        with suppress(OSError, EOFError):
            self._channel.shutdown_write()

    def read(self, timeout_s: float) -> bytes | None:
        """Return at most 64 KiB that arrive within `timeout_s`; empty when nothing does, None at
        the end of output.
        """
        self._channel.settimeout(max(timeout_s, 0.001))
        self._check_window()
        try:
            data = self._channel.recv(_CHUNK_BYTES)
        except TimeoutError:
            return b""
        self.received_bytes += len(data)
        return data or None

    def _check_window(self) -> None:
        """Raise FloodError if the server sends more than the window, which paramiko does
        not check.
        """
        if len(self._channel.in_buffer) + len(self._channel.in_stderr_buffer) > _WINDOW_BYTES:
            self._channel.close()
            raise FloodError.of(
                "output-flood",
                excess="its SSH server sends more than the window allows and was cut off",
            )

    def exit_status(self) -> int | None:
        """Return the exit status, None when the connection ended without one."""
        if not self._channel.status_event.wait(_EXIT_S):
            return None
        return self._channel.exit_status if self._channel.exit_status >= 0 else None

    def close(self) -> None:
        """End the connection to the command."""
        self._channel.close()


def _lines(data: bytes) -> tuple[list[str], bytes]:
    """Return the whole lines in `data`, and the rest."""
    *whole, rest = data.split(b"\n")
    if len(rest) > _MAX_LINE_BYTES:
        whole = [*whole, rest]
        rest = b""
    return [_text(line) for line in whole], rest


class RemoteRanks(RemoteProcess):
    """A supervisor with mpirun on the head; its standard error carries only the output of
    rank 0.
    """

    _combines_stderr = False

    def __init__(self, transport: "paramiko.Transport", command: str) -> None:
        super().__init__(transport, command)
        self._rest_of_rank_0 = b""
        self._arrived = threading.Event()
        self._channel.in_buffer.set_event(self._arrived)
        self._channel.in_stderr_buffer.set_event(self._arrived)

    def read_lines(self, timeout_s: float) -> list[str] | None:
        """Return the complete lines that arrive, like any process; lines of rank 0 are
        `RankLine`s.
        """
        if not self._is_ready:
            self._arrived.wait(timeout_s)
        own = self._read_rank_0()
        others = super().read_lines(0.0) if self._channel.recv_ready() else []
        has_ended = self._channel.eof_received or self._channel.closed
        if own or others or not has_ended or self._is_ready:
            return [*own, *(others or [])]
        if self._rest_of_rank_0:
            last = RankLine(_text(self._rest_of_rank_0), 0)
            self._rest_of_rank_0 = b""
            return [last]
        return super().read_lines(0.0)

    @property
    def _is_ready(self) -> bool:
        return self._channel.recv_ready() or self._channel.recv_stderr_ready()

    def _read_rank_0(self) -> list[str]:
        if not self._channel.recv_stderr_ready():
            return []
        self._check_window()
        data = self._channel.recv_stderr(_CHUNK_BYTES)
        self.received_bytes += len(data)
        lines, self._rest_of_rank_0 = _lines(self._rest_of_rank_0 + data)
        return [RankLine(line, 0) for line in lines]


def is_piece(line: str) -> bool:
    """Return whether a line that was read is only a part of a line, which continues in the next
    one.
    """
    return 4 * len(line) > _MAX_LINE_BYTES and len(line.encode(errors="replace")) > _MAX_LINE_BYTES


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")


def run_command(
    transport: "paramiko.Transport",
    command: str,
    *,
    stdin: bytes = b"",
    timeout_s: float,
    max_bytes: int = MAX_OUTPUT_BYTES,
) -> CommandResult:
    """Run `command` in the node's shell and wait for it, at most `timeout_s` seconds.

    At the time limit the node ends the command. Raises FloodError if it prints more than
    `max_bytes`, RemoteError if it cannot be started or the connection breaks.
    """
    started = time.monotonic()
    # The node ends the command a second after its time limit: closing the channel ends only
    # programs that write to it, and OpenSSH delivers no signals to sessions of root.
    limited = f"timeout -s KILL {math.ceil(timeout_s) + 1} sh -c {shlex.quote(command)}"
    process = start_process(transport, limited)
    try:
        # A shell that ends at once closes its input; its output is still read
        with suppress(OSError):
            process.send(stdin)
        process.close_stdin()
        output = bytearray()
        ended = False
        while not ended and (left := started + timeout_s - time.monotonic()) > 0:
            data = process.read(left)
            ended = data is None
            output += data or b""
            check_output_bytes(process, max_bytes)
        lines = [_text(line) for line in bytes(output).removesuffix(b"\n").split(b"\n")]
        status = process.exit_status() if ended else None
        return CommandResult(status, "\n".join(lines), timed_out=not ended)
    except (EOFError, OSError) as error:
        raise connection_lost(error) from error
    finally:
        process.close()


def connection_lost(error: Exception) -> RemoteError:
    """Return the error of a connection that broke while a command ran."""
    return RemoteError.of("ssh-connection-lost", problem=str(error) or type(error).__name__)


def check_output_bytes(process: LineReader, max_bytes: int) -> None:
    """Raise FloodError if the process has printed more."""
    if process.received_bytes > max_bytes:
        raise FloodError.of(
            "output-flood",
            excess=f"it printed more than {max_bytes / 1024**2:g} MiB and was ended",
        )


def start_process(
    transport: "paramiko.Transport", command: str, kind: type[RemoteProcess] = RemoteProcess
) -> RemoteProcess:
    """Start `command` and leave its standard input open. Raises RemoteError."""
    import paramiko

    try:
        return kind(transport, command)
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise RemoteError.of("ssh-session", problem=str(error) or type(error).__name__) from error


class LocalProcess(LineReader):
    """A process of this machine; closing its standard input asks it to end.

    Raises OSError if it cannot be started.

    `lost_status` is the exit status with which it reports a lost connection to the machine that
    runs the work.
    """

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, lost_status: int | None = None
    ) -> None:
        super().__init__()
        self._lost_status = lost_status
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            env=env,
            cwd=cwd,
            # Ctrl-C must not reach the process, which ends when its input is closed
            start_new_session=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout

    def send(self, data: bytes) -> None:
        """Write to its standard input. Raises OSError if the command does not take it."""
        self._stdin.write(data)

    def close_stdin(self) -> None:
        with suppress(OSError):
            self._stdin.close()

    def read(self, timeout_s: float) -> bytes | None:
        readable, _, _ = select.select([self._stdout], [], [], timeout_s)
        if not readable:
            return b""
        data = os.read(self._stdout.fileno(), _CHUNK_BYTES)
        self.received_bytes += len(data)
        return data or None

    def exit_status(self) -> int | None:
        """Return the exit status; None if the process still runs after its output ended, or has
        lost the connection.
        """
        with suppress(subprocess.TimeoutExpired):
            status = self._process.wait(_EXIT_S)
            return None if status == self._lost_status else status
        return None

    def close(self, grace_s: float) -> None:
        """End the process: close its input, discard its output, and kill what still runs after
        `grace_s`.
        """
        self.close_stdin()
        deadline = time.monotonic() + grace_s
        while (left_s := deadline - time.monotonic()) > 0 and self.read(left_s) is not None:
            pass
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()
