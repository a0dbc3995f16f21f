"""Records of runs that are at work on this machine, from which the next command closes a run that
was killed.

A record is a folder with the process, the folder that the run writes to, and the run.json that it
has if it is killed.
"""

import logging
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seatrial.model.errors import InputError
from seatrial.model.result import RunResult
from seatrial.runs.load import load_result
from seatrial.system.private import check_private_folder, closed_folder, read_private, write_private
from seatrial.system.process import Process, this_process
from seatrial.system.state_home import state_home

log = logging.getLogger("seatrial")

_FILE = "record.json"
_FILE_BYTES = 64 * 1024


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    pid: int = Field(gt=0, lt=2**31)
    started: int = Field(ge=0)
    boot: str = Field(max_length=100)
    out: str = Field(max_length=4096)
    flow_run: UUID


@dataclass(frozen=True, slots=True)
class RunAtWork:
    """A run that has begun here: the folder of its record, the folder that it writes to, and its
    flow run.
    """

    folder: Path
    out: Path
    flow_run: UUID
    was_killed: bool

    @property
    def run_id(self) -> str:
        return self.folder.name

    def result_if_killed(self) -> RunResult:
        """Return the result that was prepared when the run began.

        Raises InputError if it is broken.
        """
        return load_result(self.folder)

    def remove(self) -> None:
        """Remove the record: the run has ended, or is closed."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _root() -> Path:
    """Return the folder of this machine's records: homes may be shared."""
    return state_home() / "at-work" / socket.gethostname()


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


@contextmanager
def recorded(run_id: str, result_if_killed: str, out: Path, flow_run: UUID) -> Iterator[None]:
    """Keep a record of the run while the context lasts; without room for one, a warning.

    `result_if_killed` is the text of a run.json.
    """
    folder = _root() / run_id
    process = this_process()
    record = _Record(
        pid=process.pid, started=process.started, boot=_boot(), out=str(out), flow_run=flow_run
    )
    try:
        closed_folder(folder)
        write_private(folder / "run.json", result_if_killed)
        write_private(folder / _FILE, record.model_dump_json())
    except OSError as error:
        log.warning(
            "%s: %s; if this run is killed, no command says so", folder, error.strerror or error
        )
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def runs_at_work() -> list[RunAtWork]:
    """Return all runs with a record on this machine, by id.

    A record that is not this user's or is broken is left out.
    """
    root = _root()
    with suppress(OSError):
        check_private_folder(root)
        records = (read_record(folder) for folder in sorted(root.iterdir()))
        return [run for run in records if run]
    return []


def ids_at_work() -> set[str]:
    """Return the ids of all runs with a record, on other machines that share the home too."""
    return {folder.name for folder in _root().parent.glob("*/*")}


def read_record(folder: Path) -> RunAtWork | None:
    """Return the run of a record; None if the record is another user's or broken."""
    try:
        check_private_folder(folder)
        record = _Record.model_validate_json(read_private(folder / _FILE, _FILE_BYTES))
    except (OSError, ValidationError, InputError):
        return None
    lives = record.boot == _boot() and Process(record.pid, record.started).alive
    return RunAtWork(folder, Path(record.out), record.flow_run, not lives)


def killed_runs() -> list[RunAtWork]:
    """Return the runs whose process was killed."""
    return [run for run in runs_at_work() if run.was_killed]
