"""Pinned baselines, and a run beside them: as tables or as JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rich.text import Text

from seatrial.history.rows import Pin
from seatrial.report.console import output, table
from seatrial.runs.approve import PinDifference
from seatrial.text.numbers import short

_PINS = ("series", "expected", "unit", "by", "on", "run", "note")
_DIFFERENCES = ("series", "pinned", "expected", "run", "unit", "off", "")


def show_pins(pins: Iterable[Pin]) -> None:
    """One line per pin: what it expects, who approved it, when, and from which run."""
    console = output(width=400)
    rows = (
        (_readable(p.series), _expected(p), p.unit, p.pinned_by, f"{p.pinned_at:%Y-%m-%d}", p.run_id or "", p.note)
        for p in pins
    )
    console.print(table(_PINS, rows, console.encoding, folded=_PINS))


def pins_json(pins: Mapping[str, Pin]) -> list[dict[str, Any]]:
    return [_pin_dict(pin) for pin in pins.values()]


def show_differences(differences: Iterable[PinDifference]) -> None:
    """One line per pin: what it expects, what the run measured, and how far off that is."""
    console = output(width=400)
    rows = map(_difference_cells, differences)
    console.print(table(_DIFFERENCES, rows, console.encoding, folded=_DIFFERENCES))


def _difference_cells(d: PinDifference) -> tuple[str | Text, ...]:
    value = "not measured" if d.value is None else short(d.value)
    off = "" if d.deviation is None else f"{d.deviation:+.1%}"
    outside = Text("outside", "bold red") if d.inside is False else ""
    return _readable(d.pin.series), short(d.pin.centre), _expected(d.pin), value, d.pin.unit, off, outside


def differences_json(differences: Iterable[PinDifference]) -> list[dict[str, Any]]:
    return [{**_pin_dict(d.pin), "value": d.value, "deviation": d.deviation, "inside": d.inside} for d in differences]


def _pin_dict(pin: Pin) -> dict[str, Any]:
    fields = asdict(pin)
    expected = {"low": fields.pop("low"), "high": fields.pop("high")}
    return {**fields, "expected": expected, "pinned_at": pin.pinned_at.isoformat(timespec="seconds")}


def _expected(pin: Pin) -> str:
    parts = (
        f"at least {short(pin.low)}" if pin.low is not None else "",
        f"at most {short(pin.high)}" if pin.high else "",
    )
    return ", ".join(part for part in parts if part)


def _readable(series: str) -> str:
    """busbw|cluster:lab|operation=all_reduce,ranks=4|GB/s without the separators and the unit."""
    metric, subject, rest = series.split("|", 2)
    conditions = rest.rpartition("|")[0]
    return " ".join(part for part in (metric, subject.partition(":")[2], conditions.replace(",", " ")) if part)
