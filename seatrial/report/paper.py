"""The report as PDF through WeasyPrint, and its busbw chart as PNG for chats, e-mail and
Prefect.
"""

import io
import logging
import re
from functools import cache
from importlib.resources import files
from typing import Any

from seatrial.model.curves import Curve, Point, busbw_curves
from seatrial.model.errors import InputError
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict, worst
from seatrial.report.charts import busbw_caption, busbw_title, draw_busbw
from seatrial.report.svg import empty_axes, styled
from seatrial.text import words
from seatrial.text.headline import lines

_DECLARED = re.compile(r"(--[\w-]+): (#[0-9a-f]{3,6})")
_USED = re.compile(r"var\((--[\w-]+)\)")
_MIXED = re.compile(r"color-mix\(in srgb, ([^,]+?) (\d+)%, transparent\)")
DPI = 144
MAX_CURVES = 3


def pdf_of(html: str) -> bytes:
    """Return the report `html` as PDF.

    Raises InputError that says what to install where WeasyPrint or its libraries lack.
    """
    try:
        import weasyprint
    except ImportError as error:
        raise InputError(
            f"--format pdf: needs WeasyPrint ({error}): install seatrial with its extra `pdf`"
        ) from error
    except OSError as error:  # one of the system's libraries
        raise InputError(
            f"--format pdf: WeasyPrint lacks a library ({str(error).splitlines()[0]}): apt-get "
            "install "
            "libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fonts-dejavu-core"
        ) from error
    # WeasyPrint warns of every rule that is for screens only
    logging.getLogger("weasyprint").setLevel(logging.ERROR)
    paper = on_paper(html).encode(errors="backslashreplace").decode()
    document: bytes = weasyprint.HTML(string=paper, url_fetcher=_refuse).write_pdf()
    return document


def on_paper(html: str) -> str:
    """Return the page with its colours in place of their variables: drawings on paper do not read
    the page's style.
    """
    paper = paper_colours()
    still = re.sub(r'<script>.*?</script>|<g class="hits".*?</g>', "", html, flags=re.DOTALL)
    coloured = _USED.sub(lambda use: paper.get(use[1], use[0]), still)
    # WeasyPrint cannot unfold: a folded group prints as it is.
    return _MIXED.sub(_mixed, coloured).replace(
        "</style>", "summary { display: block; }</style>", 1
    )


@cache
def paper_colours() -> dict[str, str]:
    """Return the colour on paper of each variable of the page's style."""
    css = files("seatrial.report").joinpath("templates/report.css").read_text(encoding="utf-8")
    return {
        **dict(_DECLARED.findall(css.partition("@media")[0])),
        **dict(_DECLARED.findall(css.partition("@media print")[2])),
    }


def _mixed(mix: re.Match[str]) -> str:
    """Return a colour thinned on white.

    One that is known only where it is used keeps its name, and the rule is left out.
    """
    if not re.fullmatch(r"#[0-9a-f]{6}", mix[1]):
        return mix[0]
    part = int(mix[2]) / 100
    channels = (int(mix[1][i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - part * (255 - channel)):02x}" for channel in channels)


def _refuse(url: str, *_: Any, **__: Any) -> Any:
    raise ValueError(f"{url}: a report asks for nothing")


def curve_png(result: RunResult, before: RunResult | None = None) -> bytes | None:
    """Draw the worst curves of the run, three at most; None if it swept nothing."""
    curves = sorted(_curves(result), key=_severity)[:MAX_CURVES]
    if not curves:
        return None
    earlier = {
        p.series: p.busbw_gb_s
        for curve in (_curves(before) if before else ())
        for p in curve.points
    }

    def last(point: Point) -> float | None:
        return earlier.get(point.series)

    title = words.plain(f"{result.cluster}: {lines(result)[0]}")[:90]
    names = ", ".join(words.plain(curve.operation)[:60] for curve in curves)
    written = io.BytesIO()
    with styled(paper_colours()):
        figure, axes = empty_axes(7.2, 4.0, top=100)  # room for headline, caption, legend and title
        draw_busbw(axes, curves, last)
        figure.text(0.02, 0.97, title, va="top", fontsize=12)
        figure.text(
            0.02, 0.9, f"{names}: busbw over message size\n{busbw_caption(curves, last)}", va="top"
        )
        figure.savefig(written, format="png", dpi=DPI, metadata={"Software": None})
    return written.getvalue()


def described(result: RunResult) -> str:
    """Return the picture in words, for those who do not see it."""
    return words.plain(busbw_title(_curves(result)))[:1000]


def _curves(result: RunResult) -> list[Curve]:
    return [curve for check in result.checks for curve in busbw_curves(check)]


def _severity(curve: Curve) -> int:
    return worst(point.verdict or Verdict.PASS for point in curve.points).severity
