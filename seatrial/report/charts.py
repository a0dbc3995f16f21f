"""The charts of the report as inline SVG: busbw, training loss, hours of a campaign, and how a
headline number went.
"""

import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from seatrial.campaign.bands import Band
from seatrial.model.curves import Curve, Point
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict
from seatrial.report.context import Headline, HeadlinePoint
from seatrial.text import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Drawings name their colours C0, C1, ... as matplotlib's colour cycle does: one for each variable
# of the page's style.
VARIABLES = (*(f"--series-{n}" for n in range(1, 9)), "--soft", "--line", "--fail", "--degraded")
SERIES = tuple(f"C{n}" for n in range(8))
INK, GRID, BAD, WEAK = "C8", "C9", "C10", "C11"
# matplotlib only takes real colours: an SVG is drawn with these, and the page's variables are put
# in their place.
_PLACEHOLDERS = {variable: f"#0101{n:02x}" for n, variable in enumerate(VARIABLES, 0x10)}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and read aloud
    "text.parse_math": False,  # names come from outside; a "$" in one is no formula
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.linewidth": 0.7,
    "ytick.left": False,
    "xtick.minor.bottom": False,
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "path.simplify": True,
}
_CLEANUP: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"<!--.*?-->", re.DOTALL), ""),
    (re.compile(r"<metadata>.*?</metadata>", re.DOTALL), ""),
    (re.compile(r"<style.*?</style>", re.DOTALL), ""),  # its "*" rule would reach the whole page
    (re.compile(r"font-family: [^;\"]*;? ?"), ""),
    (re.compile(r"xlink:href="), "href="),
    (re.compile(r"\s*\n\s*"), " "),
)
LastValue = Callable[[Point], float | None]  # what the last good run reached there
_WORST = (Verdict.FAIL, Verdict.CORRUPT)


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of the axes and the lines that pointing at it shows; not those that are empty."""

    x: float
    y: float
    lines: tuple[str, ...]


Draw = Callable[["Axes"], Sequence[Mark]]


def inline_svg(
    name: str,
    title: str,
    draw: Draw,
    width_in: float = 5.2,
    height_in: float = 2.6,
    top: float = 24,
) -> str:
    """Render `draw` on empty axes as inline SVG, with the marks that it returns.

    `name` is unique on the page; `top` is the room above the axes, in points.
    """
    text = io.StringIO()
    with styled(_PLACEHOLDERS, {"svg.hashsalt": name}):
        figure, axes = empty_axes(width_in, height_in, top)
        marks = draw(axes)
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    circles = []  # to point at: larger than what is seen
    for mark in marks:
        x, y = axes.transData.transform((mark.x, mark.y))
        tooltip = escape("\n".join(filter(None, mark.lines)))
        circles.append(
            f'<circle cx="{x:.1f}" cy="{72 * height_in - y:.1f}" '
            f'r="7"><title>{tooltip}</title></circle>'
        )
    hits = (
        f'<g class="hits" fill="none" pointer-events="all">{"".join(circles)}</g>'
        if circles
        else ""
    )
    return _inline(text.getvalue(), name, title, hits)


@contextmanager
def styled(
    colours: Mapping[str, str], style: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[None]:
    """Draw in the style of the report within the context, with a colour for each of VARIABLES."""
    import matplotlib
    from cycler import cycler

    settings: dict[Any, Any] = {
        **_STYLE,
        "axes.prop_cycle": cycler(color=[colours[variable] for variable in VARIABLES]),
        **dict.fromkeys(
            ("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), colours["--soft"]
        ),
        **dict.fromkeys(("axes.edgecolor", "grid.color"), colours["--line"]),
        **style,
    }
    with matplotlib.rc_context(settings):
        yield


def empty_axes(width_in: float, height_in: float, top: float) -> "tuple[Figure, Axes]":
    """Return axes on a figure of their own, without pyplot's global state."""
    from matplotlib.figure import Figure

    figure = Figure((width_in, height_in), dpi=72)  # the SVG's unit is a pixel then
    width, height = 72 * width_in, 72 * height_in
    left, right, bottom = 44, 10, 22  # a layout that fits itself would draw everything twice
    inside = (
        left / width,
        bottom / height,
        (width - left - right) / width,
        (height - top - bottom) / height,
    )
    return figure, figure.add_axes(inside)


