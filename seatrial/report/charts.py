"""The charts of the report for a single run: busbw and training loss."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from operator import attrgetter
from typing import TYPE_CHECKING

from seatrial.model.curves import Curve, Point
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict
from seatrial.report.svg import BAD, FIRST, SERIES, WEAK, Mark, inline_svg
from seatrial.text import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LastValue = Callable[[Point], float | None]  # what the last good run reached there
_rate = attrgetter("busbw_gb_s")
_low = attrgetter("expected.low")
_WORST = (Verdict.FAIL, Verdict.CORRUPT)
_TITLE_PT = 24
_LEGEND_COLUMNS = 5
_LEGEND_ROW_PT = 18
_MOST_LOSS_MARKS = 200


def busbw_chart(curves: Sequence[Curve], last: LastValue = lambda _: None) -> str:
    """Draw busbw in GB/s over message size (log scale), one line per operation.

    The expected interval is shaded, or dashed where it has one bound; what the last good run
    reached is dotted.
    """
    title = busbw_title(curves)
    top = _TITLE_PT + _legend_height(curves)
    return inline_svg("busbw", title, lambda axes: draw_busbw(axes, curves, last), top=top)


def busbw_title(curves: Sequence[Curve]) -> str:
    """Return the chart in words, for those who do not see it."""
    named = []
    for curve in curves:
        highest = max(point.busbw_gb_s for point in curve.points)
        shown = words.number(highest)
        named.append(f"{curve.operation} up to {shown} GB/s")
    names = ", ".join(named)
    return f"busbw over message size: {names}"


def busbw_caption(curves: Sequence[Curve], last: LastValue) -> str:
    """Explain the marks that the chart has."""
    lows = [curve.plateau.low for curve in curves]
    lasts = []
    verdicts = set()
    for point in _points(curves):
        lows.append(point.expected.low)
        lasts.append(last(point))
        verdicts.add(point.verdict)
    sentences = []
    if any(low is not None for low in lows):
        sentences.append("Shaded or dashed: what is expected.")
    if any(value is not None for value in lasts):
        sentences.append("Dotted: the last good run.")
    if not verdicts <= {None, Verdict.PASS}:
        sentences.append("A cross: not a pass.")
    return " ".join(sentences)


def _points(curves: Sequence[Curve]) -> list[Point]:
    points: list[Point] = []
    for curve in curves:
        points += curve.points
    return points


def _legend_height(curves: Sequence[Curve]) -> int:
    """Return the height in points; a single curve needs no legend."""
    if len(curves) == 1:
        return 0
    rows = -(-len(curves) // _LEGEND_COLUMNS)
    return _LEGEND_ROW_PT * rows


def loss_chart(losses: Sequence[float]) -> str:
    """Return the training loss of each step."""
    steps = len(losses)
    first = words.number(losses[0])
    last = words.number(losses[-1])
    title = f"training loss over {steps} steps: {first} to {last}"
    return inline_svg("loss", title, lambda axes: _draw_loss(axes, losses))


def draw_busbw(axes: "Axes", curves: Sequence[Curve], last: LastValue) -> list[Mark]:
    """Draw the curves on empty axes; return the marks of their points."""
    axes.set_xscale("log", base=2)
    axes.set_title("busbw, GB/s", pad=8 + _legend_height(curves))
    for curve, colour in zip(curves, cycle(SERIES), strict=False):
        _draw_curve(axes, curve, last, colour)
    points = _points(curves)
    _size_axis(axes, points)
    axes.set_ylim(bottom=0)
    # Of several curves, intervals that are open above would hide each other
    if len(curves) == 1:
        _shade_open_above(axes, points)
    else:
        _draw_legend(axes, len(curves))
    return _busbw_marks(curves, last)


def _draw_legend(axes: "Axes", curves: int) -> None:
    """Draw the legend between the title and the axes."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=min(curves, _LEGEND_COLUMNS),
        handlelength=1.2,
        columnspacing=1,
    )


def _draw_curve(axes: "Axes", curve: Curve, last: LastValue, colour: str) -> None:
    """Draw what was measured, what is expected, and what the last good run reached."""
    sizes, rates = _known(curve.points, _rate)
    label = words.plain(curve.operation)[:60]
    axes.plot(
        sizes,
        rates,
        "o-",
        color=colour,
        label=label,
        markersize=3.5,
        linewidth=1.8,
    )
    _draw_expected(axes, curve, colour)
    _draw_last(axes, curve, last, colour)
    _mark_bad(axes, curve.points)


def _known(points: Sequence[Point], value_of: LastValue) -> tuple[list[int], list[float]]:
    """Return the message sizes and the values of the points that have a value."""
    sizes = []
    values = []
    for point in points:
        value = value_of(point)
        if value is not None:
            sizes.append(point.message_bytes)
            values.append(value)
    return sizes, values


def _draw_last(axes: "Axes", curve: Curve, last: LastValue, colour: str) -> None:
    """Dot what the last good run reached."""
    sizes, rates = _known(curve.points, last)
    if len(sizes) > 1:
        axes.plot(sizes, rates, ":", color=colour, linewidth=1.4, alpha=0.9)


def _shade_open_above(axes: "Axes", points: Sequence[Point]) -> None:
    """Shade above what is expected at least, where nothing is expected at most."""
    sizes, lows = _known([point for point in points if point.expected.high is None], _low)
    if len(sizes) > 1:
        _, top = axes.get_ylim()
        axes.fill_between(sizes, lows, top, color=FIRST, alpha=0.08, linewidth=0)


