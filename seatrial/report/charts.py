"""Charts as inline SVG. Colours are CSS variables of the page, so that one chart serves light, dark and paper."""

import io
import re
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from seatrial.report import words
from seatrial.report.series import Curve, Point
from seatrial.sizes import format_size
from seatrial.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# matplotlib only takes real colours: it draws with these, and the page's variables are put in their place.
_INK, _GRID, _BAD, _WEAK = "#010101", "#010102", "#010103", "#010104"
_SERIES = tuple(f"#0101{n:02x}" for n in range(0x10, 0x18))
_VARIABLES = {_INK: "--soft", _GRID: "--line", _BAD: "--fail", _WEAK: "--degraded"} | {
    colour: f"--series-{n}" for n, colour in enumerate(_SERIES, 1)
}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and read aloud
    "text.parse_math": False,  # names come from outside; a "$" in one is no formula
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.edgecolor": _GRID,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "ytick.left": False,
    "xtick.minor.bottom": False,
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "path.simplify": True,
}

_MAX_TICKS = 10
_BAD_VERDICTS = {Verdict.FAIL: _BAD, Verdict.CORRUPT: _BAD, Verdict.DEGRADED: _WEAK}


def busbw_chart(curves: Sequence[Curve]) -> str:
    """busbw in GB/s over message size (log scale), one line per operation, the expected interval shaded."""
    named = ", ".join(f"{c.operation} up to {words.number(max(p.busbw_gb_s for p in c.points))} GB/s" for c in curves)
    return _svg("busbw", f"busbw over message size: {named}", lambda axes: _draw_busbw(axes, curves))


def loss_chart(losses: Sequence[float]) -> str:
    """The training loss of each step."""
    title = f"training loss over {len(losses)} steps: {words.number(losses[0])} to {words.number(losses[-1])}"
    return _svg("loss", title, lambda axes: _draw_loss(axes, losses), height_in=2.1)


def _draw_busbw(axes: "Axes", curves: Sequence[Curve]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_title("busbw, GB/s", pad=26 if len(curves) > 1 else 8)
    for curve, colour in zip(curves, _SERIES * (1 + len(curves) // len(_SERIES)), strict=False):
        sizes = [point.message_bytes for point in curve.points]
        axes.plot(
            sizes, [p.busbw_gb_s for p in curve.points], "o-", color=colour, label=curve.operation, ms=3.5, lw=1.8
        )
        _draw_expected(axes, curve, colour)
        _mark_bad(axes, curve.points)
    _size_axis(axes, sorted({point.message_bytes for curve in curves for point in curve.points}))
    axes.set_ylim(bottom=0)
    if len(curves) > 1:
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=min(len(curves), 5), handlelength=1.2, columnspacing=1
        )


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


def _both(point: Point) -> bool:
    return point.expected.low is not None and point.expected.high is not None


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _mark_bad(axes: "Axes", points: Sequence[Point]) -> None:
    for verdict, colour in _BAD_VERDICTS.items():
        marked = [(p.message_bytes, p.busbw_gb_s) for p in points if p.verdict is verdict]
        if marked:
            axes.plot(*_columns(marked), "x", color=colour, ms=5, mew=1.8, zorder=5)


def _size_axis(axes: "Axes", sizes: Sequence[int]) -> None:
    stride = -(-len(sizes) // _MAX_TICKS)
    ticks = list(reversed(sizes[::-1][::stride]))  # the largest message always has its tick
    axes.set_xticks(ticks, [format_size(size) for size in ticks], minor=False)
    axes.set_xticks([], minor=True)


def _draw_loss(axes: "Axes", losses: Sequence[float]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title("loss by step", pad=8)
    axes.plot(range(1, len(losses) + 1), losses, color=_SERIES[0], lw=1.8)
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))


def _svg(name: str, title: str, draw: Callable[["Axes"], None], height_in: float = 3.0) -> str:
    """Draw on a figure of its own: pyplot's global state is not used, so threads and callers do not meet."""
    import matplotlib
    from matplotlib.figure import Figure

    text = io.StringIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure((6.8, height_in), layout="tight")
        draw(figure.subplots())
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return _inline(text.getvalue(), name, title)


def _inline(svg: str, name: str, title: str) -> str:
    """A stand-alone SVG document made fit to stand in a page: no prologue, no outside address, own ids, a title."""
    body = svg[svg.index("<svg") :]
    for pattern, replacement in _CLEANUP:
        body = pattern.sub(replacement, body)
    body = re.sub(r' (?:d|x|y|transform)="[^"]*"', _rounded, body)
    body = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", body)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    view_box = re.search(r'viewBox="[^"]*"', svg)
    label = escape(title)
    frame = f'{view_box[0] if view_box else ""} class="chart" role="img" aria-label="{label}"'
    return f"<svg {frame}><title>{label}</title>" + body[body.index(">") + 1 :]


def _rounded(attribute: re.Match[str]) -> str:
    """A hundredth of a point is finer than any screen."""
    return re.sub(r"(\.\d\d)\d+", r"\1", attribute[0])


_CLEANUP: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"<!--.*?-->", re.DOTALL), ""),
    (re.compile(r"<metadata>.*?</metadata>", re.DOTALL), ""),
    (re.compile(r"<style.*?</style>", re.DOTALL), ""),  # its "*" rule would reach the whole page
    (re.compile(r"font-family: [^;\"]*;? ?"), ""),
    (re.compile(r"xlink:href="), "href="),
    (re.compile(r"\s*\n\s*"), " "),
)
