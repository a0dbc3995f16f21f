"""`seatrial status` and `watch`: runs that are not over."""

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from seatrial.cli.options import baseline_option, json_option, print_json
from seatrial.model.errors import InputError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.result import exit_status
from seatrial.text.printable import printable

if TYPE_CHECKING:
    from seatrial.model.result import RunResult

_LOOK_S = 0.5
_LOG = Path("logs", "run.log")


@click.command()
@json_option
def status(as_json: bool) -> None:
    """List this user's runs whose nodes are up on this machine, or were left behind by a run that was killed."""
    from seatrial.platforms import state as states
    from seatrial.report.terminal import output, table

    listed = [_standing(run_id) for run_id in states.run_ids()]
    if as_json:
        print_json(listed)
    elif listed:
        console = output()
        console.print(
            table(list(listed[0]), (list(each.values()) for each in listed), console.encoding, ("state", "now"))
        )
    else:
        print("no run is up")


def _standing(run_id: str) -> dict[str, Any]:
    """Return the run, its cluster, whether it is at work, and the newest line of its log in runs/."""
    from seatrial.platforms import state as states
    from seatrial.text.lines import last_line
    from seatrial.text.tail import tail_of

    folder = states.find(run_id)
    if folder is None:  # it has ended meanwhile
        return {"run": run_id, "cluster": "", "state": "over", "now": ""}
    if states.is_abandoned(folder):
        state = f"left behind: seatrial reap --run {run_id}"
    else:
        state = "at work" if states.is_at_work(folder) else "kept"
    cluster, now = "", ""
    with suppress(InputError):  # it only just comes up
        cluster = states.recall(folder).name
    with suppress(OSError):  # its folder is another one
        now = last_line(tail_of(Path("runs", run_id) / _LOG).decode(errors="replace"))
    return {"run": run_id, "cluster": cluster, "state": state, "now": printable(now)}


@click.command()
@click.argument("run", metavar="RUN")
@baseline_option
def watch(run: str, require_baseline: bool) -> NoReturn:
    """Print the log of RUN (its folder or id) as it grows, until the run is over.

    Exit status: as for `seatrial run`; 3 if its process has gone without a verdict. Ctrl-C ends only the watching.
    """
    from seatrial.report.terminal import closing_lines
    from seatrial.runs.login import find_run

    found = find_run(run)
    folder = found if found.is_dir() else found.parent
    if not (folder / _LOG).is_file():
        raise InputError(f"RUN {run}: has no {_LOG}; give the folder that the run writes to")
    result = _followed(folder)
    print(closing_lines(result))
    sys.exit(exit_status(result.verdict, result.coverage, require_baseline))


def _followed(folder: Path) -> "RunResult":
    """Print the log's lines until run.json is there. Raises SeatrialError if the run's process has gone."""
    from seatrial.platforms import state as states
    from seatrial.runs.load import load_result

    with (folder / _LOG).open(encoding="utf-8", errors="replace") as log:
        while True:
            is_over = (folder / "run.json").exists()  # before the last lines are read
            for line in log:
                print(printable(line.rstrip("\n")), flush=True)
            if is_over:
                return load_result(folder)
            state = states.find(folder.resolve().name)
            if state and states.is_abandoned(state):
                raise SeatrialError(Reason.of("run-abandoned", name=folder.name))
            time.sleep(_LOOK_S)
