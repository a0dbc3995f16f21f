"""The words of results that are no codes: verdicts, checks, metrics and units, each with its meaning."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from seatrial.checks.table import CHECKS
from seatrial.model.verdict import Verdict
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
}


@dataclass(frozen=True, slots=True)
class Word:
    """A word of results; `unit` is a metric's, `of` the check that measures it."""

    kind: Literal["verdict", "check", "metric", "unit"]
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
    """Every verdict, check, metric and unit."""
    for verdict in Verdict:
        yield Word("verdict", verdict.value, MEANINGS[verdict], exit_status=verdict.exit_status)
    for check in CHECKS:
        yield Word("check", check.name, " ".join((check.section.__doc__ or "").partition("\n\n")[0].split()))
        for name, metric in check.metrics.items():
            yield Word("metric", name, metric.meaning, metric.unit, check.name)
    for unit, meaning in UNITS.items():
        yield Word("unit", unit, meaning)


def look_up(name: str) -> list[Word]:
    """The words of that name, as people may write it: "tcp egress", "µs", "gb/s"."""
    spelt = {name.lower(), name.lower().replace(" ", "_")}
    return [word for word in words() if {word.name.lower(), unit_name(word.name).lower()} & spelt]
