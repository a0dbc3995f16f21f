"""`seatrial history --links`: when each link between two nodes was last measured."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import combinations
from typing import TYPE_CHECKING, Any

from seatrial.checks.connectivity.reachability import link_name
from seatrial.history.rows import RunRow
from seatrial.report.console import output, table

if TYPE_CHECKING:
    from pandas import DataFrame

_SHOWN = 10  # links, the oldest first
_AGES = (("1 day", 1), ("7 days", 7), ("30 days", 30), ("365 days", 365))


def link_ages(newest: RunRow, nodes: Iterable[str], measured: Mapping[str, datetime]) -> "DataFrame":
    """One row per link between `nodes`, those of the newest run, by name.

    Columns: `link`, `last_measured` (NaT: in no run that is kept) and `age_days`, up to the start of the newest run.
    """
    import pandas as pd

    frame = pd.DataFrame({"link": sorted(link_name(*ends) for ends in combinations(nodes, 2))}, dtype=object)
    frame["last_measured"] = pd.to_datetime(frame["link"].map(dict(measured)), utc=True)
    frame["age_days"] = (pd.Timestamp(newest.started) - frame["last_measured"]).dt.total_seconds() / 86_400
    return frame


def link_ages_json(newest: RunRow, nodes: int, ages: "DataFrame") -> dict[str, Any]:
    """Every link, with null where no run has measured it."""
    times = [
        at.isoformat() if known else None
        for at, known in zip(ages["last_measured"], ages["last_measured"].notna(), strict=True)
    ]
    links = dict(zip(ages["link"], times, strict=True))
    return {"cluster": newest.cluster, "nodes": nodes, "now": newest.started.isoformat(), "links": links}


def show_link_ages(newest: RunRow, nodes: int, ages: "DataFrame") -> None:
    """How many links were measured in the last day, week, month and year, and those that were measured longest ago."""
    console = output()
    console.print(f"{newest.cluster}: {len(ages):,} links between {nodes:,} nodes", highlight=False)
    within = [(f"in the last {words}", f"{(ages['age_days'] < days).sum():,}") for words, days in _AGES]
    never = ("never", f"{ages['age_days'].isna().sum():,}")
    console.print(table(("measured", "links"), [*within, never], console.encoding))
    oldest = ages.dropna().sort_values("age_days", ascending=False, kind="stable")[:_SHOWN]
    if len(oldest):
        times = [f"{at.to_pydatetime().astimezone():%Y-%m-%d %H:%M}" for at in oldest["last_measured"]]
        local = zip(oldest["link"], times, strict=True)
        console.print(table(("measured longest ago", "last measured"), local, console.encoding))
