"""Pinned baselines, and a run beside them: as tables or as JSON."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from seatrial.history.rows import Pin
from seatrial.judge.baselines.promote import Difference
from seatrial.text.numbers import short


def pins_table(pins: Iterable[Pin]) -> Table:
    """One line per pin: what it expects, who approved it, when, and from which run."""
    table = _table("series", "expected", "unit", "by", "on", "run", "note")
    for pin in pins:
        who = (pin.pinned_by, f"{pin.pinned_at:%Y-%m-%d}", pin.run_id or "", pin.note)
        table.add_row(*map(Text, (_readable(pin.series), _expected(pin), pin.unit, *who)))
    return table


def pins_json(pins: Mapping[str, Pin]) -> list[dict[str, Any]]:
    return [_pin_dict(pin) for pin in pins.values()]


def differences_table(found: Iterable[Difference]) -> Table:
    """One line per pin: what it expects, what the run measured, and how far off that is."""
    table = _table("series", "pinned", "expected", "run", "unit", "off", "")
    for d in found:
        value = "not measured" if d.value is None else short(d.value)
        off = "" if d.deviation is None else f"{d.deviation:+.1%}"
        table.add_row(
            *map(Text, (_readable(d.pin.series), short(d.pin.centre), _expected(d.pin), value, d.pin.unit, off)),
            Text("outside", "bold red") if d.inside is False else Text(""),
        )
    return table


def differences_json(found: Iterable[Difference]) -> list[dict[str, Any]]:
    return [{**_pin_dict(d.pin), "value": d.value, "deviation": d.deviation, "inside": d.inside} for d in found]


def _pin_dict(pin: Pin) -> dict[str, Any]:
    return {
        "series": pin.series,
        "centre": pin.centre,
        "expected": {"low": pin.low, "high": pin.high},
        "unit": pin.unit,
        "pinned_by": pin.pinned_by,
        "pinned_at": pin.pinned_at.isoformat(timespec="seconds"),
        "run_id": pin.run_id,
        "note": pin.note,
    }


def _expected(pin: Pin) -> str:
    parts = (
        f"at least {short(pin.low)}" if pin.low is not None else "",
        f"at most {short(pin.high)}" if pin.high else "",
    )
    return ", ".join(part for part in parts if part)


def _readable(series: str) -> str:
    """busbw|cluster:lab|operation=all_reduce,ranks=4 without the separators."""
    metric, subject, conditions = series.split("|", 2)
    return " ".join(part for part in (metric, subject.partition(":")[2], conditions.replace(",", " ")) if part)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading)
    return table
