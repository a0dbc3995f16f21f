"""The model of a suite file, made from the table of checks, and the shipped suites with their
durations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, Tag, WithJsonSchema, create_model, model_validator

from seatrial.checks.contract import PlannedNodes, PlannedPart
from seatrial.checks.devices.section import Devices
from seatrial.checks.table import CHECKS
from seatrial.config.cluster import Cluster
from seatrial.config.run import Suite, part_name
from seatrial.config.yamlfile import Strict, load_yaml
from seatrial.model.errors import InputError

SHIPPED = (
    "quick",
    "nightly",
    "acceptance",
    "a4-sweep",
    "resnet50-fp32",
    "qualify",
    "qualify-pairs",
)

_NEEDED = {kind.after for kind in CHECKS}


# `null` leaves out a check, unless other checks depend on it.
_SECTIONS: dict[str, Any] = {
    kind.name: (
        kind.section if kind.name in _NEEDED else kind.section | None,
        Field(kind.default, description=kind.description),
    )
    for kind in CHECKS
}
PhaseSuite: type[Suite] = create_model("Suite", __base__=Suite, __doc__=Suite.__doc__, **_SECTIONS)


# The type of the value selects the model, so that an error is about one of them only.
_PhaseSuite = Annotated[
    Annotated[str, Tag("name")] | Annotated[PhaseSuite, Tag("fields")],
    Discriminator(lambda suite: "name" if isinstance(suite, str) else "fields"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "$comment": "the fields of a suite file"},
            ]
        }
    ),
]


class Phase(Strict):
    """One suite of a campaign."""

    suite: _PhaseSuite = Field(
        description="a shipped suite, the path of a file, or a suite with a `name`"
    )
    synchronised: bool = Field(False, description="nodes begin together: a step in power")

    def load(self) -> Suite:
        """Return the suite. Raises InputError."""
        if isinstance(self.suite, str):
            return _read_suite(self.suite)
        return self.suite


class Campaign(Strict):
    """Phases in a loop until the time is over; the last one is not cut off.

    Time counts while nodes are up. The same command resumes a campaign that was killed.
    """

    hours: float | None = Field(None, gt=0, le=24 * 31, description="how long, in hours")
    minutes: float | None = Field(
        None, gt=0, le=24 * 60, description="how long, in minutes, instead"
    )
    phases: list[Phase] = Field(
        min_length=1, max_length=100, description="the suites, in their order"
    )
    stagger_s: float = Field(
        0, ge=0, le=3600, description="seconds over which nodes begin `devices`"
    )
    every_s: float = Field(
        60, ge=1, le=3600, description="seconds between readings of power, clocks and counters"
    )

    @model_validator(mode="after")
    def _has_one_length(self) -> Self:
        if (self.hours is None) == (self.minutes is None):
            raise ValueError("hours: give one of hours and minutes")
        return self

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return (self.hours or 0) * 3600 + (self.minutes or 0) * 60

    def suites(self) -> list[Suite]:
        """Return the suites of the phases, with the campaign's stagger. Raises InputError."""
        return [
            staggered(phase.load(), 0 if phase.synchronised else self.stagger_s)
            for phase in self.phases
        ]


def staggered(suite: Suite, stagger_s: float) -> Suite:
    """Return the suite with the start of `devices` spread over the nodes by `stagger_s`.

    Raises InputError if the suite is a campaign.
    """
    if suite.section(Campaign):
        raise InputError(
            f"campaign: phase {suite.name!r} is a campaign itself; legal: a suite of checks"
        )
    devices = suite.section(Devices)
    if devices is None or not stagger_s:
        return suite
    return suite.model_copy(update={"devices": devices.model_copy(update={"stagger_s": stagger_s})})


class _CampaignFile(PhaseSuite):
    """The checks to run on a testbed, or a campaign of suites."""

    campaign: Campaign | None = Field(None, description="suites in a loop, in place of checks")

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        named = [kind.name for kind in CHECKS if kind.name in self.model_fields_set]
        if self.campaign and named:
            raise ValueError(f"{named[0]}: belongs into a phase of the campaign")
        return self


SuiteFile: type[Suite] = _CampaignFile


def load_suite(name_or_path: str) -> Suite:
    """Return the shipped suite of that name, or the YAML file at that path. Raises InputError, also
    for phases of a campaign.
    """
    suite = _read_suite(name_or_path)
    if campaign := suite.section(Campaign):
        campaign.suites()
    return suite


def _read_suite(name_or_path: str) -> Suite:
    if name_or_path in SHIPPED:
        return load_yaml(Path(__file__).parent / f"{name_or_path}.yaml", SuiteFile)
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        raise InputError(
            f"suite {name_or_path!r}: unknown; legal: {', '.join(SHIPPED)}, or the path "
            "of a YAML file"
        )
    return load_yaml(path, SuiteFile, {"name": path.stem})


def part_of(suite: Suite, names: Sequence[str]) -> Suite:
    """Return the suite with only the named checks and the checks that they depend on.

    It gets a different name, from which `whole_name` recovers the suite's, so that a pass of a part
    is no pass of the suite. Raises InputError for an unknown name, and for a campaign.
    """
    if suite.section(Campaign):
        raise InputError(f"--only: suite {suite.name} is a campaign; legal: a suite of checks")
    legal = [kind.name for kind in CHECKS if suite.section(kind.section)]
    wrong = [name for name in names if name not in legal]
    if wrong:
        raise InputError(
            f"--only {wrong[0][:80]!r}: is no check of suite {suite.name}; legal: "
            f"{', '.join(legal)}"
        )
    left_out = {kind.name: None for kind in CHECKS if kind.name not in (*names, *_NEEDED)}
    chosen = ", ".join(name for name in legal if name in names)
    return suite.model_copy(update={**left_out, "name": part_name(suite.name, chosen)})


@dataclass(frozen=True, slots=True)
class Outline:
    """A suite planned for `nodes`: its purpose in a sentence, and (check name, part) for each part.

    Bringing nodes up and comparing results take additional time.
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
    """Return the shipped suite of that name."""
    suite = load_suite(name)
    sections = ((kind, suite.section(kind.section)) for kind in CHECKS)
    parts = tuple(
        (kind.name, part)
        for kind, section in sections
        if section is not None and nodes.ranks >= kind.least_ranks
        for part in kind.plan(section, nodes)
    )
    comment = (
        (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0]
    )
    return Outline(suite=name, purpose=comment.removeprefix("#").strip(), nodes=nodes, parts=parts)


def outlines(nodes: PlannedNodes) -> list[Outline]:
    """Return the outlines of all suites that ship with the package."""
    return [outline(name, nodes) for name in SHIPPED]


def nodes_of(cluster: Cluster) -> PlannedNodes:
    return PlannedNodes(cluster.nodes, cluster.slots, bool(cluster.gpus))
