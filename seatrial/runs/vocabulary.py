"""The words of results that are no codes: verdicts, checks, metrics, units and sources, each with
its meaning.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from seatrial.checks.metrics import CAMPAIGN_METRICS
from seatrial.checks.table import CHECKS
from seatrial.model.baseline import Source
from seatrial.model.verdict import Verdict
from seatrial.text.lines import one_line
from seatrial.text.words import MEANINGS, unit_name

UNITS = {
    "GB/s": "1e9 bytes a second; of busbw, bus bandwidth as nccl-tests has it",
    "MB/s": "1e6 bytes a second",
    "GB": "1e9 bytes",
    "TFLOP/s": "1e12 floating-point operations a second",
    "samples/s": "samples (images or sequences) a second, over all ranks",
    "tokens/s": "tokens of text a second; of each GPU where it says so",
    "files/s": "small files a second",
    "us": "microseconds, shown as µs",
    "ms": "milliseconds",
    "s": "seconds",
    "nats": "the unit of the loss: cross entropy by the natural logarithm",
    "MHz": "1e6 cycles a second",
    "W": "watts",
    "C": "degrees Celsius",
    "h": "hours",
    "%": "hundredths",
}
STEPS = {  # of a run or campaign, which have a verdict as checks have
    "launch": "brings the nodes up",
    "localize": "finds which part makes a collective slow (docs/localization.md)",
    "drift": "numbers that fell from the first to the last hour of a campaign (docs/suite-file.md)",
    "minutes": "errors and slowdowns that devices reported in a campaign",
}
SOURCES: dict[Source, str] = {
    "pinned": "a value that a person approved (docs/verdicts.md)",
    "history": "the number's own earlier runs, with its peers",
    "peers": "the same number on other nodes of this run",
    "catalog": "a published measurement of such hardware (docs/judging-logs.md)",
    "model": "what such links should reach by seatrial's model (docs/judging-logs.md)",
    "physics": "what the links can carry (docs/judging-logs.md)",
    "sanity": "nothing but that it is a finite number above zero",
}


@dataclass(frozen=True, slots=True)
class Word:
    """A word of results; `unit` is a metric's, `of` the check that measures it."""

    kind: Literal["verdict", "check", "metric", "unit", "source"]
    name: str
    meaning: str
    unit: str = ""
    of: str = ""
    exit_status: int | None = None

    def to_dict(self) -> dict[str, str | int]:
        texts = {"unit": self.unit, "check": self.of}
        named: dict[str, str | int] = {key: text for key, text in texts.items() if text}
        status = {} if self.exit_status is None else {"exit_status": self.exit_status}
        return {"name": self.name, "is": self.kind, "meaning": self.meaning, **named, **status}


def words() -> Iterator[Word]:
    """Yield every verdict, check, metric, unit and source of what a number is compared with."""
    for verdict in Verdict:
        yield Word("verdict", verdict.value, MEANINGS[verdict], exit_status=verdict.exit_status)
    for check in CHECKS:
        yield Word(
            "check",
            check.name,
            one_line((check.section.__doc__ or "").partition("\n\n")[0]),
        )
        for name, metric in check.metrics.items():
            yield Word(
                kind="metric", name=name, meaning=metric.meaning, unit=metric.unit, of=check.name
            )
    for name, metric in CAMPAIGN_METRICS.items():
        yield Word("metric", name, metric.meaning, metric.unit)
    yield from (Word("check", name, meaning) for name, meaning in STEPS.items())
    yield from (Word("unit", name, meaning) for name, meaning in UNITS.items())
    yield from (Word("source", name, meaning) for name, meaning in SOURCES.items())


def look_up(name: str) -> list[Word]:
    """Return the words of that name, as people may write it: "tcp egress", "µs", "gb/s"."""
    spelt = {name.lower(), name.lower().replace(" ", "_")}
    return [word for word in words() if {word.name.lower(), unit_name(word.name).lower()} & spelt]
