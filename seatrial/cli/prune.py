"""`seatrial prune`: remove old runs, their logs and their rows of the history."""

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli.options import FILE, json_option, name_of, print_json
from seatrial.model.errors import InputError, SeatrialError

if TYPE_CHECKING:
    from seatrial.runs.retention import Outcome

_HOURS = {"h": 1, "d": 24, "w": 7 * 24}
_AGE = re.compile(r"([1-9]\d{0,4})([hdw])", re.ASCII)


@click.command()
@click.argument("cluster", required=False)
@click.option("--older-than", "age", metavar="AGE", help="Remove runs that started longer ago: 12h, 30d or 8w.")
@click.option("--keep", type=click.IntRange(1, 1_000_000), metavar="N", help="Keep the newest N runs of each cluster.")
@click.option("--runs", type=FILE, default="runs", show_default=True, help="Folder that holds the folders of runs.")
@click.option("--yes", is_flag=True, help="Remove them; without this option, only list them.")
@json_option
def prune(cluster: str | None, age: str | None, keep: int | None, runs: Path, yes: bool, as_json: bool) -> None:
    """Remove old runs of CLUSTER (a name or a cluster file), or of all clusters: folders and rows of the history.

    Lists what it would remove; --yes removes it. With both --older-than and --keep, a run goes only if both let it go.
    The last run that passed, runs that baselines are pinned from, and runs at work always stay.
    """
    from seatrial.model.reason import Reason
    from seatrial.runs.prune import Limits
    from seatrial.runs.retention import prune_runs

    if age is None and keep is None:
        raise InputError("prune: needs --older-than AGE (such as 30d), --keep N, or both")
    limits = Limits(_duration(age) if age is not None else None, keep)
    outcome = prune_runs(runs, limits, cluster and name_of(cluster), delete=yes)
    if as_json:
        print_json(outcome.to_dict())
    else:
        _show(outcome)
    if outcome.failed:
        first = outcome.failed[0]
        raise SeatrialError(Reason.of("run-not-removed", name=first.name, problem=first.problem))


def _duration(age: str) -> timedelta:
    if (match := _AGE.fullmatch(age)) is None:
        raise InputError(f"--older-than {age!r}: must be a whole number of 1 or more and h, d or w, such as 30d")
    return timedelta(hours=int(match[1]) * _HOURS[match[2]])


def _show(outcome: "Outcome") -> None:
    from seatrial.text.words import plain

    for folder in outcome.folders:
        started = f"{folder.header.started:%Y-%m-%d %H:%M}" if folder.header else "never ended"
        verdict = folder.header.verdict.value if folder.header else "-"
        print(f"{plain(folder.name)}  {started}  {verdict}  {_size(folder.size_bytes)}")
    for skipped in outcome.skipped:
        print(f"left: {plain(skipped.name)}: {plain(skipped.problem)}")
    folders = f"{len(outcome.folders)} folder{'' if len(outcome.folders) == 1 else 's'}"
    total = f"{folders}, {_size(outcome.size_bytes)}; {outcome.rows} runs of the history"
    print(f"removed: {total}" if outcome.deleted else f"would remove: {total}; --yes removes them")


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
