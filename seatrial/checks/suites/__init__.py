"""The model of a suite file, made from the table of checks, and the shipped suites with their durations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, create_model

from seatrial.checks.contract import PlannedNodes, PlannedPart
from seatrial.checks.table import CHECKS
from seatrial.config.cluster import Cluster
from seatrial.config.run import Suite, part_name
from seatrial.config.yamlfile import load_yaml
from seatrial.model.errors import InputError

SHIPPED = ("quick", "nightly", "acceptance", "a4-sweep", "resnet50-fp32", "qualify", "qualify-pairs")

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


def part_of(suite: Suite, names: Sequence[str]) -> Suite:
    """The suite with only the checks of those names, and those that they come after.

    It has a name of its own, by which `whole_name` finds the suite: a part that passes must not pass for the whole.
    Raises InputError for a name that the suite does not have.
    """
    legal = [kind.name for kind in CHECKS if suite.section(kind.section)]
    if wrong := [name for name in names if name not in legal]:
        raise InputError(f"--only {wrong[0][:80]!r}: is no check of suite {suite.name}; legal: {', '.join(legal)}")
    left_out = {kind.name: None for kind in CHECKS if kind.name not in (*names, *_NEEDED)}
    chosen = ", ".join(name for name in legal if name in names)
    return suite.model_copy(update={**left_out, "name": part_name(suite.name, chosen)})


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
