"""`seatrial history --links`: when each link between two nodes was last measured."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import combinations
from typing import Any, Self

from seatrial.checks.connectivity.reachability import link_name
from seatrial.history.rows import RunRow
from seatrial.report.console import output, table

_SHOWN = 10  # links, the oldest first
_AGES = (("1 day", 1), ("7 days", 7), ("30 days", 30), ("365 days", 365))


@dataclass(frozen=True, slots=True)
class LinkAges:
    """Of the links between the nodes of the newest run, which started at `now`: when each was last measured.

    None: no run that is kept has measured it.
    """

    cluster: str
    nodes: int
    now: datetime
    measured: Mapping[frozenset[str], datetime | None]

    @classmethod
    def of(cls, newest: RunRow, nodes: Iterable[str], measured: Mapping[str, datetime]) -> Self:
        """`measured`: by the name of the link, as `link_name` makes it; a node's own name may have -- in it."""
        names = sorted(nodes)
        started = {frozenset(ends): measured.get(link_name(*ends)) for ends in combinations(names, 2)}
        return cls(newest.cluster, len(names), newest.started, started)

    @property
    def never(self) -> int:
        """How many links no run has measured."""
        return sum(started is None for started in self.measured.values())

    def within(self, days: int) -> int:
        """How many links were measured in that time before the newest run."""
        return sum(
            started is not None and self.now - started < timedelta(days=days) for started in self.measured.values()
        )

    def oldest(self) -> list[tuple[str, datetime]]:
        """The links with the oldest measurements, oldest first."""
        known = [(link_name(*link), started) for link, started in self.measured.items() if started]
        return sorted(known, key=lambda entry: entry[1])[:_SHOWN]

    def to_dict(self) -> dict[str, Any]:
        """As JSON: every link, with null where no run has measured it."""
        by_name = {link_name(*link): started for link, started in self.measured.items()}
        links = {name: started.isoformat() if started else None for name, started in sorted(by_name.items())}
        return {"cluster": self.cluster, "nodes": self.nodes, "now": self.now.isoformat(), "links": links}


def show_link_ages(ages: LinkAges) -> None:
    """How many links were measured in the last day, week, month and year, and those that were measured longest ago."""
    console, total = output(), len(ages.measured)
    console.print(f"{ages.cluster}: {total:,} links between {ages.nodes:,} nodes", highlight=False)
    rows = [(f"in the last {words}", f"{ages.within(days):,}") for words, days in _AGES]
    console.print(table(("measured", "links"), [*rows, ("never", f"{ages.never:,}")], console.encoding))
    if oldest := ages.oldest():
        local = [(name, started.astimezone().strftime("%Y-%m-%d %H:%M")) for name, started in oldest]
        console.print(table(("measured longest ago", "last measured"), local, console.encoding))
