"""The curve as a PNG for chats and e-mail: busbw over message size, what is expected, and the last good run."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from seatrial.judge.curves import Curve, Point, busbw_curves
from seatrial.model.result import RunResult
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict, worst
from seatrial.text import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 144
MAX_CURVES = 3
MAX_TICKS = 8
_COLOURS = ("#1f6feb", "#b35900", "#6f42c1")  # told apart also by those who see no red or green
_BAD = "#c1121f"


def curve_png(result: RunResult, before: RunResult | None = None) -> bytes | None:
    """The worst curves of the run, three at most; None where it swept nothing."""
    curves = _worst_first(_curves(result))[:MAX_CURVES]
    if not curves:
        return None
    earlier = {curve.operation: curve for curve in _curves(before)} if before else {}
    return _drawn(curves, [earlier.get(curve.operation) for curve in curves], words.plain(words.headline(result))[:90])


def described(result: RunResult) -> str:
    """The picture in words, for those who do not see it."""
    said = [f"{c.operation} reaches {words.number(max(p.busbw_gb_s for p in c.points))} GB/s" for c in _curves(result)]
    return words.plain(f"busbw over message size: {', '.join(said)}")[:1000]


def _curves(result: RunResult) -> list[Curve]:
    return [curve for check in result.checks for curve in busbw_curves(check)]


def _worst_first(curves: Sequence[Curve]) -> list[Curve]:
    def badness(curve: Curve) -> int:
        return worst(point.verdict or Verdict.PASS for point in curve.points).severity

    return sorted(curves, key=badness)


def _drawn(curves: Sequence[Curve], before: Sequence[Curve | None], title: str) -> bytes:
    """On a figure of its own: pyplot's global state is not used, so threads and callers do not meet."""
    import matplotlib
    from matplotlib.figure import Figure

    written = io.BytesIO()
    with matplotlib.rc_context({"text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure((7.2, 4.0), layout="tight", facecolor="white")
        axes = figure.subplots()
        axes.set_title(title, loc="left", fontsize=11)
        for curve, earlier, colour in zip(curves, before, _COLOURS, strict=False):
            _draw(axes, curve, earlier, colour)
        _label(axes, sorted({point.message_bytes for curve in curves for point in curve.points}))
        figure.savefig(written, format="png", dpi=DPI, metadata={"Software": None})
    return written.getvalue()


def _draw(axes: "Axes", curve: Curve, earlier: Curve | None, colour: str) -> None:
    _line(axes, curve.points, "o-", colour, curve.operation)
    if earlier:
        _line(axes, earlier.points, "--", colour, f"{curve.operation}, last good run", alpha=0.6)
    banded = [p for p in curve.points if p.expected.low is not None and p.expected.high is not None]
    if banded:
        low, high = [p.expected.low or 0.0 for p in banded], [p.expected.high or 0.0 for p in banded]
        axes.fill_between(
            [p.message_bytes for p in banded], low, high, color=colour, alpha=0.15, lw=0, label="expected"
        )
    elif curve.plateau.low is not None:
        axes.axhline(curve.plateau.low, color=colour, ls=":", lw=1.2, label=f"{curve.operation}, expected plateau")
    if bad := [p for p in curve.points if p.verdict not in (None, Verdict.PASS)]:
        _line(axes, bad, "x", _BAD, "not as expected")


def _line(axes: "Axes", points: Sequence[Point], style: str, colour: str, label: str, alpha: float = 1.0) -> None:
    sizes, rates = [p.message_bytes for p in points], [p.busbw_gb_s for p in points]
    axes.plot(sizes, rates, style, color=colour, label=words.plain(label)[:60], ms=5, lw=1.8, alpha=alpha)


def _label(axes: "Axes", sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    ticks = list(reversed(sizes[::-1][:: -(-len(sizes) // MAX_TICKS)]))  # the largest message always has its tick
    axes.set_xticks(ticks, [format_size(size) for size in ticks], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("message size")
    axes.set_ylabel("busbw, GB/s")
    axes.grid(axis="y", alpha=0.3)
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    axes.legend(once.values(), once.keys(), frameon=False, fontsize=8)
