"""How much of a cluster has passed a test lately, and the GPU hours that tests took. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import combinations_with_replacement
from typing import Any

from seatrial.config.qualify import Qualify
from seatrial.history.node_tests import NodeTest
from seatrial.model.result import Document
from seatrial.platforms.service import ServiceNode
from seatrial.qualify.evidence import LONG_AGO, Evidence, Pair, pair_of
from seatrial.text.hostlist import host_list

Ages = Mapping[str, timedelta | None]  # age by node or GPU; None if never tested
_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The age of the last passed test of each node, each GPU, and each pair of leaf switches; None
    if none passed.

    A pair of a leaf switch with itself stands for two nodes behind that switch. `max_age` is the
    limit for nodes and GPUs, `pair_max_age` for pairs; `gpu_hours_week` are the GPU hours of tests
    in the last seven days.
    """

    nodes: Ages
    gpus: Ages
    pairs: Mapping[Pair, timedelta | None]
    max_age: timedelta
    pair_max_age: timedelta
    gpu_hours_week: float

    @property
    def overdue_nodes(self) -> list[str]:
        """The nodes that did not pass within `max_age`, the oldest test first."""
        return overdue(self.nodes, self.max_age)

    @property
    def overdue_gpus(self) -> list[str]:
        """The GPUs that did not pass within `max_age`, the oldest test first."""
        return overdue(self.gpus, self.max_age)

    @property
    def overdue_pairs(self) -> list[Pair]:
        """The pairs that did not pass within `pair_max_age`, the oldest test first."""
        return overdue(self.pairs, self.pair_max_age)

    @property
    def share(self) -> float:
        """The share of nodes that passed within `max_age`; 1 without nodes."""
        if not self.nodes:
            return 1.0
        return 1 - len(self.overdue_nodes) / len(self.nodes)

    def lines(self) -> list[str]:
        """Return lines for people: the share, and what is overdue, the oldest first."""
        late = self.overdue_nodes
        all_nodes = len(self.nodes)
        days = f"{self.max_age / _DAY:g} days"
        covered = f"{all_nodes - len(late)} of {all_nodes} nodes passed within {days}"
        if late:
            covered += f"; {host_list(late)}: {_oldest(self.nodes, late)}"
        lines = [covered]
        late_gpus = self.overdue_gpus
        if late_gpus:
            oldest = _oldest(self.gpus, late_gpus)
            lines.append(f"{len(late_gpus)} of {len(self.gpus)} GPUs: {oldest}")
        if self.pairs:
            passed = len(self.pairs) - len(self.overdue_pairs)
            within = f"within {self.pair_max_age / _DAY:g} days"
            lines.append(f"{passed} of {len(self.pairs)} pairs of leaf switches passed {within}")
        lines.append(f"checks took {self.gpu_hours_week:.1f} GPU hours in the last 7 days")
        return lines

    def to_dict(self) -> Document:
        """Return the document of the coverage, ages in seconds; null where none passed."""
        pairs = []
        for pair, age in self.pairs.items():
            pairs.append({"groups": list(pair), "age_s": _seconds(age)})
        return {
            "nodes": {name: _seconds(age) for name, age in self.nodes.items()},
            "gpus": {name: _seconds(age) for name, age in self.gpus.items()},
            "pairs": pairs,
            "overdue_nodes": self.overdue_nodes,
            "overdue_pairs": [list(pair) for pair in self.overdue_pairs],
            "share": self.share,
            "gpu_hours_week": self.gpu_hours_week,
        }


def coverage(
    nodes: Sequence[ServiceNode],
    evidence: Evidence,
    settings: Qualify,
    gpus_per_node: int,
    measured_gpus: Mapping[str, datetime],
) -> Coverage:
    """Return the coverage of `nodes`.

    `measured_gpus` has the time of the last measurement of each GPU, by NODE/gpu-N.
    """
    ages = {}
    gpus = {}
    for node in nodes:
        age = None
        since_test = evidence.age(node.name)
        if since_test < LONG_AGO:
            age = since_test
        ages[node.name] = age
        for number in range(gpus_per_node):
            name = f"{node.name}/gpu-{number}"
            measured = measured_gpus.get(name)
            gpus[name] = _gpu_age(age, measured, evidence.now)
    return Coverage(
        nodes=ages,
        gpus=gpus,
        pairs=_pairs(nodes, evidence),
        max_age=timedelta(days=settings.max_age_days),
        pair_max_age=timedelta(days=settings.pair_max_age_days),
        gpu_hours_week=gpu_hours(evidence.tests, evidence.now - _WEEK),
    )


def gpu_hours(tests: Iterable[NodeTest], since: datetime) -> float:
    """Return the GPU hours of tests that ended since then, including tests that gave way to other
    jobs.
    """
    return sum(test.gpu_hours for test in tests if test.ended >= since)


def overdue(ages: Mapping[Any, timedelta | None], limit: timedelta) -> list[Any]:
    """Return the keys whose age exceeds the limit or is None, the oldest first.

    Keys without an age come first; equal ages are in the order of the keys.
    """
    late = [name for name, age in ages.items() if age is None or age > limit]
    return sorted(late, key=lambda name: (-(ages[name] or LONG_AGO), name))


def _pairs(nodes: Sequence[ServiceNode], evidence: Evidence) -> dict[Pair, timedelta | None]:
    """Return the age of each pair of groups with two different nodes; empty if the platform has no
    groups.
    """
    members = Counter(node.group for node in nodes if node.group)
    ages = evidence.pair_ages({node.name: node.group for node in nodes})
    pairs = {}
    for first, second in combinations_with_replacement(sorted(members), 2):
        if first == second and members[first] == 1:
            continue
        pair = pair_of(first, second)
        pairs[pair] = ages.get(pair)
    return pairs


def _gpu_age(
    node_age: timedelta | None, measured: datetime | None, now: datetime
) -> timedelta | None:
    """Return the age of a GPU: that of its node's test if the GPU was measured then, else that of
    its own measurement.

    None if the node never passed, or the GPU was never measured.
    """
    if node_age is None or measured is None:
        return None
    return max(node_age, now - measured)


def _oldest(ages: Ages, names: Sequence[str]) -> str:
    """Return for how long the first of `names`, the oldest, has not been tested, in words."""
    age = ages[names[0]]
    if age is None:
        return "never tested"
    return f"untested for {age / _DAY:.0f} days at most"


def _seconds(age: timedelta | None) -> float | None:
    """Return an age in whole seconds, or None."""
    if age is None:
        return None
    return round(age.total_seconds())
