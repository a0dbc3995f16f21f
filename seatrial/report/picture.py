"""The report's busbw chart as a PNG, for chats, e-mail and Prefect: the worst curves, and the last good run."""

import io
from collections.abc import Sequence

from seatrial.model.curves import Curve, busbw_curves
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict, worst
from seatrial.report.charts import LastValue, busbw_caption, busbw_title, draw_busbw
from seatrial.report.pdf import paper_colours
from seatrial.report.svg import empty_axes, styled
from seatrial.text import words

DPI = 144
MAX_CURVES = 3
_SIZE_IN = (7.2, 4.0)
_HEAD = 100  # points above the axes: headline, caption, legend, title


def curve_png(result: RunResult, before: RunResult | None = None) -> bytes | None:
    """The worst curves of the run, three at most; None where it swept nothing."""
    curves = _worst_first(_curves(result))[:MAX_CURVES]
    if not curves:
        return None
    earlier = {p.series: p.busbw_gb_s for curve in (_curves(before) if before else ()) for p in curve.points}
    return _drawn(curves, lambda point: earlier.get(point.series), words.plain(words.headline(result))[:90])


def described(result: RunResult) -> str:
    """The picture in words, for those who do not see it."""
    return words.plain(busbw_title(_curves(result)))[:1000]


def _curves(result: RunResult) -> list[Curve]:
    return [curve for check in result.checks for curve in busbw_curves(check)]


def _worst_first(curves: Sequence[Curve]) -> list[Curve]:
    def badness(curve: Curve) -> int:
        return worst(point.verdict or Verdict.PASS for point in curve.points).severity

    return sorted(curves, key=badness)


def _drawn(curves: Sequence[Curve], last: LastValue, title: str) -> bytes:
    written = io.BytesIO()
    with styled(paper_colours()):
        figure, axes = empty_axes(*_SIZE_IN, top=_HEAD)
        draw_busbw(axes, curves, last)
        names = ", ".join(words.plain(curve.operation)[:60] for curve in curves)
        figure.text(0.02, 0.97, title, va="top", fontsize=12)
        figure.text(0.02, 0.9, f"{names}: busbw over message size\n{busbw_caption(curves, last)}", va="top")
        figure.savefig(written, format="png", dpi=DPI, metadata={"Software": None})
    return written.getvalue()
