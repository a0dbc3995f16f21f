"""Run the system's ssh: what it may see of our environment, and streams through it to ports behind a host."""

import select
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence

from seatrial.platforms import commands
from seatrial.platforms.commands import tail
from seatrial.text.printable import printable

SSH_FAILED = 255  # the exit status of ssh itself


def tunnel(ssh: Sequence[str], host: str, target: str, timeout_s: float) -> socket.socket:
    """A stream to `target` (ADDRESS:PORT, as `host` sees it), where an sshd listens. Raises OSError."""
    ours, theirs = socket.socketpair()
    with theirs, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                [*ssh, "-W", target, host],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=errors,
                env=environment(),
            )
        except OSError:
            ours.close()
            raise
        theirs.close()
        threading.Thread(target=process.wait, name=f"tunnel to {host}", daemon=True).start()
        try:
            _wait_for_greeting(ours, timeout_s, lambda: tail(errors))
        except OSError:
            ours.close()
            process.kill()
            raise
    ours.settimeout(timeout_s)
    return ours


def _wait_for_greeting(stream: socket.socket, timeout_s: float, errors: Callable[[], str]) -> None:
    """sshd speaks first. Raises OSError where it does not, or the tunnel ends."""
    readable, _, _ = select.select([stream], [], [], timeout_s)
    if not readable:
        raise TimeoutError
    if not stream.recv(1, socket.MSG_PEEK):
        raise ConnectionError(printable(" ".join(errors().split()))[-300:] or "the tunnel ended")


def environment() -> dict[str, str]:
    """The environment of ssh: without secrets, with the way to the user's agent."""
    return commands.environment(kept=("SSH_",)) | {"LC_ALL": "C"}
