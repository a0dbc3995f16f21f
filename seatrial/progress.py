"""What a run says while it works.

Everything is a log record of the logger `seatrial`, so that the terminal, the log file and Prefect show the same; a
step's start and end are records that carry `step`.
"""

import logging
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.status import Status

log = logging.getLogger("seatrial.step")

_LEVEL_STYLES = {logging.WARNING: "yellow", logging.ERROR: "bold red"}


@contextmanager
def step(name: str, timings: MutableMapping[str, float]) -> Iterator[None]:
    """Say that a step starts and ends, and add its seconds to `timings`."""
    started = time.monotonic()
    log.info("%s ...", name, extra={"step": name})
    try:
        yield
    finally:
        seconds = time.monotonic() - started
        timings[name] = timings.get(name, 0.0) + seconds
        log.info("%s: %.1f s", name, seconds, extra={"step": name, "seconds": seconds})


class TerminalHandler(logging.Handler):
    """Shows records on a terminal: a spinner with the step that runs, lines above it as they come."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._status: Status | None = None

    def emit(self, record: logging.LogRecord) -> None:
        name = getattr(record, "step", None)
        seconds = getattr(record, "seconds", None)
        if name is None:
            style = _LEVEL_STYLES.get(record.levelno, "")
            text = f"    {record.getMessage()}"
            self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
        elif seconds is None:
            self._begin(name)
        else:
            self._end(name, seconds)

    def _begin(self, name: str) -> None:
        if self._console.is_terminal:
            self._status = self._console.status(f"[bold]{name}[/]")
            self._status.start()

    def _end(self, name: str, seconds: float) -> None:
        self.stop()
        self._console.print(f"  [bold]{name:<14}[/] [dim]{seconds:6.1f} s[/]", highlight=False)

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._status:
            self._status.stop()
            self._status = None


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Keep everything that is said meanwhile in `path`, with the time of each line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("seatrial")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
