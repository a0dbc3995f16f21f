"""What the suites that ship with the package will do on given nodes, and how long that takes."""

from dataclasses import dataclass
from pathlib import Path

from seatrial.checks.planned import PlannedNodes, PlannedPart
from seatrial.checks.suites import SHIPPED, load_suite
from seatrial.checks.table import CHECKS
from seatrial.config.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Outline:
    """A suite on `nodes`: its purpose in a sentence, and the parts of each check by the check's name.

    Bringing nodes up and comparing the numbers comes on top.
    """

    suite: str
    purpose: str
    nodes: PlannedNodes
    parts: tuple[tuple[str, PlannedPart], ...]

    @property
    def about_s(self) -> float:
        return sum(part.about_s for _, part in self.parts)

    @property
    def most_s(self) -> float:
        return sum(part.most_s for _, part in self.parts)


def outline(name: str, nodes: PlannedNodes) -> Outline:
    """The shipped suite of that name."""
    suite = load_suite(name)
    sections = ((kind, suite.section(kind.section)) for kind in CHECKS)
    parts = tuple(
        (kind.name, part)
        for kind, section in sections
        if section is not None and nodes.ranks >= kind.least_ranks
        for part in kind.plan(section, nodes)
    )
    return Outline(name, _purpose(name), nodes, parts)


def outlines(nodes: PlannedNodes) -> list[Outline]:
    """Every suite that ships with the package."""
    return [outline(name, nodes) for name in SHIPPED]


def nodes_of(cluster: Cluster) -> PlannedNodes:
    return PlannedNodes(cluster.nodes, cluster.slots, bool(cluster.gpus))


def _purpose(name: str) -> str:
    """The comment that the file begins with."""
    first = (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip()
