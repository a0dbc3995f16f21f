"""A file of acceptance requirements: what must be measured, its limit, and who has agreed to an
exception.
"""

from collections import Counter
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from seatrial.checks.metrics import unit_of
from seatrial.config.yamlfile import Strict, load_yaml
from seatrial.model.errors import InputError
from seatrial.model.measurement import SubjectKind
from seatrial.model.sizes import parse_size
from seatrial.text.words import nearest_of

SHIPPED_FOLDER = Path(__file__).parent / "shipped"
SHIPPED = ("requirements", "clustermax", "gpu-cluster-testing", "azure-h100", "cvs-mi300x")
# Of the run; all others are of the measurement
RUN_CONDITIONS = ("nodes", "hardware", "suite", "cluster")

# Units that are exact multiples of each other: the quantity, and how much of it one is.
_SCALES = {
    "GB/s": ("rate", Fraction(8 * 10**9)),
    "MB/s": ("rate", Fraction(8 * 10**6)),
    "Gb/s": ("rate", Fraction(10**9)),
    "s": ("time", Fraction(1)),
    "ms": ("time", Fraction(1, 10**3)),
    "us": ("time", Fraction(1, 10**6)),
    "": ("share", Fraction(1)),
    "%": ("share", Fraction(1, 100)),
}

Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Word = Annotated[str, Field(min_length=1, max_length=100)]
Sentence = Annotated[str, Field(min_length=1, max_length=500)]
Number = Annotated[float, Field(strict=True)]
Condition = str | int | float | bool | None
Conditions = dict[str, Condition]  # by name


class Limit(Strict):
    """One bound of a number, or the verdict that the whole check must have."""

    at_least: Number | None = Field(
        None, description="the lowest number that meets the requirement"
    )
    at_most: Number | None = Field(
        None, description="the highest number that meets the requirement"
    )
    equals: Literal["pass"] | None = Field(
        None, description="the verdict of the check, with every number compared"
    )

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if len(self.model_fields_set) != 1 or self.words == "":
            raise ValueError("must have exactly one of at_least, at_most, equals, with a value")
        return self

    @property
    def words(self) -> str:
        """The limit without its unit: "at least 460"; empty without a value."""
        if self.at_least is not None:
            return f"at least {self.at_least:.12g}"
        if self.at_most is not None:
            return f"at most {self.at_most:.12g}"
        return self.equals or ""

    def is_met_by(self, value: Fraction) -> bool:
        """Return whether a number in the limit's unit is within it; exact, without rounding."""
        if self.at_least is not None:
            return value >= exact(self.at_least)
        return self.at_most is not None and value <= exact(self.at_most)


