"""Progress of a run on the terminal and in its log file.

Everything is a log record of the logger `seatrial`, so that the terminal, the log file and Prefect
show the same; a step's start and end are records that carry `step`.
"""

import copy
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path

from rich.console import Console
from rich.status import Status
from rich.text import Text

from seatrial.system.private import private_folder, private_opener
from seatrial.text.printable import printable
from seatrial.text.redact import Secrets

log = logging.getLogger("seatrial.step")

STARTUP = "startup"  # of a process: imports, and Prefect's server
_LEVEL_STYLES = {logging.WARNING: "yellow", logging.ERROR: "bold red"}


@contextmanager
def step(name: str, timings: MutableMapping[str, float]) -> Iterator[None]:
    """Log start and end of a step, and add its seconds to `timings`."""
    started = time.monotonic()
    log.info("%s ...", name, extra={"step": name})
    try:
        yield
    finally:
        seconds = time.monotonic() - started
        timings[name] = timings.get(name, 0.0) + seconds
        log.info("%s: %.1f s", name, seconds, extra={"step": name, "seconds": seconds})


@dataclass(slots=True)
class _Running:
    """The step that runs, rendered anew several times a second: its number, what it waits for, and
    seconds.
    """

    name: str
    place: str
    awaited: str
    usual_s: float
    started: float = field(default_factory=time.monotonic)

    def __rich__(self) -> Text:
        seconds = f"{time.monotonic() - self.started:.0f} s"
        usual = f" of about {self.usual_s:.0f} s" if self.usual_s >= 1 else ""
        awaited = f", waiting for {self.awaited}" if self.awaited else ""
        return Text.assemble((self.name, "bold"), f"{self.place}{awaited}: {seconds}{usual}")


class TerminalHandler(logging.Handler):
    """Shows records on a terminal: each step with its lines below it, and a spinner for the step
    that runs.

    `steps` are those that are planned, each with what it waits for at first. `usual_s`, which may
    be filled later, has the seconds that they took last time.
    """

    def __init__(self, console: Console, secrets: Secrets, steps: Mapping[str, str] = {}) -> None:
        super().__init__()
        self.usual_s: Mapping[str, float] = {}
        self.console = console
        self._secrets = secrets
        self._steps = steps
        self._status: Status | None = None
        self._running: _Running | None = None
        self._heading: str | None = None  # of the step that runs, until its first line is shown

    def startup(self, age_s: float) -> None:
        """Show the time before the first step as a step of a process that started `age_s` ago."""
        self._begin(STARTUP, time.monotonic() - age_s)

    def emit(self, record: logging.LogRecord) -> None:
        name = getattr(record, "step", None)
        seconds = getattr(record, "seconds", None)
        with suppress(OSError):  # a terminal that has gone does not end a measurement
            if name is None:
                if self._running:
                    self._running.awaited = ""
                self._line(
                    self._secrets.out_of_line(record.getMessage()),
                    _LEVEL_STYLES.get(record.levelno, ""),
                )
            elif seconds is None:
                if self._running and self._running.name == STARTUP:
                    self._end(STARTUP, time.monotonic() - self._running.started)
                self._begin(name, time.monotonic())
            else:
                self._end(name, seconds)

    def _begin(self, name: str, started: float) -> None:
        self._heading = name
        names = list(self._steps)
        place = f" ({names.index(name) + 1} of {len(names)})" if name in self._steps else ""
        self._running = _Running(
            name, place, self._steps.get(name, ""), self.usual_s.get(name, 0.0), started
        )
        if self.console.is_interactive:
            self._status = self.console.status(self._running)
            self._status.start()

    def _line(self, text: str, style: str) -> None:
        if self._heading:
            self.console.print(f"  [bold]{self._heading}[/]", highlight=False)
            self._heading = None
        self.console.print(
            f"    {text}", style=style, markup=False, highlight=False, soft_wrap=True
        )

    def _end(self, name: str, seconds: float) -> None:
        self.stop()
        title = f"  [bold]{name:<12}[/] " if self._heading else "    "
        self.console.print(f"{title}[dim]{seconds:.1f} s[/]", highlight=False)
        self._heading = self._running = None

    def stop(self) -> None:
        """Stop the spinner."""
        if self._status:
            self._status.stop()
            self._status = None


class RedactingFormatter(logging.Formatter):
    """Formats records without secrets and control characters.

    Each record begins one line, and a trace stands below it, indented: no text can pass for another
    record.
    """

    def __init__(self, form: str, secrets: Secrets) -> None:
        super().__init__(form)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        plain = copy.copy(record)
        plain.msg = self._secrets.out_of_line(record.getMessage())
        plain.args = ()
        # Another handler's text of it may be kept there
        plain.exc_info = plain.exc_text = plain.stack_info = None
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        lines = self._secrets.out_of_text(trace).splitlines()
        return "\n".join([super().format(plain), *(f"    {printable(line)}" for line in lines)])


class _LogFileHandler(logging.FileHandler):
    """A file handler that ignores a full disk."""

    def _open(self) -> TextIOWrapper:
        descriptor = private_opener(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        return TextIOWrapper(os.fdopen(descriptor, "wb"), encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        with suppress(OSError):  # what could not be written is tried once more
            super().close()


@contextmanager
def log_file(path: Path, secrets: Secrets) -> Iterator[None]:
    """Log to `path` within the context, with timestamps and without `secrets`."""
    private_folder(path.parent)
    if path.is_symlink() or path.is_file():  # an earlier run's, or planted; never a device
        path.unlink()
    handler = _LogFileHandler(path, mode="w", encoding="utf-8")
    handler.setFormatter(
        RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", secrets)
    )
    logger = logging.getLogger("seatrial")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
