"""A command that this machine runs, read like one on a node."""

import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from seatrial.remote.command import LineReader

_CHUNK_BYTES = 64 * 1024
_EXIT_S = 10.0


class LocalProcess(LineReader):
    """Its standard input stays open until `close_stdin`, which asks it to end. Raises OSError where it is not there.

    `lost_status` is the exit status by which it says that it lost the machine that does the work.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, lost_status: int | None = None) -> None:
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
            start_new_session=True,  # a key that interrupts us is for us: closed input ends it
        )
        assert self._process.stdin
        assert self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def send(self, data: bytes) -> None:
        """Raises OSError when the command does not take it."""
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
        """None when it goes on after the end of its output, or has lost the machine that does the work."""
        with suppress(subprocess.TimeoutExpired):
            status = self._process.wait(_EXIT_S)
            return None if status == self._lost_status else status
        return None

    def close(self, grace_s: float) -> None:
        """End it: its input is closed, its output goes nowhere, and what has not left after `grace_s` is killed."""
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
