"""The charts of the report over time: hours of a campaign, and how a headline number went."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seatrial.campaign.bands import Band
from seatrial.model.verdict import Verdict
from seatrial.report.charts import bad_colour, shown_verdict
from seatrial.report.context import Headline, HeadlinePoint
from seatrial.report.svg import FIRST, INK, Draw, Mark, inline_svg
from seatrial.text import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH_IN = 4.6
_HEIGHT_IN = 1.9


def band_chart(name: str, band: Band) -> str:
    """Draw a number over a campaign: the median of all parts, shaded from the lowest to the
    highest.
    """
    last = band.hours[-1]
    title = f"{band.title}, over {last:.3g} h"
    return _small_svg(name, title, lambda axes: _draw_band(axes, band))


def trend_chart(name: str, headline: Headline) -> str:
    """Draw one point per run, oldest first, this run last and larger; `name` is unique on the
    page.
    """
    trend = headline.trend
    unit = words.unit_name(headline.measurement.unit)
    first = words.number(trend[0].value)
    last = words.number(trend[-1].value)
    values = f"{first} to {last} {unit}".strip()
    runs = len(trend)
    title = f"{headline.name} over {runs} runs: {values}"
    return _small_svg(name, title, lambda axes: _draw_trend(axes, headline, unit))


def _small_svg(name: str, title: str, draw: Draw) -> str:
    """Render a chart that stands beside others."""
    return inline_svg(name, title, draw, width_in=_WIDTH_IN, height_in=_HEIGHT_IN)


def _draw_band(axes: "Axes", band: Band) -> list[Mark]:
    """Draw the band on empty axes; return the marks of its medians."""
    axes.set_title(band.title, pad=8)
    axes.fill_between(band.hours, band.low, band.high, color=FIRST, alpha=0.2, linewidth=0)
    axes.plot(band.hours, band.middle, color=FIRST, linewidth=1.4)
    axes.margins(x=0.01)
    _widen_value_axis(axes)
    return _band_marks(band)


def _band_marks(band: Band) -> list[Mark]:
    """Return one mark for each hour, at the median."""
    marks = []
    rows = zip(band.hours, band.low, band.middle, band.high, strict=True)
    for hour, low, middle, high in rows:
        median = words.number(middle)
        lowest = words.number(low)
        highest = words.number(high)
        lines = (f"hour {hour:.2f}", f"median {median}", f"{lowest} to {highest}")
        marks.append(Mark(hour, middle, lines))
    return marks


def _draw_trend(axes: "Axes", headline: Headline, unit: str) -> list[Mark]:
    """Draw the runs on empty axes; return their marks."""
    trend = headline.trend
    title = headline.name
    if unit:
        title += f", {unit}"
    axes.set_title(title, pad=8)
    runs = range(len(trend))
    values = [then.value for then in trend]
    axes.plot(runs, values, color=FIRST, linewidth=1, alpha=0.45)
    _mark_verdicts(axes, trend)
    axes.plot(
        runs[-1:], values[-1:], "o", markersize=8, markerfacecolor="none", color=INK, clip_on=False
    )
    _draw_expected(axes, headline)
    for run, then in enumerate(trend):
        if then.software:
            axes.axvline(run, color=INK, linewidth=0.8, linestyle=":")
    _time_axis(axes, trend)
    _widen_value_axis(axes)
    return _trend_marks(trend, unit)


def _draw_expected(axes: "Axes", headline: Headline) -> None:
    """Shade between both bounds; dash where only one is known."""
    low = headline.expected.low
    high = headline.expected.high
    if low is not None and high is not None:
        axes.axhspan(low, high, color=FIRST, alpha=0.12, linewidth=0)
        return
    bound = low
    if low is None:
        bound = high
    if bound is not None:
        axes.axhline(bound, color=FIRST, linewidth=1, linestyle="--", alpha=0.8)


def _mark_verdicts(axes: "Axes", trend: Sequence[HeadlinePoint]) -> None:
    """Mark each run by its verdict: a dot where it passed or was not judged, else a cross."""
    for verdict in dict.fromkeys(then.verdict for then in trend):
        runs = []
        values = []
        for run, then in enumerate(trend):
            if then.verdict is verdict:
                runs.append(run)
                values.append(then.value)
        sign, colour = _sign_of(verdict)
        axes.plot(
            runs, values, sign, color=colour, markersize=3.2, markeredgewidth=1.4, clip_on=False
        )


def _sign_of(verdict: Verdict | None) -> tuple[str, str]:
    """Return the sign of a run, and its colour."""
    if verdict in (None, Verdict.PASS):
        return "o", FIRST
    return "x", bad_colour(verdict)


def _time_axis(axes: "Axes", trend: Sequence[HeadlinePoint]) -> None:
    """Label runs by their time, their day, or both, whatever tells them apart."""
    runs = len(trend)
    days = {then.started.date() for then in trend}
    most_ticks = 5
    if len(days) == 1:
        shown = "%H:%M"
    elif len(days) == runs:
        shown = "%-d %b"
    else:
        shown = "%-d %b %H:%M"
        most_ticks = 3
    stride = -(-runs // most_ticks)
    last = runs - 1
    ticks = range(last, -1, -stride)[::-1]  # the last run always has its tick
    labels = []
    for run in ticks:
        started = trend[run].started
        labels.append(f"{started:{shown}}")
    axes.set_xticks(ticks, labels)
    axes.set_xlim(-0.7, last + 0.7)


def _widen_value_axis(axes: "Axes") -> None:
    """Widen the axis so that a small change does not look like a collapse: to two fifths of the
    value, or to zero.
    """
    low, high = axes.get_ylim()
    if low <= 0:
        return
    if high < 1.4 * low:
        middle = (low + high) / 2
        axes.set_ylim(0.8 * middle, 1.2 * middle)
    else:
        axes.set_ylim(bottom=0)


def _trend_marks(trend: Sequence[HeadlinePoint], unit: str) -> list[Mark]:
    """Return one mark for each run."""
    marks = []
    for run, then in enumerate(trend):
        lines = _mark_lines(then, unit)
        marks.append(Mark(run, then.value, lines))
    return marks


def _mark_lines(then: HeadlinePoint, unit: str) -> tuple[str, ...]:
    """Return what pointing at a run shows: its time, value, verdict and new software."""
    value = words.quantity(then.value, unit)
    changed = ""
    if then.software:
        changed = f"changed: {then.software}"
    return (
        words.moment(then.started),
        f"{value}{shown_verdict(then.verdict)}",
        changed,
        f"run {then.run_id}",
    )
