"""Run local programs with limits on environment, time and output, and call functions in
parallel.
"""

import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, NamedTuple, TypeVar

from seatrial.text.redact import looks_secret

_OUTPUT_BYTES = 32 * 1024**2  # squeue's line of a job on thousands of nodes is some 100 KiB
_ERROR_BYTES = 64 * 1024

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Finished(NamedTuple):
    """A command that has ended, with the start of its output and the end of its errors."""

    status: int
    output: str
    errors: str


def run_bounded(
    argv: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    *,
    stdin: bytes = b"",
    folder: str | None = None,
) -> Finished:
    """Run a command.

    Raises OSError where it does not start, subprocess.TimeoutExpired where it does not end.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        status = subprocess.run(
            argv,
            input=stdin,
            stdout=output,
            stderr=errors,
            env=env,
            cwd=folder,
            timeout=timeout_s,
            check=False,
        ).returncode
        output.seek(0)
        return Finished(status, output.read(_OUTPUT_BYTES).decode(errors="replace"), tail(errors))


def start_stream(
    argv: Sequence[str], env: Mapping[str, str], errors: int | BinaryIO = subprocess.DEVNULL
) -> "tuple[socket.socket, subprocess.Popen[bytes]]":
    """Start a command, and return a socket whose other end is its input and output.

    Raises OSError.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=errors, env=env
            )
        except OSError:
            ours.close()
            raise
    threading.Thread(target=process.wait, name=f"wait for {argv[0]}", daemon=True).start()
    return ours, process


def tail(file: BinaryIO) -> str:
    """Return the last 64 KiB of a file."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _ERROR_BYTES))
    return file.read(_ERROR_BYTES).decode(errors="replace")


def environment(kept: tuple[str, ...] = (), dropped: tuple[str, ...] = ()) -> dict[str, str]:
    """Return this process's environment without secrets, seatrial's and Prefect's variables, and
    prefixes in `dropped`.

    Variables with a prefix in `kept` are kept, secret or not.
    """
    dropped = ("SEATRIAL_", "PREFECT_", *dropped)
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(kept) or not (looks_secret(name) or name.startswith(dropped))
    }


def call_each(
    items: Iterable[Item], function: Callable[[Item], Answer], at_once: int
) -> list[Answer]:
    """Call the function for each item, `at_once` in parallel.

    Raises the first error once all have ended.
    """
    with ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(function, item) for item in items]
    return [future.result() for future in futures]
