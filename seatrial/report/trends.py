"""The history of a headline number as a chart: runs that were good and bad, changes of level, changes of software."""

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
    title = f"{headline.name} over {len(headline.trend)} runs: {values}; changes of level: {len(headline.changes)}"
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
    _draw_levels(axes, headline)
    for i, then in enumerate(trend):
        if then.software:
            axes.axvline(i, color=INK, lw=0.8, ls=":")
    _dates(axes, trend)
    _from_zero_where_it_is_near(axes)
    return [Mark(i, then.value, _mark_lines(then, headline, i)) for i, then in enumerate(trend)]


def _draw_expected(axes: "Axes", headline: Headline) -> None:
    low, high = headline.expected.low, headline.expected.high
    if low is not None and high is not None:
        axes.axhspan(low, high, color=SERIES[0], alpha=0.12, lw=0)
    elif (bound := low if low is not None else high) is not None:
        axes.axhline(bound, color=SERIES[0], lw=1, ls="--", alpha=0.8)


def _draw_levels(axes: "Axes", headline: Headline) -> None:
    """A line at each level, and an upright where it changes."""
    if not headline.changes:
        return
    edges = [0, *(step.at for step in headline.changes), len(headline.trend)]
    levels = [headline.changes[0].before, *(step.after for step in headline.changes)]
    for level, start, end in zip(levels, edges, edges[1:], strict=False):
        axes.plot([start - 0.5, end - 0.5], [level, level], color=SERIES[1], lw=1.6)
    for step in headline.changes:
        axes.plot([step.at - 0.5] * 2, [step.before, step.after], color=SERIES[1], lw=1.6)


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


def _mark_lines(then: HeadlinePoint, headline: Headline, at: int) -> tuple[str, ...]:
    verdict = f" · {words.GLYPHS[then.verdict]} {words.label(then.verdict)}" if then.verdict else ""
    change = next((step for step in headline.changes if step.at == at), None)
    lines = (
        f"{then.started:%-d %B %Y, %H:%M}",
        f"{words.quantity(then.value, headline.measurement.unit)}{verdict}",
        f"the level changes by {words.percent(change.after / change.before - 1)}" if change else "",
        f"changed: {then.software}" if then.software else "",
        f"run {then.run_id}",
    )
    return tuple(line for line in lines if line)
