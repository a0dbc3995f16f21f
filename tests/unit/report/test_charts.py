import re
import struct
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from seatrial.model.curves import Curve, Point, busbw_curves, latency_table, losses
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.result import Expected
from seatrial.model.verdict import Verdict
from seatrial.report.charts import _mark_bad, busbw_chart, loss_chart
from seatrial.report.context import Headline, HeadlinePoint
from seatrial.report.paper import MAX_CURVES, curve_png, described
from seatrial.report.svg import BAD, WEAK, empty_axes
from seatrial.report.trends import trend_chart
from tests import nights, samples


def test_the_chart_is_inline_svg_with_a_title_and_text() -> None:
    check = samples.faulty_h100().checks[1]
    svg = busbw_chart(busbw_curves(check))
    root = ElementTree.fromstring(svg)
    texts = [element.text for element in root.iter("text")]
    assert "busbw over message size: all_reduce up to 205 GB/s" in (root.findtext("title") or "")
    assert {"8G", "all_reduce", "alltoall"} <= set(texts)
    assert "http" not in svg
    assert "<style" not in svg


def test_the_title_of_a_trend_has_the_first_value_and_the_last() -> None:
    plateau = Measurement(
        "busbw_plateau", 205, "GB/s", Subject("cluster", "c"), {"operation": "all_reduce"}
    )
    night = datetime(2026, 3, 2, 2, 5, tzinfo=UTC)
    points = [
        HeadlinePoint("run", night + timedelta(i), value, Verdict.PASS)
        for i, value in enumerate((380, 381, 205))
    ]
    headline = Headline(plateau, (), None, tuple(points))
    title = ElementTree.fromstring(trend_chart("a", headline)).findtext("title")
    assert title == "busbw plateau of all_reduce over 3 runs: 380 to 205 GB/s"


def test_colours_are_the_pages_variables() -> None:
    svg = loss_chart([3.0, 2.0, 1.0])
    assert "var(--series-1)" in svg
    assert not re.search(r"#0101\d\d", svg)


def test_ids_of_two_charts_differ() -> None:
    check = samples.healthy_local().checks[1]
    ids = [
        set(re.findall(r'id="([^"]+)"', svg))
        for svg in (busbw_chart(busbw_curves(check)), loss_chart([2.0, 1.0]))
    ]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_the_same_numbers_draw_the_same_chart() -> None:
    assert loss_chart([3.0, 2.0, 1.5]) == loss_chart([3.0, 2.0, 1.5])


def test_hostile_names_are_text_and_no_formula() -> None:
    name = r"<script>$\frac{"
    points = tuple(Point(size, 1.0, Expected(low=2.0), Verdict.FAIL) for size in (8, 16))
    svg = busbw_chart([Curve(name, points, Expected()), Curve("b", points, Expected(1.0, 2.0))])
    assert "<script" not in svg
    assert name in [element.text for element in ElementTree.fromstring(svg).iter("text")]


@pytest.mark.parametrize(
    ("verdict", "colour"), [(Verdict.FAIL, BAD), (Verdict.CORRUPT, BAD), (Verdict.DEGRADED, WEAK)]
)
def test_a_bad_point_has_the_colour_of_its_verdict(verdict: Verdict, colour: str) -> None:
    drawn: list[tuple[str, str]] = []
    axes = SimpleNamespace(plot=lambda x, y, mark, *, color, **_: drawn.append((mark, color)))
    _mark_bad(
        cast(Any, axes),
        [Point(8, 1.0, Expected(), verdict), Point(16, 1.0, Expected(), Verdict.PASS)],
    )
    assert drawn == [("x", colour)]


def test_nonfinite_loss_leaves_a_gap_in_the_chart() -> None:
    assert "<svg" in loss_chart([3.0, float("nan"), float("inf"), 2.0])


def test_busbw_curve_shows_out_of_place_numbers_with_expected_interval() -> None:
    curve = next(
        c for c in busbw_curves(samples.faulty_h100().checks[1]) if c.operation == "all_reduce"
    )
    assert len(curve.points) == 18
    assert curve.points[-1].verdict is Verdict.FAIL
    assert round(curve.points[-1].busbw_gb_s) == 205
    assert curve.points[-1].expected.low is not None
    assert curve.plateau.low is not None


def test_latency_is_shown_for_small_messages_only() -> None:
    table = latency_table(samples.faulty_h100().checks[1])
    assert table is not None
    assert table.operations[0] == "all_reduce"
    assert [size for size, _ in table.rows] == [65536, 131072, 262144, 524288, 1048576]


def test_losses_lists_the_loss_of_every_training_step() -> None:
    assert len(losses(samples.healthy_local().checks[2])) == 20
    assert losses(samples.healthy_local().checks[1]) == ()


def test_the_picture_shows_the_chart_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    drawings: list[Any] = []

    def kept(width_in: float, height_in: float, top: float) -> Any:
        drawings.append(empty_axes(width_in, height_in, top))
        return drawings[0]

    monkeypatch.setattr("seatrial.report.paper.empty_axes", kept)
    png = curve_png(samples.faulty_h100(), samples.faulty_h100())
    assert png is not None
    assert 20_000 < len(png) < 500_000
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">II", png[16:24]) == (1036, 576)
    figure, axes = drawings[0]
    texts = [text.get_text() for text in figure.texts]
    assert texts[0].startswith(
        "h100-east: fail: node-5 (97 % sure): every pair with node-5 reaches"
    )
    assert "Dotted: the last good run." in texts[1]
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == texts[1].partition(":")[0].split(", ")
    assert len(names) == MAX_CURVES


def test_a_run_without_a_sweep_has_no_picture() -> None:
    assert curve_png(nights.unmeasured(1)) is None


def test_the_picture_is_described_in_words() -> None:
    assert described(samples.healthy_local()).startswith(
        "busbw over message size: all_reduce up to "
    )
