"""Find a run by what people call it: the path of its folder or run.json, or its id below runs/ or in the history."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.model.errors import InputError
from seatrial.runs.load import load_result

if TYPE_CHECKING:
    from seatrial.model.result import RunResult


log = logging.getLogger("seatrial.report")


def find_run(run: str) -> Path:
    """Where its files are. Raises InputError."""
    if path := _path(run):
        return path
    from seatrial.history import open_store

    with open_store() as store:
        row = store.run(run)
    if row is None:
        raise _unknown(run)
    if not _is_still_in(row.out, run):
        raise InputError(f"RUN {run}: its folder {row.out} has it no more; give the folder it is in now")
    return Path(row.out)


def run_of(run: str) -> "RunResult":
    """What it came to: by its files where they are still there, else by the history. Raises InputError."""
    if path := _path(run):
        return load_result(path)
    from seatrial.history import open_store

    with open_store() as store:
        row = store.run(run)
        if row and _is_still_in(row.out, run):
            return load_result(Path(row.out))
        stored = store.result(run)
    if stored is None:
        raise _unknown(run)
    return stored


def _path(run: str) -> Path | None:
    """Raises InputError for what no path can be."""
    try:
        return next((path for path in (Path(run), Path("runs") / run) if path.exists()), None)
    except OSError as error:  # too long, or in a folder that is closed to us
        raise InputError(f"RUN {run[:80]}: {error.strerror}; give a run's folder, its run.json or its id") from error


def _is_still_in(out: str, run_id: str) -> bool:
    """Whether nobody has removed it, damaged it, or used the folder for another run."""
    try:
        return (Path(out) / "run.json").exists() and load_result(Path(out)).run_id == run_id
    except InputError as error:
        log.warning("%s", error)
        return False


def _unknown(run: str) -> InputError:
    return InputError(f"RUN {run}: neither a folder nor a run of the history; `seatrial history` lists those")
