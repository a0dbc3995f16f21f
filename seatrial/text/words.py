"""Format numbers and names for people. Pure."""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.result import Expected, Suspect
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict
from seatrial.text.printable import printable

# A verdict is never told by colour alone.
GLYPHS: dict[str, str] = {
    Verdict.PASS: "✓",
    Verdict.DEGRADED: "▼",
    Verdict.FAIL: "✕",
    Verdict.CORRUPT: "≠",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NOT_RUN: "–",
}
MEANINGS: dict[str, str] = {
    Verdict.PASS: "measured, and within what is expected",
    Verdict.DEGRADED: "slower than expected, but above the floor",
    Verdict.FAIL: "below the floor, or the cluster broke the test",
    Verdict.CORRUPT: (
        "wrong numbers: results are not what they must be, the loss is not a number, or ranks "
        "disagree"
    ),
    Verdict.INCONCLUSIVE: "could not be measured; the reason says why, and it is never counted as a pass",
    Verdict.NOT_RUN: "a prerequisite is missing; the reason says which",
}
_UNITS = {"us": "µs", "percent": "%"}
# The order in which conditions are read, and how each is put.
_WORDS = {
    "operation": "{}",
    "arm": "{} arm",
    "message_bytes": "{}",
    "max_bytes": "up to {}",
    "dtype": "{}",
    "ranks": "{} ranks",
    "placement": "{}",
}
_ASCII = str.maketrans(
    {
        "–": "-",
        "≥": ">=",
        "≤": "<=",
        "µ": "u",
        "✓": "+",
        "○": "o",
        "▼": "v",
        "✕": "x",
        "≠": "!",
        "∞": "inf",
        "’": "'",
    }
)
_FORMATS = str.maketrans({"`": "'", "*": "∗", "~": "∼"})
# All_reduce stays as it is: within a word it formats nothing
_EDGE = re.compile(r"(?<!\w)_|_(?!\w)")
# Escapes differ from chat to chat, and a letter would show them, so these stay readable instead.
_LINKS = str.maketrans({"<": "‹", ">": "›", "[": "(", "]": ")", "@": "@\u200b"})


def nearest_of(name: str, legal: Iterable[str]) -> str:
    """Return the legal names that `name` resembles, as "nearest: A, B"; empty where none does."""
    import difflib

    by_lower = {each.lower(): each for each in legal}
    near = difflib.get_close_matches(name[:100].lower(), by_lower, 3, 0.5)
    return f"nearest: {', '.join(by_lower[each] for each in near)}" if near else ""


def number(value: float | None) -> str:
    """Format with three significant digits, never cutting whole numbers: 0.0123, 4.50, 386,
    1,234.
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if 99.95 <= abs(value) < 1e15 or (value == round(value) and abs(value) < 1e15):
        return f"{value:,.0f}"
    return f"{value:#.3g}"


def count(number: int, one: str) -> str:
    """Format a number of things: "1 node", "1,024 nodes"."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def moment(at: datetime) -> str:
    """Format a point in time: "26 Nov 2026 02:00 UTC"."""
    return at.strftime("%-d %b %Y %H:%M %Z")


def quantity(value: float | None, unit: str) -> str:
    """Format a number with its unit: "386 GB/s"."""
    return f"{number(value)} {unit_name(unit)}".strip() if value is not None else number(value)


def fraction(value: float) -> str:
    """Format a share: "86 %", "0.012 %"."""
    return f"{value * 100:.0f} %" if value >= 0.01 or value <= 0 else f"{value * 100:.2g} %"


def unit_name(unit: str) -> str:
    """Format a unit as people write it: us is µs."""
    return _UNITS.get(unit, unit)