def _busbw_marks(curves: Sequence[Curve], last: LastValue) -> list[Mark]:
    """Return one mark for each point of each curve."""
    marks = []
    for curve in curves:
        for point in curve.points:
            last_rate = last(point)
            marks.append(_mark(curve, point, last_rate))
    return marks


def _mark(curve: Curve, point: Point, last: float | None) -> Mark:
    """Return the mark of a point: busbw, what is expected by whom, the verdict, and the last good
    run.
    """
    size = format_size(point.message_bytes)
    rate = words.quantity(point.busbw_gb_s, "GB/s")
    verdict = shown_verdict(point.verdict)
    lines = [f"{curve.operation}, {size}", f"{rate}{verdict}"]
    expected = words.interval(point.expected, "GB/s")
    if expected != "–":
        lines.append(f"expected {expected} ({point.source})")
    if last is not None:
        last_rate = words.quantity(last, "GB/s")
        lines.append(f"last good run {last_rate}")
    return Mark(point.message_bytes, point.busbw_gb_s, tuple(lines))


def shown_verdict(verdict: Verdict | None) -> str:
    """Return what follows a number in a mark: its verdict, if it has one."""
    if not verdict:
        return ""
    return f" · {words.GLYPHS[verdict]} {verdict.value}"


def _draw_expected(axes: "Axes", curve: Curve, colour: str) -> None:
    """Shade where points have both bounds, dash where only one; else the plateau's bound over the
    largest messages.
    """
    with_low = [point for point in curve.points if point.expected.low is not None]
    with_both = [point for point in with_low if point.expected.high is not None]
    if len(with_both) > 1:
        _shade(axes, with_both, colour)
    elif len(with_low) > 1:
        _dash(axes, with_low, colour)
    else:
        _draw_plateau(axes, curve, colour)


def _draw_plateau(axes: "Axes", curve: Curve, colour: str) -> None:
    """Draw what is expected of the plateau over the largest quarter of the messages."""
    plateau = curve.plateau
    if plateau.low is None:
        return
    largest = max(2, len(curve.points) // 4)
    expected = [replace(point, expected=plateau) for point in curve.points[-largest:]]
    if plateau.high is None:
        _dash(axes, expected, colour)
    else:
        _shade(axes, expected, colour)


def _shade(axes: "Axes", points: Sequence[Point], colour: str) -> None:
    """Shade from the lower to the upper bound of each point."""
    sizes, lows = _known(points, _low)
    _, highs = _known(points, attrgetter("expected.high"))
    axes.fill_between(sizes, lows, highs, color=colour, alpha=0.16, linewidth=0)


def _dash(axes: "Axes", points: Sequence[Point], colour: str) -> None:
    """Dash the lower bound of each point."""
    sizes, lows = _known(points, _low)
    axes.plot(sizes, lows, "--", color=colour, linewidth=1, alpha=0.8)


def _mark_bad(axes: "Axes", points: Sequence[Point]) -> None:
    """Put a cross on each point that was judged and did not pass."""
    for verdict in Verdict:  # in their order, so that a report is drawn the same each time
        if verdict is Verdict.PASS:
            continue
        sizes, rates = _known([point for point in points if point.verdict is verdict], _rate)
        if sizes:
            colour = bad_colour(verdict)
            axes.plot(sizes, rates, "x", color=colour, markersize=5, markeredgewidth=1.8, zorder=5)


def bad_colour(verdict: Verdict | None) -> str:
    """Return the colour of a cross."""
    if verdict in _WORST:
        return BAD
    return WEAK


def _size_axis(axes: "Axes", points: Sequence[Point]) -> None:
    sizes = sorted({point.message_bytes for point in points})
    ticks = _ticks(sizes)
    labels = [format_size(size) for size in ticks]
    axes.set_xticks(ticks, labels, minor=False)
    axes.set_xticks([], minor=True)


def _ticks(sizes: Sequence[int]) -> list[int]:
    """Choose about ten of the sizes, at least a tenth of the axis apart."""
    smallest = sizes[0]
    largest = sizes[-1]
    least_doublings = math.log2(largest / smallest) / 10
    ticks = [largest]  # which always has its tick
    for size in reversed(sizes[:-1]):
        doublings = math.log2(ticks[0] / size)
        if doublings >= least_doublings:
            ticks.insert(0, size)
    return ticks


def _draw_loss(axes: "Axes", losses: Sequence[float]) -> list[Mark]:
    """Draw the losses on empty axes; return their marks."""
    from matplotlib.ticker import MaxNLocator

    axes.set_title("loss by step", pad=8)
    steps = range(1, len(losses) + 1)
    axes.plot(steps, losses, color=FIRST, linewidth=1.8)
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    return _loss_marks(losses)


def _loss_marks(losses: Sequence[float]) -> list[Mark]:
    """Return marks of steps that are equally far apart, 200 at most; a loss that is no number has
    none.
    """
    stride = -(-len(losses) // _MOST_LOSS_MARKS)
    marks = []
    for place in range(0, len(losses), stride):
        step = place + 1
        loss = losses[place]
        if math.isfinite(loss):
            shown = words.number(loss)
            lines = (f"step {step}", f"loss {shown}")
            marks.append(Mark(step, loss, lines))
    return marks
