"""What charts draw, by matplotlib's own objects, kept in tests/golden/charts.json.

`python -m tests.unit.report.drawn` writes it anew; read what changed, and look at the charts.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from seatrial.model.curves import Curve, Point, busbw_curves
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Expected, Judgement
from seatrial.model.verdict import Verdict
from seatrial.report import charts
from seatrial.report.context import Headline, HeadlinePoint
from tests import samples

GOLDEN = Path(__file__).parents[2] / "golden" / "charts.json"
_NOTHING = Expected()
MONDAY = datetime(2026, 3, 2, 2, 5, tzinfo=UTC)


def _described(width: float, height: float, draw: Callable[[Any], Sequence[charts.Mark]]) -> dict[str, Any]:
    """Lines, areas, ticks, limits and marks."""
    with charts.styled(dict.fromkeys(charts.VARIABLES, "#010101")):
        figure, axes = charts.empty_axes(width, height, 24)
        marks = draw(axes)
        figure.draw_without_rendering()
    lines = [
        [*map(_rounded, line.get_data()), line.get_linestyle(), line.get_marker(), line.get_markersize()]
        for line in axes.lines
    ]
    areas = [_rounded(area.get_datalim(axes.transData).extents) for area in axes.collections]
    spans: Any = axes.patches  # rectangles
    areas += [_rounded(span.get_bbox().extents) for span in spans]
    ticks = [[label.get_text() for label in axes.get_xticklabels()], _rounded(axes.get_xticks())]
    legend = [text.get_text() for text in shown.get_texts()] if (shown := axes.get_legend()) else []
    frame = [*_rounded(axes.get_position().bounds), *_rounded(axes.get_xlim()), *_rounded(axes.get_ylim())]
    some = [[*_rounded([mark.x, mark.y]), *mark.lines] for mark in (*marks[:3], *marks[-2:])]
    return {
        "title": axes.get_title("left"), "frame": frame, "lines": sorted(lines, key=repr), "areas": areas,
        "ticks": ticks, "legend": legend, "marks": len(marks), "some": some,
    }  # fmt: skip


def _rounded(values: Any) -> list[Any]:
    return [None if value != value else float(f"{value:.4g}") for value in map(float, values)]


def _curve(name: str, *bounds: tuple[float | None, float | None], plateau: Expected = _NOTHING) -> Curve:
    verdicts = (Verdict.PASS, Verdict.FAIL, Verdict.DEGRADED, None, Verdict.CORRUPT)
    points = tuple(
        Point(1 << (20 + 2 * i), 50.0 + 20 * i, Expected(low, high), verdicts[i % 5], "history")
        for i, (low, high) in enumerate(bounds)
    )
    return Curve(name, points, plateau)


def trend_of(*values: float, step: timedelta = timedelta(days=1), expected: Expected = _NOTHING) -> Headline:
    plateau = Measurement("busbw_plateau", values[-1], "GB/s", Subject("cluster", "c"), {"operation": "all_reduce"})
    judgement = Judgement(plateau, Verdict.PASS, Reason(), "history", expected)
    verdicts = (Verdict.PASS, Verdict.FAIL, None, Verdict.DEGRADED)
    points = tuple(
        HeadlinePoint(f"run-{i}", MONDAY + step * i, value, verdicts[i % 4], "driver 1 → 2" if i == 2 else "")
        for i, value in enumerate(values)
    )
    return Headline(plateau, (judgement,), None, points)


def cases() -> dict[str, Any]:
    """By name."""
    faulty = busbw_curves(samples.faulty_h100().checks[1])
    both, low = (40.0, 90.0), (40.0, None)
    open_above = _curve("all_gather", low, low, (None, None), low, low)
    bounded = Expected(60.0, 80.0)

    def last(point: Point) -> float | None:
        return point.busbw_gb_s * 1.1 if point.message_bytes > 1 << 21 else None

    def curves(*drawn: Curve) -> dict[str, Any]:
        described = _described(6.8, 3.0, lambda axes: charts.draw_busbw(axes, drawn, last))
        return {**described, "caption": charts.busbw_caption(drawn, last), "titled": charts.busbw_title(drawn)}

    def trend(headline: Headline) -> dict[str, Any]:
        return _described(4.6, 1.9, lambda axes: charts._draw(axes, headline, "GB/s"))

    return {
        "every operation": curves(*faulty),
        "six operations": curves(*(replace(faulty[0], operation=f"op{i}") for i in range(6))),
        "open above": curves(open_above),
        "both bounds": curves(_curve("all_reduce", both, both, (None, 1.0), both, both)),
        "a plateau with both bounds": curves(_curve("a", *[(None, None)] * 9, plateau=bounded)),
        "a plateau with one bound": curves(_curve("a", *[(None, None)] * 9, plateau=Expected(60.0, None))),
        "nothing expected": curves(_curve("a", (None, None), low)),
        "a long loss": _described(6.8, 2.1, lambda axes: charts._draw_loss(axes, [9 / (i + 1) for i in range(401)])),
        "a broken loss": _described(6.8, 2.1, lambda axes: charts._draw_loss(axes, [3.0, float("nan"), 2.0])),
        "days": trend(trend_of(380, 381, 382, 383, 384, 385, 386, expected=Expected(370.0, 390.0))),
        "hours": trend(trend_of(380, 205, step=timedelta(hours=3), expected=Expected(300.0, None))),
        "far from zero": trend(trend_of(100, 140.1, expected=Expected(None, 150.0))),
        "below zero": trend(trend_of(-1, 1)),
    }


def written() -> str:
    lines = [
        f" {json.dumps(name)}: {{\n"
        + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in case.items())
        + "}"
        for name, case in cases().items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    GOLDEN.write_text(written())
