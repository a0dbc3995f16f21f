"""Try inputs on a target: what it may not do is raise an error that nobody wrote for people, or
take much.
"""

import resource
import shutil
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.fuzz.target import Target, inputs

MOST_S = 5.0  # of processor time
MOST_BYTES = 1 << 30  # of address space, beyond what the tests have already


class TooSlowError(BaseException):
    """No target catches it."""


def problems(
    target: Target, count: int, folder: Path, seed: int = 0, most_s: float = MOST_S
) -> list[str]:
    """One text per input that broke the target, with the number that makes it anew; the input lies
    in `folder`.
    """
    broken = []
    for number, data in inputs(target, count, seed):
        path = folder / f"{number}" / "run.json"
        path.parent.mkdir()
        path.write_bytes(data)
        if problem := _tried(target, path, most_s):
            broken.append(f"{target.name} {number}: {path}: {problem}")
        else:
            shutil.rmtree(path.parent)
    return broken


def _tried(target: Target, path: Path, most_s: float) -> str:
    try:
        with _bounded(most_s):
            target.read(path)
    except target.expected as error:
        return "the error has several lines" if "\n" in str(error) else ""
    except TooSlowError:
        return f"takes more than {most_s:g} s of processor time"
    except Exception:
        return traceback.format_exc(limit=-4)
    return ""


@contextmanager
def _bounded(most_s: float) -> Iterator[None]:
    """Raises TooSlowError where the block takes longer, MemoryError where it takes more than
    MOST_BYTES.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGPROF, _too_slow)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MOST_BYTES, before[1]))
        signal.setitimer(signal.ITIMER_PROF, most_s)
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def _too_slow(signal_number: int, frame: FrameType | None) -> None:
    raise TooSlowError


def _address_space() -> int:
    """Bytes that this process has mapped."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
