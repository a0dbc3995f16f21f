"""Find a run by what people call it."""

from pathlib import Path

from seatrial.errors import InputError


def find_run(run: str) -> Path:
    """The folder or run.json of a run, given by its path, or by its id below runs/ or in the history.

    Raises InputError.
    """
    for path in (Path(run), Path("runs") / run):
        if path.exists():
            return path
    return _remembered(run)


def _remembered(run_id: str) -> Path:
    from seatrial.history import open_store

    with open_store() as store:
        row = store.run(run_id)
    if row is None:
        raise InputError(f"RUN {run_id}: neither a folder nor a run of the history; `seatrial history` lists those")
    if not (Path(row.out) / "run.json").exists():
        raise InputError(f"RUN {run_id}: its folder {row.out} has no run.json any more; give the folder it is in now")
    return Path(row.out)
