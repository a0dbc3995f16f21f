"""Listings on a terminal or as JSON: catalog, suites, pinned baselines, earlier runs, ages of
links.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import combinations, compress
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from seatrial.catalog import Listing
from seatrial.checks.connectivity.reachability import link_name
from seatrial.checks.suites import Outline
from seatrial.history.rows import Pin, RunRow
from seatrial.model.sizes import format_size
from seatrial.report.terminal import output, print_line, table, verdict_cell
from seatrial.runs.approve import PinDifference
from seatrial.text import words
from seatrial.text.words import number

if TYPE_CHECKING:
    from pandas import DataFrame


Json = dict[str, Any]  # an object
_COLLECTIVES = (
    "hardware",
    "nodes",
    "fabric",
    "collective",
    "algorithm",
    "arm",
    "size",
    "busbw",
    "kind",
    "source",
)
_DEVICES = ("hardware", "metric", "value", "kind", "source")
_TRAININGS = (
    "hardware",
    "GPUs",
    "model",
    "precision",
    "batch per GPU",
    "throughput",
    "kind",
    "source",
)
_PINS = ("series", "expected", "unit", "by", "on", "run", "note")
_DIFFERENCES = ("series", "pinned", "expected", "run", "unit", "off", "")


def show_catalog(listing: Listing) -> None:
    """Print three tables; nodes are nodes x GPUs per node.

    Lines are not wrapped without a terminal.
    """
    console = output()
    rows = (
        (r.hardware, f"{r.nodes} x {r.gpus_per_node}", r.fabric, r.collective, r.algorithm or "-", r.arm or "-",
         format_size(r.message_bytes), _range(r.low_gb_s, r.busbw_gb_s, "GB/s"), _kind(r.kind), r.source)
        for r in listing.collectives
    )  # fmt: skip
    figures = (
        (d.hardware, d.metric, f"{number(d.value)} {d.unit}", _kind(d.kind), d.source)
        for d in listing.devices
    )
    trained = (
        (t.hardware, f"{t.gpus}", t.model, f"{t.precision}{', compiled' if t.compile else ''}", f"{t.batch_per_rank}",
         _range(t.low_rate, t.rate, t.rate_unit), _kind(t.kind), t.source)
        for t in listing.trainings
    )  # fmt: skip
    for columns, lines in ((_COLLECTIVES, rows), (_DEVICES, figures), (_TRAININGS, trained)):
        grid = table(columns, lines, console.encoding, folded=("source",))
        if grid.row_count:
            console.print(grid)
            console.print()


def _range(low: float | None, value: float, unit: str) -> str:
    return f"{number(value)} {unit}" if low is None else f"{number(low)} to {number(value)} {unit}"


def _kind(kind: str) -> str:
    return "data sheet" if kind == "datasheet" else kind


def suites_json(outlines: Sequence[Outline]) -> Json:
    """Return {"suites": [{"suite", "purpose", "nodes", "about_s", "most_s", "parts": [{"check",
    "what", ...}]}]}.
    """
    return {
        "suites": [
            {
                "suite": outline.suite,
                "purpose": outline.purpose,
                "nodes": outline.nodes.words,
                "about_s": round(outline.about_s),
                "most_s": round(outline.most_s),
                "parts": [
                    {
                        "check": check,
                        "what": part.what,
                        "about_s": round(part.about_s),
                        "most_s": round(part.most_s),
                    }
                    for check, part in outline.parts
                ],
            }
            for outline in outlines
        ]
    }


def print_suites(outlines: Sequence[Outline]) -> None:
    """Print a table for each suite, its sums last. Lines are not wrapped without a terminal."""
    console = output()
    for outline in outlines:
        print_line(console, f"{outline.suite}: {outline.purpose}")
        rows = []
        before = ""
        for check, part in outline.parts:
            rows.append(
                (
                    check if check != before else "",
                    part.what,
                    rounded(part.about_s),
                    rounded(part.most_s),
                )
            )
            before = check
        rows.append(("all", "", rounded(outline.about_s), rounded(outline.most_s)))
        console.print(
            table(("check", "what", "about", "at most"), rows, console.encoding, folded=("what",))
        )
        console.print()
    nodes = outlines[0].nodes.words
    print_line(
        console, f"On {nodes}. Not included: bringing nodes up, and repeats of doubtful numbers."
    )


def rounded(seconds: float) -> str:
    """Format whole tens of seconds or whole minutes."""
    if seconds < 120:
        return f"{max(10, round(seconds, -1)):.0f} s"
    return words.duration(60 * round(seconds / 60)).removesuffix(" 0 s")


def show_pins(pins: Iterable[Pin]) -> None:
    """Print one line per pin: interval, approver, date and run."""
    console = output()
    rows = (
        (
            _readable(p.series),
            _expected(p),
            p.unit,
            p.pinned_by,
            f"{p.pinned_at:%Y-%m-%d}",
            p.run_id or "",
            p.note,
        )
        for p in pins
    )
    console.print(table(_PINS, rows, console.encoding, folded=_PINS))


def pins_json(pins: Mapping[str, Pin]) -> list[Json]:
    return [_pin_dict(pin) for pin in pins.values()]


def show_differences(differences: Iterable[PinDifference]) -> None:
    """Print one line per pin: interval, measured value and deviation."""
    console = output()
    rows = []
    for d in differences:
        value = "not measured" if d.value is None else number(d.value)
        off = "" if d.deviation is None else f"{d.deviation:+.1%}"
        outside = Text("outside", "bold red") if d.inside is False else ""
        row = (
            _readable(d.pin.series),
            number(d.pin.centre),
            _expected(d.pin),
            value,
            d.pin.unit,
            off,
            outside,
        )
        rows.append(row)
    console.print(table(_DIFFERENCES, rows, console.encoding, folded=_DIFFERENCES))


def differences_json(differences: Iterable[PinDifference]) -> list[Json]:
    return [
        {**_pin_dict(d.pin), "value": d.value, "deviation": d.deviation, "inside": d.inside}
        for d in differences
    ]


def _pin_dict(pin: Pin) -> Json:
    fields = asdict(pin)
    expected = {"low": fields.pop("low"), "high": fields.pop("high")}
    return {
        **fields,
        "expected": expected,
        "pinned_at": pin.pinned_at.isoformat(timespec="seconds"),
    }


def _expected(pin: Pin) -> str:
    parts = (
        f"at least {number(pin.low)}" if pin.low is not None else "",
        f"at most {number(pin.high)}" if pin.high is not None else "",
    )
    return ", ".join(part for part in parts if part)


def _readable(series: str) -> str:
    """Format the key of a series without its separators and unit.

    Such as busbw|cluster:lab|operation=all_reduce,ranks=4|GB/s.
    """
    metric, subject, rest = series.split("|", 2)
    conditions = rest.rpartition("|")[0]
    return " ".join(
        part for part in (metric, subject.partition(":")[2], conditions.replace(",", " ")) if part
    )


def show_history(rows: Sequence[RunRow]) -> None:
    """Print the table; on a narrow terminal without the columns that say the least."""
    console = output()
    if not rows:
        print_line(console, "no run is recorded")
        return
    console.print(history_table(rows, console.encoding, console.width))


def history_table(rows: Sequence[RunRow], encoding: str, width: int) -> Table:
    """Return a table with one line per run, in local time."""
    left_out = set()
    if width < 120:  # the reason would have no room for the node that it names
        left_out = {"suite", "started", "took"}  # a run's id begins with its date and time
        if len({row.cluster for row in rows}) == 1:
            left_out.add("cluster")
    columns = ("run", "cluster", "suite", "started", "took", "verdict", "reason")
    shown = [name not in left_out for name in columns]
    lines = []
    for row in rows:
        started = row.started.astimezone().strftime("%Y-%m-%d %H:%M")
        took = words.duration((row.finished - row.started).total_seconds())
        verdict = verdict_cell(row.verdict, row.lacks_baseline)
        sentence = ("no baseline yet: " if row.lacks_baseline else "") + row.reason.sentence
        whole = (row.run_id, row.cluster, row.suite, started, took, verdict, sentence)
        cells: list[str | Text] = list(compress(whole, shown))
        lines.append(cells)
    grid = table(list(compress(columns, shown)), lines, encoding)
    grid.expand = True
    # Whole in run.json and with --json
    grid.columns[-1].ratio = 1
    grid.columns[-1].overflow = "ellipsis"
    return grid


def history_frame(rows: Sequence[RunRow]) -> "DataFrame":
    """Return one row per run with a column per software version, such as `fingerprint.driver`."""
    import pandas as pd

    return pd.json_normalize(history_json(rows))


def history_json(rows: Sequence[RunRow]) -> list[Json]:
    """Return the runs as JSON with whole reasons and times in UTC."""
    return [row.to_dict() for row in rows]


def link_ages(
    newest: RunRow, nodes: Iterable[str], measured: Mapping[str, datetime]
) -> "DataFrame":
    """Return one row per link between `nodes`, those of the newest run, by name.

    Columns: `link`, `last_measured` (NaT: in no run that is kept) and `age_days`, up to the start
    of the newest run.
    """
    import pandas as pd

    frame = pd.DataFrame(
        {"link": sorted(link_name(*ends) for ends in combinations(nodes, 2))}, dtype=object
    )
    frame["last_measured"] = pd.to_datetime(frame["link"].map(dict(measured)), utc=True)
    frame["age_days"] = (
        pd.Timestamp(newest.started) - frame["last_measured"]
    ).dt.total_seconds() / 86_400
    return frame


def link_ages_json(newest: RunRow, node_count: int, ages: "DataFrame") -> Json:
    """Return every link as JSON, with null if no run has measured it."""
    times = [
        at.isoformat() if is_measured else None
        for at, is_measured in zip(
            ages["last_measured"], ages["last_measured"].notna(), strict=True
        )
    ]
    return {
        "cluster": newest.cluster,
        "nodes": node_count,
        "now": newest.started.isoformat(),
        "links": dict(zip(ages["link"], times, strict=True)),
    }


def show_link_ages(newest: RunRow, node_count: int, ages: "DataFrame") -> None:
    """Print how many links were measured in the last day, week, month and year, and the oldest
    ones.
    """
    console = output()
    console.print(
        f"{newest.cluster}: {len(ages):,} links between {node_count:,} nodes", highlight=False
    )
    within = [
        (f"in the last {words.count(days, 'day')}", f"{(ages['age_days'] < days).sum():,}")
        for days in (1, 7, 30, 365)
    ]
    never = ("never", f"{ages['age_days'].isna().sum():,}")
    console.print(table(("measured", "links"), [*within, never], console.encoding))
    oldest = ages.dropna().sort_values("age_days", ascending=False, kind="stable")[:10]
    if len(oldest):
        times = [
            f"{at.to_pydatetime().astimezone():%Y-%m-%d %H:%M}" for at in oldest["last_measured"]
        ]
        local = zip(oldest["link"], times, strict=True)
        console.print(table(("measured longest ago", "last measured"), local, console.encoding))
