"""The charts of the report: busbw, training loss, hours of a campaign, and how a headline number
went.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from seatrial.campaign.bands import Band
from seatrial.model.curves import Curve, Point
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict
from seatrial.report.context import Headline, HeadlinePoint
from seatrial.report.svg import BAD, INK, SERIES, WEAK, Mark, inline_svg
from seatrial.text import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LastValue = Callable[[Point], float | None]  # what the last good run reached there
_WORST = (Verdict.FAIL, Verdict.CORRUPT)


def busbw_chart(curves: Sequence[Curve], last: LastValue = lambda _: None) -> str:
    """Draw busbw in GB/s over message size (log scale), one line per operation.

    The expected interval is shaded, or dashed where it has one bound; what the last good run
    reached is dotted.
    """
    return inline_svg(
        "busbw",
        busbw_title(curves),
        lambda axes: draw_busbw(axes, curves, last),
        top=24 + _legend_height(curves),
    )


def busbw_title(curves: Sequence[Curve]) -> str:
    """Return the chart in words, for those who do not see it."""
    named = []
    for curve in curves:
        highest = max(point.busbw_gb_s for point in curve.points)
        named.append(f"{curve.operation} up to {words.number(highest)} GB/s")
    return f"busbw over message size: {', '.join(named)}"


def busbw_caption(curves: Sequence[Curve], last: LastValue) -> str:
    """Explain the marks that the chart has."""
    points = _points(curves)
    expected = [point.expected for point in points]
    expected += [curve.plateau for curve in curves]
    sentences = []
    if any(each.low is not None for each in expected):
        sentences.append("Shaded or dashed: what is expected.")
    if any(last(point) is not None for point in points):
        sentences.append("Dotted: the last good run.")
    if not {point.verdict for point in points} <= {None, Verdict.PASS}:
        sentences.append("A cross: not a pass.")
    return " ".join(sentences)


def _points(curves: Sequence[Curve]) -> list[Point]:
    return [point for curve in curves for point in curve.points]


def _legend_height(curves: Sequence[Curve]) -> int:
    """Return the height in points; a single curve needs no legend."""
    if len(curves) == 1:
        return 0
    lines = -(-len(curves) // 5)
    return 18 * lines


def loss_chart(losses: Sequence[float]) -> str:
    """Return the training loss of each step."""
    first = words.number(losses[0])
    last = words.number(losses[-1])
    title = f"training loss over {len(losses)} steps: {first} to {last}"
    return inline_svg("loss", title, lambda axes: _draw_loss(axes, losses))


def draw_busbw(axes: "Axes", curves: Sequence[Curve], last: LastValue) -> list[Mark]:
    """Draw the curves on empty axes; return the marks of their points."""
    axes.set_xscale("log", base=2)
    axes.set_title("busbw, GB/s", pad=8 + _legend_height(curves))
    colours = SERIES * (1 + len(curves) // len(SERIES))
    for curve, colour in zip(curves, colours, strict=False):
        _draw_curve(axes, curve, last, colour)
    points = _points(curves)
    sizes = {point.message_bytes for point in points}
    _size_axis(axes, sorted(sizes))
    axes.set_ylim(bottom=0)
    if len(curves) == 1:  # of several curves, intervals that are open above would hide each other
        _shade_open_above(axes, points)
    else:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(-0.02, 1.0),
            ncols=min(len(curves), 5),
            handlelength=1.2,
            columnspacing=1,
        )
    marks = []
    for curve in curves:
        marks += [_mark(curve, point, last(point)) for point in curve.points]
    return marks


def _draw_curve(axes: "Axes", curve: Curve, last: LastValue, colour: str) -> None:
    sizes = [point.message_bytes for point in curve.points]
    rates = [point.busbw_gb_s for point in curve.points]
    axes.plot(
        sizes, rates, "o-", color=colour, label=words.plain(curve.operation)[:60], ms=3.5, lw=1.8
    )
    _draw_expected(axes, curve, colour)
    before = []
    for point in curve.points:
        value = last(point)
        if value is not None:
            before.append((point.message_bytes, value))
    if len(before) > 1:
        axes.plot(*_columns(before), ":", color=colour, lw=1.4, alpha=0.9)
    _mark_bad(axes, curve.points)


def _shade_open_above(axes: "Axes", points: Sequence[Point]) -> None:
    """Shade above what is expected at least, where nothing is expected at most."""
    sizes = []
    lows = []
    for point in points:
        expected = point.expected
        if expected.low is not None and expected.high is None:
            sizes.append(point.message_bytes)
            lows.append(expected.low)
    if len(sizes) > 1:
        _, top = axes.get_ylim()
        axes.fill_between(sizes, lows, top, color=SERIES[0], alpha=0.08, lw=0)


def _shown(verdict: Verdict | None) -> str:
    if not verdict:
        return ""
    return f" · {words.GLYPHS[verdict]} {verdict.value}"


def _mark(curve: Curve, point: Point, last: float | None) -> Mark:
    """Return the mark of a point: busbw, what is expected by whom, the verdict, and the last good
    run.
    """
    rate = words.quantity(point.busbw_gb_s, "GB/s")
    lines = [
        f"{curve.operation}, {format_size(point.message_bytes)}",
        f"{rate}{_shown(point.verdict)}",
    ]
    expected = words.interval(point.expected, "GB/s")
    if expected != "–":
        lines.append(f"expected {expected} ({point.source})")
    if last is not None:
        lines.append(f"last good run {words.quantity(last, 'GB/s')}")
    return Mark(point.message_bytes, point.busbw_gb_s, tuple(lines))


def _draw_expected(axes: "Axes", curve: Curve, colour: str) -> None:
    """Shade where points have both bounds, dash where only one; else the plateau's bound over the
    largest messages.
    """
    both = []
    lows = []
    for point in curve.points:
        size = point.message_bytes
        low = point.expected.low
        high = point.expected.high
        if low is not None:
            lows.append((size, low))
            if high is not None:
                both.append((size, low, high))
    if len(both) > 1:
        sizes, low_edge, high_edge = _columns(both)
        axes.fill_between(sizes, low_edge, high_edge, color=colour, alpha=0.16, lw=0)
        return
    if len(lows) > 1:
        axes.plot(*_columns(lows), "--", color=colour, lw=1, alpha=0.8)
        return
    largest = max(2, len(curve.points) // 4)
    large = [point.message_bytes for point in curve.points[-largest:]]
    low = curve.plateau.low
    high = curve.plateau.high
    if low is not None and high is not None:
        axes.fill_between(large, low, high, color=colour, alpha=0.16, lw=0)
    elif low is not None:
        lows_of_large = [low] * len(large)
        axes.plot(large, lows_of_large, "--", color=colour, lw=1, alpha=0.8)


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _mark_bad(axes: "Axes", points: Sequence[Point]) -> None:
    for verdict in set(Verdict) - {Verdict.PASS}:
        marked = [(p.message_bytes, p.busbw_gb_s) for p in points if p.verdict is verdict]
        if marked:
            axes.plot(*_columns(marked), "x", color=_bad_colour(verdict), ms=5, mew=1.8, zorder=5)


def _bad_colour(verdict: Verdict | None) -> str:
    return BAD if verdict in _WORST else WEAK


def _size_axis(axes: "Axes", sizes: Sequence[int]) -> None:
    doublings = math.log2(max(sizes) / min(sizes))
    apart = doublings / 10  # of about ten ticks
    ticks = [sizes[-1]]  # the largest message always has its tick
    for size in reversed(sizes[:-1]):
        if math.log2(ticks[0] / size) >= apart:
            ticks.insert(0, size)
    axes.set_xticks(ticks, list(map(format_size, ticks)), minor=False)
    axes.set_xticks([], minor=True)


def _draw_loss(axes: "Axes", losses: Sequence[float]) -> list[Mark]:
    from matplotlib.ticker import MaxNLocator

    axes.set_title("loss by step", pad=8)
    steps = range(1, len(losses) + 1)
    axes.plot(steps, losses, color=SERIES[0], lw=1.8)
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    stride = -(-len(losses) // 200)
    marks = []
    for step in steps[::stride]:
        loss = losses[step - 1]
        if math.isfinite(loss):
            lines = (f"step {step}", f"loss {words.number(loss)}")
            marks.append(Mark(step, loss, lines))
    return marks


def band_chart(name: str, band: Band) -> str:
    """Draw a number over a campaign: the median of all parts, shaded from the lowest to the
    highest.
    """
    last = band.hours[-1]
    title = f"{band.title}, over {last:.3g} h"
    return inline_svg(name, title, lambda axes: _draw_band(axes, band), width_in=4.6, height_in=1.9)


def _draw_band(axes: "Axes", band: Band) -> list[Mark]:
    axes.set_title(band.title, pad=8)
    axes.fill_between(band.hours, band.low, band.high, color=SERIES[0], alpha=0.2, lw=0)
    axes.plot(band.hours, band.middle, color=SERIES[0], lw=1.4)
    axes.margins(x=0.01)
    _widen_value_axis(axes)
    marks = []
    rows = zip(band.hours, band.low, band.middle, band.high, strict=True)
    for hour, low, middle, high in rows:
        lines = (
            f"hour {hour:.2f}",
            f"median {words.number(middle)}",
            f"{words.number(low)} to {words.number(high)}",
        )
        marks.append(Mark(hour, middle, lines))
    return marks


def trend_chart(name: str, headline: Headline) -> str:
    """Return one point per run, oldest first, this run last and larger; `name` is unique on the
    page.
    """
    trend = headline.trend
    unit = words.unit_name(headline.measurement.unit)
    first = words.number(trend[0].value)
    last = words.number(trend[-1].value)
    values = f"{first} to {last} {unit}".strip()
    title = f"{headline.name} over {len(trend)} runs: {values}"
    return inline_svg(
        name, title, lambda axes: _draw(axes, headline, unit), width_in=4.6, height_in=1.9
    )


def _draw(axes: "Axes", headline: Headline, unit: str) -> list[Mark]:
    trend = headline.trend
    in_unit = f", {unit}" if unit else ""
    axes.set_title(f"{headline.name}{in_unit}", pad=8)
    values = [then.value for then in trend]
    axes.plot(range(len(trend)), values, color=SERIES[0], lw=1, alpha=0.45)
    _mark_verdicts(axes, trend)
    last = len(trend) - 1
    axes.plot([last], values[-1:], "o", ms=8, mfc="none", color=INK, clip_on=False)
    low = headline.expected.low
    high = headline.expected.high
    bound = high if low is None else low
    if low is not None and high is not None:
        axes.axhspan(low, high, color=SERIES[0], alpha=0.12, lw=0)
    elif bound is not None:
        axes.axhline(bound, color=SERIES[0], lw=1, ls="--", alpha=0.8)
    for i, then in enumerate(trend):
        if then.software:
            axes.axvline(i, color=INK, lw=0.8, ls=":")
    _time_axis(axes, trend)
    _widen_value_axis(axes)
    return [Mark(i, then.value, _mark_lines(then, unit)) for i, then in enumerate(trend)]


def _mark_verdicts(axes: "Axes", trend: Sequence[HeadlinePoint]) -> None:
    for verdict in dict.fromkeys(then.verdict for then in trend):
        places = [i for i, then in enumerate(trend) if then.verdict is verdict]
        values = [trend[i].value for i in places]
        colour = _bad_colour(verdict)
        sign = "x"
        if verdict in (None, Verdict.PASS):
            colour = SERIES[0]
            sign = "o"
        axes.plot(places, values, sign, color=colour, ms=3.2, mew=1.4, clip_on=False)


def _time_axis(axes: "Axes", trend: Sequence[HeadlinePoint]) -> None:
    days = {then.started.date() for then in trend}
    shown = "%-d %b %H:%M"
    if len(days) == 1:
        shown = "%H:%M"
    elif len(days) == len(trend):
        shown = "%-d %b"
    most_ticks = 5 if len(shown) < 8 else 3
    stride = -(-len(trend) // most_ticks)
    last = len(trend) - 1
    ticks = range(last, -1, -stride)[::-1]
    labels = [f"{trend[i].started:{shown}}" for i in ticks]
    axes.set_xticks(ticks, labels)
    axes.set_xlim(-0.7, last + 0.7)


def _widen_value_axis(axes: "Axes") -> None:
    """Widen the axis so that a small change does not look like a collapse: to two fifths of the
    value, or to zero.
    """
    low, high = axes.get_ylim()
    if low > 0 and high < 1.4 * low:
        middle = (low + high) / 2
        axes.set_ylim(0.8 * middle, 1.2 * middle)
    elif low > 0:
        axes.set_ylim(bottom=0)


def _mark_lines(then: HeadlinePoint, unit: str) -> tuple[str, ...]:
    value = words.quantity(then.value, unit)
    return (
        words.moment(then.started),
        f"{value}{_shown(then.verdict)}",
        f"changed: {then.software}" if then.software else "",
        f"run {then.run_id}",
    )
