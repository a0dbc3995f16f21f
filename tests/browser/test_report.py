"""report.html as its readers see it: of real runs on four local nodes, and of a thousand nodes."""

import io
from itertools import pairwise
from pathlib import Path

import pytest
from pypdf import PdfReader
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from seatrial.report.html import report_html
from tests.browser.page import Browser
from tests.fleet_run import fleet_context, fleet_run

MAX_BYTES = 10_000_000
MAX_OPEN_S = 3.0
A4_PX = 703  # between the margins


def test_report_of_a_bad_run_shows_the_suspect_on_the_first_screen_and_loads_nothing(
    browser: Browser, runs: Path
) -> None:
    report = runs / "bad" / "report.html"
    browser.open(report)
    assert browser.complaints() == []
    asked = [url for url in browser.requests() if not url.startswith("data:")]
    assert asked == [report.resolve().as_uri()]
    assert browser.text("h1").startswith(("degraded: node-2 (", "fail: node-2 ("))
    assert "node-2" in browser.text(".suspects li:first-child b")
    bottom = browser.find(".suspects li:first-child").rect
    assert bottom["y"] + bottom["height"] < 900


def test_pointing_at_the_curve_tells_value_expectation_verdict_and_the_last_good_run(
    browser: Browser, runs: Path
) -> None:
    browser.open(runs / "bad" / "report.html")
    browser.point_at(browser.all("figure .hits circle")[6])
    lines = browser.find(".tip").text.splitlines()
    assert lines[0] == "all_reduce, 16M"
    assert lines[1].split(" GB/s · ")[1] in ("✕ fail", "▼ degraded", "? inconclusive", "✓ pass")
    assert lines[2].startswith("expected ") and lines[2].endswith(" GB/s (history)")
    assert lines[3].startswith("last good run ") and lines[3].endswith(" GB/s")
    assert browser.complaints() == []
    browser.point_at(browser.find("h1"))
    assert not browser.find(".tip").is_displayed()


def test_arrow_keys_move_along_the_curve_and_escape_closes_the_tooltip(
    browser: Browser, runs: Path
) -> None:
    browser.open(runs / "good-2" / "report.html")
    browser.ask("document.querySelector('figure svg.chart').focus()")
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert browser.find(".tip").text.startswith("all_reduce, 16K\n")
    browser.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert browser.find(".tip").text.startswith("all_reduce, 16M\n")
    browser.press(Keys.ESCAPE)
    assert not browser.find(".tip").is_displayed()


def test_links_to_logs_lead_to_them(browser: Browser, runs: Path) -> None:
    browser.open(runs / "bad" / "report.html")
    browser.find("#logs a[href='logs/all_reduce.log']").click()
    assert "out-of-place" in browser.text()


def test_the_report_has_the_same_content_without_scripts(
    still_browser: Browser, browser: Browser, runs: Path
) -> None:
    report = runs / "bad" / "report.html"
    browser.open(report)
    still_browser.open(report)
    assert still_browser.text("main") == browser.text("main")
    assert still_browser.all(".tip") == []
    (title,) = still_browser.all("figure .hits circle:nth-child(7) title")[:1]
    assert (title.get_attribute("textContent") or "").startswith("all_reduce, 16M\n")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("run", ["good-2", "bad"])
def test_text_is_legible_and_page_elements_have_accessible_names(
    browser: Browser, runs: Path, scheme: str, run: str
) -> None:
    browser.prefer(scheme)
    browser.open(runs / run / "report.html")
    browser.ask("document.querySelectorAll('details').forEach((folded) => (folded.open = true))")
    assert browser.unreadable() == []
    levels = [int(heading.tag_name[1]) for heading in browser.all("h1, h2, h3")]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    unnamed = (
        "[...document.querySelectorAll('svg, a, section, nav, input')].filter((e) => !e.id && "
        "!e.ariaLabel"
    )
    unnamed += " && !e.getAttribute('aria-labelledby') && !e.textContent.trim()).length"
    assert browser.ask(f"return {unnamed}") == 0


ORDER = [
    "suspects",
    "changes",
    "heat",
    "curves",
    "check-1",
    "history",
    "software",
    "logs",
    "nodes",
    "verdicts",
]


@pytest.mark.parametrize(
    ("run", "without"),
    [("good-0", {"suspects", "history"}), ("good-2", {"suspects"}), ("bad", set())],
)
def test_verdict_and_suspects_come_before_details(
    browser: Browser, runs: Path, run: str, without: set[str]
) -> None:
    browser.open(runs / run / "report.html")
    places = [browser.ask(_TOP.format(part)) for part in ORDER if part not in without]
    assert places == sorted(places)
    assert all(browser.ask(f"return document.getElementById('{part}')") is None for part in without)


