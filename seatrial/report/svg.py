"""Drawings of matplotlib as inline SVG, in the style of the page."""

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

# Drawings name their colours C0, C1, ... as matplotlib's colour cycle does: one for each variable
# of the page's style.
_OF_SERIES = tuple(f"--series-{n}" for n in range(1, 9))
VARIABLES = (*_OF_SERIES, "--soft", "--line", "--fail", "--degraded")
SERIES = tuple(f"C{n}" for n in range(8))
FIRST = SERIES[0]
INK = "C8"
GRID = "C9"
BAD = "C10"
WEAK = "C11"
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
_COORDINATES = re.compile(r' (?:d|x|y|transform)="[^"]*"')


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
        from_top = 72 * height_in - y
        circle = f'<circle cx="{x:.1f}" cy="{from_top:.1f}" r="7">'
        tooltip = escape("\n".join(filter(None, mark.lines)))
        circles.append(f"{circle}<title>{tooltip}</title></circle>")
    hits = ""
    if circles:
        hits = f'<g class="hits" fill="none" pointer-events="all">{"".join(circles)}</g>'
    return _inline(text.getvalue(), name, title, hits)


@contextmanager
def styled(
    colours: Mapping[str, str], style: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[None]:
    """Draw in the style of the report within the context, with a colour for each of VARIABLES."""
    import matplotlib
    from cycler import cycler

    settings = dict(_STYLE)
    cycle = [colours[variable] for variable in VARIABLES]
    settings["axes.prop_cycle"] = cycler(color=cycle)
    for text in ("text.color", "axes.labelcolor", "xtick.color", "ytick.color"):
        settings[text] = colours["--soft"]
    for line in ("axes.edgecolor", "grid.color"):
        settings[line] = colours["--line"]
    settings |= style
    with matplotlib.rc_context(settings):
        yield


def empty_axes(width_in: float, height_in: float, top: float) -> "tuple[Figure, Axes]":
    """Return axes on a figure of their own, without pyplot's global state."""
    from matplotlib.figure import Figure

    figure = Figure((width_in, height_in), dpi=72)  # the SVG's unit is a pixel then
    width = 72 * width_in
    height = 72 * height_in
    # An automatic layout would draw everything twice
    left = 44
    right = 10
    bottom = 22
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
    # To a hundredth of a point, which is finer than any screen
    body = _COORDINATES.sub(lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), body)
    body = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", body)
    for variable, colour in _PLACEHOLDERS.items():
        body = body.replace(colour, f"var({variable})")
    match = re.search(r'viewBox="[^"]*"', svg)
    view_box = match[0] if match else ""
    label = escape(title)
    frame = f'{view_box} class="chart" role="img" aria-label="{label}"'
    start = body.index(">") + 1
    drawn = body[start : body.rindex("</svg>")]
    return f"<svg {frame}><title>{label}</title>{drawn}{hits}</svg>"
