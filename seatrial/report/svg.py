"""matplotlib's drawing as inline SVG of a page, and the style that all drawings have.

Colours are CSS variables, so that one chart serves light, dark and paper.

Every point that has something to tell carries it as a `<title>`: browsers show it without a script, and report.js shows
it better.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Drawings name their colours C0, C1, ... as matplotlib's colour cycle does: one for each variable of the page's style.
VARIABLES = (*(f"--series-{n}" for n in range(1, 9)), "--soft", "--line", "--fail", "--degraded")
SERIES = tuple(f"C{n}" for n in range(8))
INK, GRID, BAD, WEAK = "C8", "C9", "C10", "C11"
# matplotlib only takes real colours: an SVG is drawn with these, and the page's variables are put in their place.
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
_INKED = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
_GREY = ("axes.edgecolor", "grid.color")


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of the axes and the lines that pointing at it shows."""

    x: float
    y: float
    lines: tuple[str, ...]


Draw = Callable[["Axes"], Sequence[Mark]]


def inline_svg(
    name: str, title: str, draw: Draw, width_in: float = 6.8, height_in: float = 3.0, top: float = 24
) -> str:
    """What `draw` makes of empty axes, with the marks that it returns.

    `name` is unique on the page; `top` is the room above the axes, in points.
    """
    text = io.StringIO()
    with styled(_PLACEHOLDERS, {"svg.hashsalt": name}):
        figure, axes = empty_axes(width_in, height_in, top)
        marks = draw(axes)
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return _inline(text.getvalue(), name, title, _hits(axes, marks, 72 * height_in))


@contextmanager
def styled(colours: Mapping[str, str], style: Mapping[str, Any] = MappingProxyType({})) -> Iterator[None]:
    """Draw in the style of the report meanwhile, with a colour for each of VARIABLES."""
    import matplotlib
    from cycler import cycler

    settings: dict[Any, Any] = {
        **_STYLE,
        "axes.prop_cycle": cycler(color=[colours[variable] for variable in VARIABLES]),
        **dict.fromkeys(_INKED, colours["--soft"]),
        **dict.fromkeys(_GREY, colours["--line"]),
        **style,
    }
    with matplotlib.rc_context(settings):
        yield


def empty_axes(width_in: float, height_in: float, top: float) -> "tuple[Figure, Axes]":
    """On a figure of their own: pyplot's global state is not used, so threads and callers do not meet."""
    from matplotlib.figure import Figure

    figure = Figure((width_in, height_in), dpi=72)  # the SVG's unit is a pixel then
    return figure, figure.add_axes(_inside(72 * width_in, 72 * height_in, top))


def _inside(width: float, height: float, top: float) -> tuple[float, float, float, float]:
    """The axes in fractions of the figure. A layout that fits itself draws everything twice."""
    left, right, bottom = 44, 10, 22
    return left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height


def _hits(axes: "Axes", marks: Sequence[Mark], height: float) -> str:
    """A circle to point at per mark, larger than what is seen."""
    circles = []
    for mark in marks:
        x, y = axes.transData.transform((mark.x, mark.y))
        tooltip = escape("\n".join(mark.lines))
        circles.append(f'<circle cx="{x:.1f}" cy="{height - y:.1f}" r="7"><title>{tooltip}</title></circle>')
    return f'<g class="hits" fill="none" pointer-events="all">{"".join(circles)}</g>' if circles else ""


def _inline(svg: str, name: str, title: str, hits: str) -> str:
    """A stand-alone SVG document made fit to stand in a page: no prologue, no outside address, own ids, a title."""
    body = svg[svg.index("<svg") :]
    for pattern, replacement in _CLEANUP:
        body = pattern.sub(replacement, body)
    body = re.sub(r' (?:d|x|y|transform)="[^"]*"', _rounded, body)
    body = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", body)
    for variable, colour in _PLACEHOLDERS.items():
        body = body.replace(colour, f"var({variable})")
    view_box = re.search(r'viewBox="[^"]*"', svg)
    label = escape(title)
    frame = f'{view_box[0] if view_box else ""} class="chart" role="img" aria-label="{label}"'
    drawn = body[body.index(">") + 1 : body.rindex("</svg>")]
    return f"<svg {frame}><title>{label}</title>{drawn}{hits}</svg>"


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
