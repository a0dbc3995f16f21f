"""The history of a headline number as a chart: runs that were good and bad, and changes of software."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seatrial.model.verdict import Verdict
from seatrial.report.headline import Headline, HeadlinePoint
from seatrial.report.svg import BAD, INK, SERIES, WEAK, Mark, inline_svg
from seatrial.text import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {Verdict.FAIL: BAD, Verdict.CORRUPT: BAD, Verdict.DEGRADED: WEAK}
_MAX_TICKS = 5


def trend_chart(name: str, headline: Headline) -> str:
    """One point per run, oldest first, this run last and larger; `name` is unique on the page."""
    unit = words.unit_name(headline.measurement.unit)
    values = f"{words.number(headline.trend[0].value)} to {words.number(headline.trend[-1].value)} {unit}".strip()
    title = f"{headline.name} over {len(headline.trend)} runs: {values}"
    return inline_svg(name, title, lambda axes: _draw(axes, headline, unit), width_in=4.6, height_in=1.9)


def _draw(axes: "Axes", headline: Headline, unit: str) -> list[Mark]:
    trend = headline.trend
    axes.set_title(f"{headline.name}{f', {unit}' if unit else ''}", pad=8)
    axes.plot(range(len(trend)), [then.value for then in trend], color=SERIES[0], lw=1, alpha=0.45)
    for verdict in dict.fromkeys(then.verdict for then in trend):
        at = [i for i, then in enumerate(trend) if then.verdict is verdict]
        colour, sign = (_COLOURS[verdict], "x") if verdict in _COLOURS else (SERIES[0], "o")
        axes.plot(at, [trend[i].value for i in at], sign, color=colour, ms=3.2, mew=1.4)
    axes.plot([len(trend) - 1], [trend[-1].value], "o", ms=8, mfc="none", color=INK, clip_on=False)
    _draw_expected(axes, headline)
    for i, then in enumerate(trend):
        if then.software:
            axes.axvline(i, color=INK, lw=0.8, ls=":")
    _dates(axes, trend)
    _from_zero_where_it_is_near(axes)
    return [Mark(i, then.value, _mark_lines(then, unit)) for i, then in enumerate(trend)]


def _draw_expected(axes: "Axes", headline: Headline) -> None:
    low, high = headline.expected.low, headline.expected.high
    if low is not None and high is not None:
        axes.axhspan(low, high, color=SERIES[0], alpha=0.12, lw=0)
    elif (bound := low if low is not None else high) is not None:
        axes.axhline(bound, color=SERIES[0], lw=1, ls="--", alpha=0.8)


def _dates(axes: "Axes", trend: Sequence[HeadlinePoint]) -> None:
    stride = -(-len(trend) // _MAX_TICKS)
    ticks = list(reversed(range(len(trend) - 1, -1, -stride)))
    axes.set_xticks(ticks, [f"{trend[i].started:%-d %b}" for i in ticks])
    axes.set_xlim(-0.7, len(trend) - 0.3)


def _from_zero_where_it_is_near(axes: "Axes") -> None:
    """A small change must not look like a collapse: two fifths of the value are in sight, or all of it."""
    low, high = axes.get_ylim()
    if low > 0 and high < 1.4 * low:
        middle = (low + high) / 2
        axes.set_ylim(0.8 * middle, 1.2 * middle)
    elif low > 0:
        axes.set_ylim(bottom=0)


def _mark_lines(then: HeadlinePoint, unit: str) -> tuple[str, ...]:
    verdict = f" · {words.GLYPHS[then.verdict]} {words.label(then.verdict)}" if then.verdict else ""
    lines = (
        f"{then.started:%-d %B %Y, %H:%M}",
        f"{words.quantity(then.value, unit)}{verdict}",
        f"changed: {then.software}" if then.software else "",
        f"run {then.run_id}",
    )
    return tuple(line for line in lines if line)