def duration(seconds: float) -> str:
    """Format seconds with one decimal; from two minutes on, as minutes or hours."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def file_size(count: int) -> str:
    """Format bytes: "812 B", "2.4 kB", "15 MB"."""
    for unit, factor in (("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.{0 if count >= 10 * factor else 1}f} {unit}"
    return f"{count} B"


def interval(expected: Expected, unit: str = "") -> str:
    """Format an expected interval: "370 – 405 GB/s", "≥ 370 GB/s", or a dash without one."""
    low = expected.low
    high = expected.high
    if low is not None and high is not None:
        return f"{number(low)} – {quantity(high, unit)}"
    if low is not None:
        return f"≥ {quantity(low, unit)}"
    return f"≤ {quantity(high, unit)}" if high is not None else "–"


def percent(deviation: float | None) -> str:
    """Format a deviation as signed percent: -0.123 is "-12 %"."""
    if deviation is None or not math.isfinite(deviation):
        return "–"
    # No loss that is not total reads 100 %
    near = abs(deviation) < 0.0995 or 0.9945 < abs(deviation) < 1
    return f"{deviation * 100:+.1f} %" if near else f"{deviation * 100:+,.0f} %"


def some_of(names: Iterable[str], most: int = 4) -> str:
    """Format the first `most` names, and how many more there are: `a, b and 1,000 more`."""
    listed = list(names)
    more = f" and {len(listed) - most:,} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def metric_name(metric: str) -> str:
    """Format a metric: "busbw plateau"."""
    return metric.replace("_", " ")


def metric_of(measurement: Measurement) -> str:
    """Format the metric with its operation: "busbw plateau of all_reduce"."""
    operation = measurement.operation
    return metric_name(measurement.metric) + (f" of {operation}" if operation else "")


def subject_name(subject: Subject) -> str:
    """Return the name of the subject; empty for the cluster as a whole."""
    return "" if subject.kind == "cluster" else named(subject.kind, subject.name)


def named(kind: str, name: str) -> str:
    """Format a part with its kind, unless its name says it: "node-3", "node-3/gpu-1", "link
    node-0--node-3".
    """
    return name if kind == "node" or kind in name else f"{kind} {name}"


def suspect_name(suspect: Suspect, nodes: Iterable[Mapping[str, Any]] = ()) -> str:
    """Format the suspect, with its kind if its name does not say it, and its host name or address
    if in `nodes`.
    """
    name = named(suspect.kind, suspect.name)
    of = suspect.name.partition("/")[0]
    node = next((node for node in nodes if node.get("name") == of), {})
    host = next(
        (str(node[key]) for key in ("hostname", "address") if node.get(key) not in (None, "", of)),
        "",
    )
    return f"{name} ({host})" if host else name


def measured(m: Measurement) -> str:
    """Format what was measured, to begin a sentence: all_reduce busbw 0.0200 GB/s at 16M on
    node-3.
    """
    size = m.conditions.get("message_bytes")
    parts = (
        m.operation or "",
        f"{m.metric} {quantity(m.value, m.unit)}".strip(),
        f"at {format_size(size)}" if isinstance(size, int) else "",
        "in place" if m.conditions.get("placement") == "in_place" else "",
        f"on {m.subject.name}" if m.subject.kind != "cluster" else "",
    )
    return " ".join(part for part in parts if part)


def condition_words(measurement: Measurement, without: tuple[str, ...] = ()) -> str:
    """Format the conditions: "all_reduce, 16M, float32, 64 ranks, in place"."""
    present = [
        key
        for key in (*_WORDS, *sorted(set(measurement.conditions) - set(_WORDS)))
        if key in measurement.conditions
    ]
    return ", ".join(
        _condition(key, measurement.conditions[key]) for key in present if key not in without
    )


def measurement_name(measurement: Measurement) -> str:
    """Format one measurement as a phrase: "busbw of all_reduce, 16M, float32 on node-3"."""
    conditions = condition_words(measurement)
    subject = subject_name(measurement.subject)
    return (
        metric_name(measurement.metric)
        + (f" of {conditions}" if conditions else "")
        + (f" on {subject}" if subject else "")
    )


def plain(text: object, encoding: str = "utf-8") -> str:
    """Return `text` on one line, without control characters, in characters that `encoding` has."""
    line = " ".join(printable(str(text)).split())
    try:
        return line.encode(encoding, "strict").decode(encoding)
    except (UnicodeEncodeError, LookupError):
        return line.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


def unformatted(line: str) -> str:
    """Replace the markup of chats in `line` by characters that look the same: most chats have no
    escape for it.
    """
    return _EDGE.sub("ˍ", line.translate(_FORMATS))


def harmless(text: object) -> str:
    """Return `text` on one line without mentions and links, for mail and for chats with unknown
    markup.
    """
    return unformatted(plain(text)).translate(_LINKS)


def _condition(key: str, value: ConditionValue) -> str:
    if key in ("message_bytes", "max_bytes") and isinstance(value, int):
        return _WORDS[key].format(format_size(value))
    if key == "placement":
        return str(value).replace("_", " ")
    return _WORDS.get(key, f"{key} {{}}").format(value)