class Requirement(Strict):
    """A requirement: a number of a check, or the check's verdict, and its limit."""

    id: Id = Field(description="a name for contracts and tables: letters, digits, dots and dashes")
    text: Sentence = Field(description="what is required, in a sentence")
    check: Word = Field(description="the check that shows it")
    metric: Word | None = Field(
        None, description="the number of the check; none where the limit is a verdict"
    )
    limit: Limit = Field(description="the bound")
    unit: Annotated[str, Field(max_length=20)] | None = Field(
        None, description="the unit of the limit"
    )
    subject: SubjectKind | None = Field(
        None, description="the kind of part that each number is of; any if unset"
    )
    conditions: dict[Word, Condition] = Field(
        {},
        max_length=20,
        description="conditions of the measurement; nodes, hardware, suite and cluster of the run",
    )
    source: Annotated[str, Field(max_length=500)] = Field(
        "", description="the document that the limit is from"
    )

    @property
    def run_conditions(self) -> Conditions:
        """The conditions of the run; `number_conditions` are those of the measurement."""
        return {name: value for name, value in self.conditions.items() if name in RUN_CONDITIONS}

    @property
    def number_conditions(self) -> Conditions:
        return {
            name: value for name, value in self.conditions.items() if name not in RUN_CONDITIONS
        }

    @field_validator("conditions")
    @classmethod
    def _sizes(cls, conditions: Conditions) -> Conditions:
        """Read sizes as people write them: message_bytes: 16G."""
        return {
            name: parse_size(value) if name.endswith("_bytes") and value is not None else value
            for name, value in conditions.items()
        }

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.limit.equals:
            self._check_is_of_a_verdict()
            return self
        if self.metric is None:
            raise ValueError("metric: is required with at_least and at_most")
        if self.unit is None:
            raise ValueError(
                'unit: is required with at_least and at_most; "" for a number without one'
            )
        measured = unit_of(self.metric)
        if measured is not None and scale(measured, self.unit) is None:
            like = (
                unit for unit in _SCALES if unit != measured and scale(measured, unit) is not None
            )
            legal = ", ".join(map(repr, (measured, *like)))
            raise ValueError(
                f"unit: is {self.unit!r}, but {self.metric} is measured in {measured!r}; "
                f"legal: {legal}"
            )
        return self

    def _check_is_of_a_verdict(self) -> None:
        for name in ("metric", "unit", "subject"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name}: must be left out with equals, which is about the whole check"
                )
        wrong = list(self.number_conditions)
        if wrong:
            legal = ", ".join(RUN_CONDITIONS)
            raise ValueError(
                f"conditions: {wrong[0]} is of a measurement; legal with equals: {legal}"
            )


class Waiver(Strict):
    """An exception: somebody accepts that one requirement is not met, until a day."""

    id: Id = Field(description="the requirement")
    name: Word = Field(description="who accepts it")
    reason: Sentence = Field(description="why")
    until: date = Field(description="the last day of the exception, such as 2027-01-31")


class RequirementsFile(Strict):
    """Requirements that a cluster must meet to be accepted, and the exceptions."""

    name: Word = Field(description="the title of the certificate")
    requirements: list[Requirement] = Field(
        min_length=1, max_length=500, description="the requirements"
    )
    exceptions: list[Waiver] = Field(
        [], max_length=500, description="the exceptions, at most one for a requirement"
    )

    @model_validator(mode="after")
    def _ids_are_known(self) -> Self:
        known = Counter(requirement.id for requirement in self.requirements)
        for name, times in known.items():
            if times > 1:
                raise ValueError(
                    f"requirements: id {name!r} appears {times} times; each must be its own"
                )
        waived = Counter(waiver.id for waiver in self.exceptions)
        for name, times in waived.items():
            if name not in known:
                legal = nearest_of(name, known) or f"legal: {', '.join(list(known)[:20])}"
                raise ValueError(f"exceptions: id {name!r} is no requirement; {legal}")
            if times > 1:
                raise ValueError(
                    f"exceptions: id {name!r} appears {times} times; give one exception"
                )
        return self


def find(name_or_path: str) -> Path:
    """Return the shipped file of that name, or the path. Raises InputError."""
    if name_or_path in SHIPPED:
        return SHIPPED_FOLDER / f"{name_or_path}.yaml"
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        nearest = nearest_of(name_or_path, SHIPPED)
        legal = f"legal: {', '.join(SHIPPED)}, or the path of a YAML file"
        raise InputError(
            "; ".join(
                filter(None, (f"--requirements {name_or_path[:80]!r}: unknown", nearest, legal))
            )
        )
    return path


def load(path: Path) -> RequirementsFile:
    """Read a file of requirements. Raises InputError with a line for each error."""
    return load_yaml(path, RequirementsFile)


def exact(value: float) -> Fraction:
    """Return the decimal number that was written, which 0.95 as a binary number is not."""
    return Fraction(repr(value))


def scale(unit: str, to: str) -> Fraction | None:
    """Return the exact factor between two units; None if they are not of one quantity."""
    if unit == to:
        return Fraction(1)
    quantity, size = _SCALES.get(unit, ("", Fraction(0)))
    other, other_size = _SCALES.get(to, (None, Fraction(1)))
    return size / other_size if quantity == other else None
