"""The model of a suite file, made from the table of checks, and the shipped suites with their durations."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, create_model

from seatrial.checks.contract import PlannedNodes, PlannedPart
from seatrial.checks.table import CHECKS
from seatrial.config.cluster import Cluster
from seatrial.config.run import Suite
from seatrial.config.yamlfile import load_yaml
from seatrial.model.errors import InputError

SHIPPED = ("quick", "nightly", "acceptance", "a4-sweep", "resnet50-fp32")

_NEEDED = {kind.after for kind in CHECKS}


# `null` leaves a check out, unless others come after it.
_SECTIONS: dict[str, Any] = {
    kind.name: (
        kind.section if kind.name in _NEEDED else kind.section | None,
        Field(kind.default, description=kind.description),
    )
    for kind in CHECKS
}
SuiteFile: type[Suite] = create_model("Suite", __base__=Suite, __doc__=Suite.__doc__, **_SECTIONS)


def load_suite(name_or_path: str) -> Suite:
    """The shipped suite of that name, or the YAML file at that path. Raises InputError."""
    if name_or_path in SHIPPED:
        return load_yaml(Path(__file__).parent / f"{name_or_path}.yaml", SuiteFile)
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        raise InputError(f"suite {name_or_path!r}: unknown; legal: {', '.join(SHIPPED)}, or the path of a YAML file")
    return load_yaml(path, SuiteFile, {"name": path.stem})


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
    comment = (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0]
    return Outline(name, comment.removeprefix("#").strip(), nodes, parts)


def outlines(nodes: PlannedNodes) -> list[Outline]:
    """Every suite that ships with the package."""
    return [outline(name, nodes) for name in SHIPPED]


def nodes_of(cluster: Cluster) -> PlannedNodes:
    return PlannedNodes(cluster.nodes, cluster.slots, bool(cluster.gpus))
