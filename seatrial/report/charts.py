"""The charts of the report: busbw over message size, and the loss of the training. Pure."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from seatrial.model.curves import Curve, Point
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict
from seatrial.report.svg import BAD, SERIES, WEAK, Mark, inline_svg
from seatrial.text import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LastValue = Callable[[Point], float | None]  # what the last good run reached there

_MAX_TICKS = 10


def busbw_chart(curves: Sequence[Curve], last: LastValue = lambda _: None) -> str:
    """busbw in GB/s over message size (log scale), one line per operation.

    The expected interval is shaded, or dashed where it has one bound; what the last good run reached is dotted.
    """
    return inline_svg(
        "busbw", busbw_title(curves), lambda axes: draw_busbw(axes, curves, last), top=24 + _legend_height(curves)
    )


def busbw_title(curves: Sequence[Curve]) -> str:
    """The chart in words, for those who do not see it."""
    named = ", ".join(f"{c.operation} up to {words.number(max(p.busbw_gb_s for p in c.points))} GB/s" for c in curves)
    return f"busbw over message size: {named}"


def busbw_caption(curves: Sequence[Curve], last: LastValue) -> str:
    """What the marks in the chart mean, those that it has."""
    points = [point for curve in curves for point in curve.points]
    parts = (
        (any(_has_expected(curve) for curve in curves), "Shaded or dashed: what is expected."),
        (any(last(p) is not None for p in points), "Dotted: the last good run."),
        (any(p.verdict not in (None, Verdict.PASS) for p in points), "A cross: not a pass."),
    )
    return " ".join(text for there, text in parts if there)


def _has_expected(curve: Curve) -> bool:
    return any(e.low is not None for e in (*(p.expected for p in curve.points), curve.plateau))


def _legend_height(curves: Sequence[Curve]) -> int:
    """In points; a single curve needs no legend."""
    return 0 if len(curves) == 1 else 18 * -(-len(curves) // 5)


def loss_chart(losses: Sequence[float]) -> str:
    """The training loss of each step."""
    title = f"training loss over {len(losses)} steps: {words.number(losses[0])} to {words.number(losses[-1])}"
    return inline_svg("loss", title, lambda axes: _draw_loss(axes, losses), height_in=2.1)


def draw_busbw(axes: "Axes", curves: Sequence[Curve], last: LastValue) -> list[Mark]:
    """Draw the curves on empty axes; return the marks of their points."""
    axes.set_xscale("log", base=2)
    axes.set_title("busbw, GB/s", pad=8 + _legend_height(curves))
    for curve, colour in zip(curves, SERIES * (1 + len(curves) // len(SERIES)), strict=False):
        sizes = [point.message_bytes for point in curve.points]
        rates, label = [point.busbw_gb_s for point in curve.points], words.plain(curve.operation)[:60]
        axes.plot(sizes, rates, "o-", color=colour, label=label, ms=3.5, lw=1.8)
        _draw_expected(axes, curve, colour)
        _draw_last(axes, curve, last, colour)
        _mark_bad(axes, curve.points)
    _size_axis(axes, sorted({point.message_bytes for curve in curves for point in curve.points}))
    axes.set_ylim(bottom=0)
    if len(curves) == 1:
        _shade_above(axes, curves[0])
    else:
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=min(len(curves), 5), handlelength=1.2, columnspacing=1
        )
    return [_mark(curve, point, last(point)) for curve in curves for point in curve.points]


def _mark(curve: Curve, point: Point, last: float | None) -> Mark:
    """busbw, what is expected by whom, the verdict, and the last good run."""
    verdict = f" · {words.GLYPHS[point.verdict]} {words.label(point.verdict)}" if point.verdict else ""
    expected = words.interval(point.expected, "GB/s")
    lines = (
        f"{curve.operation}, {format_size(point.message_bytes)}",
        f"{words.quantity(point.busbw_gb_s, 'GB/s')}{verdict}",
        f"expected {expected} ({point.source})" if expected != "–" else "",
        f"last good run {words.quantity(last, 'GB/s')}" if last is not None else "",
    )
    return Mark(point.message_bytes, point.busbw_gb_s, tuple(line for line in lines if line))


def _draw_expected(axes: "Axes", curve: Curve, colour: str) -> None:
    """Shade where points have both bounds, dash where only one; else the plateau's bound over the largest messages."""
    both = [(p.message_bytes, p.expected.low, p.expected.high) for p in curve.points if _both(p)]
    if len(both) > 1:
        sizes, low_edge, high_edge = _columns(both)
        axes.fill_between(sizes, low_edge, high_edge, color=colour, alpha=0.16, lw=0)
        return
    lows = [(p.message_bytes, p.expected.low) for p in curve.points if p.expected.low is not None]
    if len(lows) > 1:
        axes.plot(*_columns(lows), "--", color=colour, lw=1, alpha=0.8)
        return
    large = [p.message_bytes for p in curve.points][-max(2, len(curve.points) // 4) :]
    low, high = curve.plateau.low, curve.plateau.high
    if low is not None and high is not None:
        axes.fill_between(large, low, high, color=colour, alpha=0.16, lw=0)
    elif low is not None:
        axes.plot(large, [low] * len(large), "--", color=colour, lw=1, alpha=0.8)


def _shade_above(axes: "Axes", curve: Curve) -> None:
    """An interval that is open above reaches to the top; of several curves they would hide each other."""
    open_above = [p for p in curve.points if p.expected.low is not None and p.expected.high is None]
    if len(open_above) > 1:
        sizes, lows = [p.message_bytes for p in open_above], [p.expected.low or 0.0 for p in open_above]
        axes.fill_between(sizes, lows, axes.get_ylim()[1], color=SERIES[0], alpha=0.08, lw=0)


def _draw_last(axes: "Axes", curve: Curve, last: LastValue, colour: str) -> None:
    before = [(p.message_bytes, value) for p in curve.points if (value := last(p)) is not None]
    if len(before) > 1:
        axes.plot(*_columns(before), ":", color=colour, lw=1.4, alpha=0.9)


def _both(point: Point) -> bool:
    return point.expected.low is not None and point.expected.high is not None


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _mark_bad(axes: "Axes", points: Sequence[Point]) -> None:
    for verdict in set(Verdict) - {Verdict.PASS}:
        colour = BAD if verdict in (Verdict.FAIL, Verdict.CORRUPT) else WEAK
        marked = [(p.message_bytes, p.busbw_gb_s) for p in points if p.verdict is verdict]
        if marked:
            axes.plot(*_columns(marked), "x", color=colour, ms=5, mew=1.8, zorder=5)


def _size_axis(axes: "Axes", sizes: Sequence[int]) -> None:
    stride = -(-len(sizes) // _MAX_TICKS)
    ticks = list(reversed(sizes[::-1][::stride]))  # the largest message always has its tick
    axes.set_xticks(ticks, [format_size(size) for size in ticks], minor=False)
    axes.set_xticks([], minor=True)


def _draw_loss(axes: "Axes", losses: Sequence[float]) -> list[Mark]:
    from matplotlib.ticker import MaxNLocator

    axes.set_title("loss by step", pad=8)
    axes.plot(range(1, len(losses) + 1), losses, color=SERIES[0], lw=1.8)
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    stride = -(-len(losses) // 200)
    steps = list(enumerate(losses, 1))[::stride]
    return [Mark(n, loss, (f"step {n}", f"loss {words.number(loss)}")) for n, loss in steps if math.isfinite(loss)]
