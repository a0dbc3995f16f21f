"""`seatrial compare`: what changed between two runs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli_options import json_option, print_json
from seatrial.errors import InputError

if TYPE_CHECKING:
    from seatrial.result import RunResult


@click.command()
@click.argument("before", metavar="RUN")
@click.argument("after", metavar="RUN")
@json_option
def compare(before: str, after: str, as_json: bool) -> None:
    """Say what changed from the first RUN to the second: verdicts, software, and what moved beyond its own noise.

    A RUN is a run's folder, its run.json, or its id in the history.
    """
    from seatrial.difference import difference
    from seatrial.report.compared import show_difference

    found = difference(_load(before), _load(after))
    if as_json:
        print_json(found.to_dict())
    else:
        show_difference(found)


def _load(run: str) -> "RunResult":
    """The run in that folder, or of that id. Raises InputError."""
    from seatrial.report.load import load_result

    path = Path(run)
    return load_result(path if path.exists() else _folder(run))


def _folder(run_id: str) -> Path:
    from seatrial.history import open_store

    with open_store() as store:
        row = store.run(run_id)
    if row is None:
        raise InputError(f"RUN {run_id}: neither a folder nor a run of the history; `seatrial history` lists those")
    if not (Path(row.out) / "run.json").exists():
        raise InputError(f"RUN {run_id}: its folder {row.out} has no run.json any more; give the folder it is in now")
    return Path(row.out)