_TOP = "return document.getElementById('{}').getBoundingClientRect().top"


@pytest.mark.parametrize("run", ["good-0", "good-2"])
def test_a_healthy_run_fits_two_screens(browser: Browser, runs: Path, run: str) -> None:
    metrics = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.open(runs / run / "report.html")
    assert browser.ask("return document.documentElement.scrollHeight") <= 2 * 900


def test_row_of_a_suspect_has_a_red_cell(browser: Browser, runs: Path) -> None:
    browser.open(runs / "bad" / "report.html")
    row = next(
        row
        for row in browser.all("table.heat tbody tr")
        if row.text.startswith("node-2 suspect: fail")
    )
    red = browser.ask(
        "return getComputedStyle(document.querySelector('.heat td.fail')).backgroundColor"
    )
    assert any(
        cell.value_of_css_property("background-color") == red
        for cell in row.find_elements("css selector", "td")
    )


def test_print_shows_the_verdict_on_page_one_and_folded_sections_in_full(
    browser: Browser, runs: Path
) -> None:
    browser.open(runs / "bad" / "report.html")
    pages = [page.extract_text() for page in PdfReader(io.BytesIO(browser.print())).pages]
    assert browser.text("h1") in " ".join(pages[0].split())
    assert "node-2" in pages[0]
    whole = "\n".join(pages)
    assert "Not as expected" in whole
    assert "each is in measurements.csv" in " ".join(whole.split())
    assert len(pages) <= 3


def test_nothing_overflows_a_narrow_screen_or_a4_paper(browser: Browser, runs: Path) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.open(runs / "bad" / "report.html")
    browser.ask("document.querySelectorAll('details').forEach((folded) => (folded.open = true))")
    assert browser.ask("return document.documentElement.scrollWidth") <= 390
    scrolling = (
        "[...document.querySelectorAll('.scroll')].filter((part) => part.scrollWidth > "
        "part.clientWidth)"
    )
    assert browser.ask(f"return {scrolling}.map((part) => part.textContent)") == []
    cells = browser.all(".wide :is(th, td), .stacked :is(th, td)")
    right = [cell.rect["x"] + cell.rect["width"] for cell in cells if cell.text]
    assert len(right) > 20 and max(right) <= 390
    assert all(cell.is_displayed() for cell in browser.all(".wide .verdict"))
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {**metrics, "width": A4_PX, "mobile": False}
    )
    assert browser.ask("return document.documentElement.scrollWidth") <= A4_PX


@pytest.fixture(scope="module")
def fleet_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a thousand nodes."""
    result = fleet_run()
    report = tmp_path_factory.mktemp("fleet") / "report.html"
    report.write_text(report_html(result, fleet_context(result)))
    return report


def test_report_of_a_thousand_nodes_opens_quickly(browser: Browser, fleet_report: Path) -> None:
    seconds = [browser.open(fleet_report) for _ in range(3)]
    print(
        f"{fleet_report.stat().st_size / 1e6:.1f} MB opens in "
        f"{', '.join(f'{s:.2f}' for s in seconds)} s"
    )
    assert min(seconds) < MAX_OPEN_S


@pytest.mark.gate
def test_one_of_a_thousand_nodes_is_found(browser: Browser, fleet_report: Path) -> None:
    assert fleet_report.stat().st_size < MAX_BYTES
    browser.open(fleet_report)
    assert browser.complaints() == []
    browser.find("#heat ~ details summary").click()
    browser.find("input[type=search]").send_keys("rack62-node07")
    rows = [row.text for row in browser.all("table[data-find] tbody tr") if row.is_displayed()]
    assert len(rows) == 1
    assert rows[0].startswith("gpu-rack62-node07 suspect")


def test_screenshots_for_the_documentation_can_be_taken(
    browser: Browser, runs: Path, pictures: Path
) -> None:
    browser.open(runs / "bad" / "report.html")
    browser.picture(pictures / "report.png", 1500)
    point = browser.all("figure .hits circle")[6]
    browser.driver.set_window_size(1100, 760)
    browser.ask("document.querySelector('figure').scrollIntoView()")
    ActionChains(browser.driver).move_to_element(point).perform()
    assert browser.find(".tip").is_displayed()
    browser.picture(pictures / "report-curve.png", 760)
    for part, height in (("heat", 420), ("history", 640)):
        browser.ask(f"document.querySelector('#{part}').scrollIntoView()")
        top = browser.ask(f"return document.querySelector('#{part}').getBoundingClientRect().top")
        assert -1 < top < height, f"{part} is not on its picture"
        browser.picture(pictures / f"report-{'nodes' if part == 'heat' else part}.png", height)
