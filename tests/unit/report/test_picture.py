import struct
from typing import Any

import pytest

from seatrial.report.charts import empty_axes
from seatrial.report.paper import MAX_CURVES, curve_png, described
from tests import nights, samples


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
    assert texts[0].startswith("h100-east: fail: node-5 (97 % sure): every pair with node-5 reaches")
    assert "Dotted: the last good run." in texts[1]
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == texts[1].partition(":")[0].split(", ")
    assert len(names) == MAX_CURVES


def test_a_run_without_a_sweep_has_no_picture() -> None:
    assert curve_png(nights.unmeasured(1)) is None


def test_the_picture_in_words() -> None:
    assert described(samples.healthy_local()).startswith("busbw over message size: all_reduce up to ")