def _inline(svg: str, name: str, title: str, hits: str) -> str:
    """Make an SVG document fit for a page: no prologue, no outside address, ids of its own, a
    title.
    """
    body = svg[svg.index("<svg") :]
    for pattern, replacement in _CLEANUP:
        body = pattern.sub(replacement, body)
    # A hundredth of a point is finer than any screen.
    body = re.sub(
        r' (?:d|x|y|transform)="[^"]*"',
        lambda attribute: re.sub(r"(\.\d\d)\d+", r"\1", attribute[0]),
        body,
    )
    body = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", body)
    for variable, colour in _PLACEHOLDERS.items():
        body = body.replace(colour, f"var({variable})")
    view_box = re.search(r'viewBox="[^"]*"', svg)
    label = escape(title)
    frame = f'{view_box[0] if view_box else ""} class="chart" role="img" aria-label="{label}"'
    drawn = body[body.index(">") + 1 : body.rindex("</svg>")]
    return f"<svg {frame}><title>{label}</title>{drawn}{hits}</svg>"


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
    named = ", ".join(
        f"{c.operation} up to {words.number(max(p.busbw_gb_s for p in c.points))} GB/s"
        for c in curves
    )
    return f"busbw over message size: {named}"


def busbw_caption(curves: Sequence[Curve], last: LastValue) -> str:
    """Explain the marks that the chart has."""
    points = [point for curve in curves for point in curve.points]
    expected = [*(point.expected for point in points), *(curve.plateau for curve in curves)]
    parts = (
        (any(e.low is not None for e in expected), "Shaded or dashed: what is expected."),
        (any(last(p) is not None for p in points), "Dotted: the last good run."),
        (any(p.verdict not in (None, Verdict.PASS) for p in points), "A cross: not a pass."),
    )
    return " ".join(text for there, text in parts if there)


