"""What the report shows besides the run's own result: earlier runs, and what lies beside it in the run's folder."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from seatrial.config.run import log_files as run_logs
from seatrial.model.errors import SeatrialError
from seatrial.model.result import RunResult
from seatrial.report.past import NO_PAST, EarlierRuns, past_of
from seatrial.system.private import read_opener
from seatrial.text.redact import Secrets

if TYPE_CHECKING:
    from seatrial.history.store import Store

log = logging.getLogger("seatrial.report")

LOG_TAIL_LINES = 60
MAX_LOGS = 3000


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file below `logs/`; `href` leads there from the report beside it."""

    name: str
    href: str
    size: int


@dataclass(frozen=True, slots=True)
class ReportContext:
    """`log_tail` are the last lines of the run's log, shown when the verdict is not a pass."""

    past: EarlierRuns = NO_PAST
    logs: tuple[LogFile, ...] = ()
    log_tail: tuple[str, ...] = ()


NO_CONTEXT = ReportContext()


def context_of(
    result: RunResult, folder: Path, store: "Store | None" = None, log_file: Path | None = None
) -> ReportContext:
    """What is known of the run in `folder`; what stops the store from being read is said there, and never raised."""
    return ReportContext(_past(result, store), log_files(folder), _tail(log_file or folder / "logs" / "run.log"))


def log_files(folder: Path) -> tuple[LogFile, ...]:
    """The files below `logs/`, those of the run before those of its nodes; links and empty files are left out."""
    paths = sorted((path for path in run_logs(folder) if path.stat().st_size), key=lambda path: len(path.parts))
    return tuple(_log_file(path.relative_to(folder), path.stat().st_size) for path in paths[:MAX_LOGS])


def _log_file(path: Path, size: int) -> LogFile:
    href = quote(os.fsencode(path.as_posix()))
    return LogFile(Path(*path.parts[1:]).as_posix(), href, size)


def _past(result: RunResult, store: "Store | None") -> EarlierRuns:
    if store is None:
        return EarlierRuns(problem="the history could not be opened")
    try:
        return past_of(result, store)
    except Exception as error:  # a report without its past is worth more than none
        problem = str(error) if isinstance(error, SeatrialError) else f"{type(error).__name__}: {error}"
        log.warning("the report goes without earlier runs: %s", problem)
        return EarlierRuns(problem=problem)


def _tail(log_file: Path) -> tuple[str, ...]:
    """The last lines, without secrets: a report is forwarded. A link may lead to anything: none is followed."""
    if not log_file.is_file() or log_file.is_symlink():
        return ()
    with open(log_file, "rb", opener=read_opener) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_LINES * 400))
        lines = file.read(LOG_TAIL_LINES * 400).decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    return tuple(line.rstrip("\n") for line in Secrets.of(os.environ).out_of(lines))
