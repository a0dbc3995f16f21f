"""Run a build as a child process with its output in the log, and end it whatever happens."""

import codecs
import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from seatrial.builders.failures import build_failure
from seatrial.builders.plan import BuildPlan
from seatrial.config.image import TIMEOUT_S
from seatrial.model.errors import LaunchError, MissingError
from seatrial.model.reason import Reason
from seatrial.system.rawlog import RawLog
from seatrial.text.redact import Secrets

log = logging.getLogger("seatrial.image")

_GRACE_S = 10  # from TERM to KILL
_TAIL = 64 * 1024  # characters of the end of a build's output, which says why it failed


def need(program: str, next_step: str) -> None:
    """Raise MissingError if the program is not installed."""
    if not shutil.which(program):
        raise MissingError(Reason.of("builder-missing", program=program, remedy=next_step))


def ask(*argv: str, timeout_s: float = 30) -> str | None:
    """Return the output of a short command; None if it failed."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def run_build(argv: Sequence[str], plan: BuildPlan, log_file: Path) -> None:
    """Run a build to its end. Raises LaunchError with the cause when it fails or exceeds its time limit."""
    timeout_s = plan.config.timeout_s or TIMEOUT_S
    with RawLog(log_file, Secrets.of(os.environ), append=True) as out:
        out.write(f"+ {' '.join(argv)}\n")
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        late = threading.Event()
        timer = threading.Timer(timeout_s, _end_late, (child, late))
        timer.start()
        try:
            tail = _copy(child, out)
            status = child.wait()
        finally:
            timer.cancel()
            _end(child)
            assert child.stdout is not None
            child.stdout.close()
    if late.is_set():
        raise LaunchError(
            Reason.of("image-build-time-limit", image=plan.reference, timeout_s=timeout_s, log=str(log_file))
        )
    if status:
        raise LaunchError(build_failure(plan.reference, "the build failed", tail, log_file))


def _end_late(child: "subprocess.Popen[bytes]", late: threading.Event) -> None:
    late.set()
    _end(child)


def _copy(child: "subprocess.Popen[bytes]", out: RawLog) -> str:
    """Copy the output to the log; return its end."""
    assert child.stdout is not None
    decoder, tail = codecs.getincrementaldecoder("utf-8")("replace"), ""
    while data := os.read(child.stdout.fileno(), 65536):
        tail = _logged(out.write(decoder.decode(data)), tail)
    return _logged(out.close(), tail)


def _logged(text: str, tail: str) -> str:
    for line in text.splitlines():
        log.debug("%s", line)
    return (tail + text)[-_TAIL:]


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the child and its process group."""
    _signal(child, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE_S)
    _signal(child, signal.SIGKILL)
    child.wait()


def _signal(child: "subprocess.Popen[bytes]", number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)