def _legend_height(curves: Sequence[Curve]) -> int:
    """Return the height in points; a single curve needs no legend."""
    return 0 if len(curves) == 1 else 18 * -(-len(curves) // 5)


def loss_chart(losses: Sequence[float]) -> str:
    """Return the training loss of each step."""
    title = (
        f"training loss over {len(losses)} steps: {words.number(losses[0])} to "
        f"{words.number(losses[-1])}"
    )
    return inline_svg("loss", title, lambda axes: _draw_loss(axes, losses))


def draw_busbw(axes: "Axes", curves: Sequence[Curve], last: LastValue) -> list[Mark]:
    """Draw the curves on empty axes; return the marks of their points."""
    axes.set_xscale("log", base=2)
    axes.set_title("busbw, GB/s", pad=8 + _legend_height(curves))
    for curve, colour in zip(curves, SERIES * (1 + len(curves) // len(SERIES)), strict=False):
        sizes = [point.message_bytes for point in curve.points]
        rates, label = (
            [point.busbw_gb_s for point in curve.points],
            words.plain(curve.operation)[:60],
        )
        axes.plot(sizes, rates, "o-", color=colour, label=label, ms=3.5, lw=1.8)
        _draw_expected(axes, curve, colour)
        before = [(p.message_bytes, value) for p in curve.points if (value := last(p)) is not None]
        if len(before) > 1:
            axes.plot(*_columns(before), ":", color=colour, lw=1.4, alpha=0.9)
        _mark_bad(axes, curve.points)
    points = [point for curve in curves for point in curve.points]
    _size_axis(axes, sorted({point.message_bytes for point in points}))
    axes.set_ylim(bottom=0)
    if len(curves) == 1:  # of several curves, intervals that are open above would hide each other
        open_above = [p for p in points if p.expected.low is not None and p.expected.high is None]
        if len(open_above) > 1:
            sizes, lows = (
                [p.message_bytes for p in open_above],
                [p.expected.low or 0.0 for p in open_above],
            )
            axes.fill_between(sizes, lows, axes.get_ylim()[1], color=SERIES[0], alpha=0.08, lw=0)
    else:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(-0.02, 1.0),
            ncols=min(len(curves), 5),
            handlelength=1.2,
            columnspacing=1,
        )
    return [_mark(curve, point, last(point)) for curve in curves for point in curve.points]


def _shown(verdict: Verdict | None) -> str:
    return f" · {words.GLYPHS[verdict]} {verdict.value}" if verdict else ""


def _mark(curve: Curve, point: Point, last: float | None) -> Mark:
    """Return the mark of a point: busbw, what is expected by whom, the verdict, and the last good
    run.
    """
    expected = words.interval(point.expected, "GB/s")
    lines = (
        f"{curve.operation}, {format_size(point.message_bytes)}",
        f"{words.quantity(point.busbw_gb_s, 'GB/s')}{_shown(point.verdict)}",
        f"expected {expected} ({point.source})" if expected != "–" else "",
        f"last good run {words.quantity(last, 'GB/s')}" if last is not None else "",
    )
    return Mark(point.message_bytes, point.busbw_gb_s, lines)


def _draw_expected(axes: "Axes", curve: Curve, colour: str) -> None:
    """Shade where points have both bounds, dash where only one; else the plateau's bound over the
    largest messages.
    """
    both = [
        (p.message_bytes, p.expected.low, p.expected.high)
        for p in curve.points
        if (p.expected.low is not None and p.expected.high is not None)
    ]
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


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _mark_bad(axes: "Axes", points: Sequence[Point]) -> None:
    for verdict in set(Verdict) - {Verdict.PASS}:
        colour = BAD if verdict in _WORST else WEAK
        marked = [(p.message_bytes, p.busbw_gb_s) for p in points if p.verdict is verdict]
        if marked:
            axes.plot(*_columns(marked), "x", color=colour, ms=5, mew=1.8, zorder=5)


def _size_axis(axes: "Axes", sizes: Sequence[int]) -> None:
    apart = math.log2(max(sizes) / min(sizes)) / 10  # of about ten ticks
    ticks = [sizes[-1]]  # the largest message always has its tick
    for size in reversed(sizes[:-1]):
        if math.log2(ticks[0] / size) >= apart:
            ticks.insert(0, size)
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
    return [
        Mark(n, loss, (f"step {n}", f"loss {words.number(loss)}"))
        for n, loss in steps
        if math.isfinite(loss)
    ]


def band_chart(name: str, band: Band) -> str:
    """Draw a number over a campaign: the median of all parts, shaded from the lowest to the
    highest.
    """
    title = f"{band.title}, over {band.hours[-1]:.3g} h"
    return inline_svg(name, title, lambda axes: _draw_band(axes, band), width_in=4.6, height_in=1.9)


def _draw_band(axes: "Axes", band: Band) -> list[Mark]:
    axes.set_title(band.title, pad=8)
    axes.fill_between(band.hours, band.low, band.high, color=SERIES[0], alpha=0.2, lw=0)
    axes.plot(band.hours, band.middle, color=SERIES[0], lw=1.4)
    axes.margins(x=0.01)
    _widen_value_axis(axes)
    return [
        Mark(
            hour,
            middle,
            (
                f"hour {hour:.2f}",
                f"median {words.number(middle)}",
                f"{words.number(low)} to {words.number(high)}",
            ),
        )
        for hour, low, middle, high in zip(
            band.hours, band.low, band.middle, band.high, strict=True
        )
    ]


def trend_chart(name: str, headline: Headline) -> str:
    """Return one point per run, oldest first, this run last and larger; `name` is unique on the
    page.
    """
    unit = words.unit_name(headline.measurement.unit)
    values = (
        f"{words.number(headline.trend[0].value)} to {words.number(headline.trend[-1].value)} "
        f"{unit}"
    ).strip()
    title = f"{headline.name} over {len(headline.trend)} runs: {values}"
    return inline_svg(
        name, title, lambda axes: _draw(axes, headline, unit), width_in=4.6, height_in=1.9
    )


def _draw(axes: "Axes", headline: Headline, unit: str) -> list[Mark]:
    trend = headline.trend
    axes.set_title(f"{headline.name}{f', {unit}' if unit else ''}", pad=8)
    axes.plot(range(len(trend)), [then.value for then in trend], color=SERIES[0], lw=1, alpha=0.45)
    for verdict in dict.fromkeys(then.verdict for then in trend):
        at = [i for i, then in enumerate(trend) if then.verdict is verdict]
        passed = verdict in (None, Verdict.PASS)
        colour, sign = (SERIES[0], "o") if passed else (BAD if verdict in _WORST else WEAK, "x")
        axes.plot(
            at, [trend[i].value for i in at], sign, color=colour, ms=3.2, mew=1.4, clip_on=False
        )
    axes.plot([len(trend) - 1], [trend[-1].value], "o", ms=8, mfc="none", color=INK, clip_on=False)
    low, high = headline.expected.low, headline.expected.high
    if low is not None and high is not None:
        axes.axhspan(low, high, color=SERIES[0], alpha=0.12, lw=0)
    elif (bound := low if low is not None else high) is not None:
        axes.axhline(bound, color=SERIES[0], lw=1, ls="--", alpha=0.8)
    for i, then in enumerate(trend):
        if then.software:
            axes.axvline(i, color=INK, lw=0.8, ls=":")
    days = {then.started.date() for then in trend}
    shown = "%H:%M" if len(days) == 1 else "%-d %b" if len(days) == len(trend) else "%-d %b %H:%M"
    stride = -(-len(trend) // (5 if len(shown) < 8 else 3))
    ticks = list(reversed(range(len(trend) - 1, -1, -stride)))
    axes.set_xticks(ticks, [f"{trend[i].started:{shown}}" for i in ticks])
    axes.set_xlim(-0.7, len(trend) - 0.3)
    _widen_value_axis(axes)
    return [Mark(i, then.value, _mark_lines(then, unit)) for i, then in enumerate(trend)]


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
    return (
        words.moment(then.started),
        f"{words.quantity(then.value, unit)}{_shown(then.verdict)}",
        f"changed: {then.software}" if then.software else "",
        f"run {then.run_id}",
    )
