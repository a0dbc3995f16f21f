"""A person at Prefect's UI: starts a check by its form, watches it, opens what it found; and
cancels another.

With `--pictures` it takes those in docs/pictures anew; with `--basetemp=/srv/seatrial` the form
shows paths of a site.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium.common.exceptions import NoSuchElementException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from seatrial.platforms.local.platform import PLATFORM
from tests.browser.page import Browser
from tests.site import LONG, PATIENCE_S, QUICK, Site, site

_MISSING = ("/favicon.ico", "/ico/")
# Pages fade in; what turns for as long as a run goes on is not waited for.
_MOVING = """return document.getAnimations().some(
    (a) => a.playState === 'running' && a.effect.getComputedTiming().endTime !== Infinity)"""
_OURS = ("data:", "blob:", "chrome:", "about:")


@pytest.fixture(scope="module")
def served(
    chromium: str, own_network: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A site that offers a suite of its own in the form, one that takes a while."""
    if lacking := PLATFORM.missing():
        pytest.skip("; ".join(map(str, lacking)))
    with site(tmp_path_factory.mktemp("site")) as new_site:
        new_site.write("trial", nodes=2, platform={"kind": "local"})
        new_site.write("brief", **QUICK)
        new_site.write("long", **LONG)
        new_site.start("trial.yaml", "--suite", "brief.yaml", "--timezone", "UTC")
        yield new_site


@dataclass(frozen=True)
class Visitor:
    """A person before a browser that shows Prefect's UI."""

    browser: Browser
    served: Site
    pictures: Path

    @property
    def address(self) -> str:
        return self.browser.driver.current_url

    def open(self, path: str) -> None:
        self.browser.driver.get(self.served.url + path)

    def log_in(self) -> None:
        """By the page that Prefect shows to whom it does not know."""
        self.open("/")
        self.until(
            lambda: self.browser.driver.find_element(By.CSS_SELECTOR, "input[type=password]")
        )
        file = self.served.folder / "prefect" / "seatrial-serve.auth"
        field = self.browser.driver.find_element(By.CSS_SELECTOR, "input[type=password]")
        field.send_keys(file.read_text().strip())
        self.click("Login")
        self.until(lambda: "/login" not in self.address)

    def until(self, true: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
        """The page changes under our hands: what is not there now may be there in a moment."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if true():
                    return
            except WebDriverException:
                pass
            assert time.monotonic() < deadline, (
                f"not in time at {self.address}: {self.browser.text()}"
            )
            time.sleep(0.3)

    def sees(self, *words: str) -> None:
        self.until(lambda: all(word in self.browser.text() for word in words))

    def click(self, text: str, leads_to: str = "") -> None:
        """The button or link of that text; else whatever else says just that, such as a tab.

        `leads_to` is part of a link's address, where other things have the same text.
        """
        link = f"//a[contains(@href, '{leads_to}')][normalize-space()='{text}']"
        others = f"//button[normalize-space()='{text}']", f"//*[text()='{text}']"

        def clicked() -> bool:
            self._shown(link, *(() if leads_to else others)).click()
            return True

        self.until(clicked)

    def submit(self) -> None:
        """Press Submit until the run is scheduled.

        The server answers 503 to a write that SQLite has locked out. Prefect's client asks again by
        itself; its UI leaves that to the person.
        """

        def scheduled() -> bool:
            complaints = [each for each in self.browser.complaints("SEVERE") if not _is_icon(each)]
            if complaints:
                assert "create_flow_run" in complaints[0], complaints
                assert "status of 503" in complaints[0], complaints
                self.click("Submit")
            return "scheduled to start now" in self.browser.text()

        self.click("Submit")
        self.until(scheduled)

    def _shown(self, *paths: str) -> WebElement:
        """The first element that can be seen of the first path that has one."""
        elements = (
            element
            for path in paths
            for element in self.browser.driver.find_elements(By.XPATH, path)
        )
        shown = next((element for element in elements if element.is_displayed()), None)
        if shown is None:
            raise NoSuchElementException(f"nothing to be seen at {paths}")
        return shown

    def picture(self, name: str) -> None:
        self.until(lambda: not self.browser.ask(_MOVING))
        self.browser.picture(self.pictures / f"{name}.png")


@pytest.fixture
def visitor(chromium: str, served: Site, tmp_path: Path, pictures: Path) -> Iterator[Visitor]:
    """No page asks for anything outside this machine, and none fails; icons that Prefect does not
    ship do not count.
    """
    with Browser.started(chromium, tmp_path / "profile", size=(1300, 1250)) as browser:
        person = Visitor(browser, served, pictures)
        person.log_in()
        browser.complaints()  # before the login the UI is told 401, which it says there
        yield person
        assert [url for url in browser.requests() if not url.startswith((served.url, *_OURS))] == []
        assert [
            complaint for complaint in browser.complaints("SEVERE") if not _is_icon(complaint)
        ] == []


def _is_icon(complaint: str) -> bool:
    return any(icon in complaint for icon in _MISSING)


def newest(served: Site) -> str:
    """The id of the newest flow run of the check that did not come from a schedule."""
    filters = {
        "flows": {"name": {"any_": ["seatrial-check"]}},
        "flow_runs": {"tags": {"all_": ["ad-hoc"]}},
    }
    runs = served.api(
        "POST", "/flow_runs/filter", sort="EXPECTED_START_TIME_DESC", limit=1, **filters
    )
    return str(runs[0]["id"])


def fill_in_the_form(served: Site, visitor: Visitor, suite: str) -> None:
    """From the list of deployments to a run that is scheduled."""
    visitor.open("/deployments")
    visitor.click("ad-hoc", leads_to="/deployments/deployment/")
    visitor.click("Run")
    visitor.click("Custom run")
    visitor.sees("Path of the cluster file", "0 gives up at once and says who has it")
    lists = [
        Select(element) for element in visitor.browser.driver.find_elements(By.TAG_NAME, "select")
    ]
    (suites,) = (
        select for select in lists if "acceptance" in [option.text for option in select.options]
    )
    suites.select_by_visible_text(suite)
    visitor.picture("prefect-form")
    visitor.submit()


@pytest.mark.gate
def test_a_check_is_started_by_its_form_and_its_findings_are_opened(
    served: Site, visitor: Visitor
) -> None:
    fill_in_the_form(served, visitor, str(served.folder / "brief.yaml"))
    flow_run = newest(served)
    visitor.open(f"/runs/flow-run/{flow_run}")
    visitor.sees("trial brief", "cluster:trial", "suite:brief")
    visitor.sees(
        "Completed", "verdict:pass", "all_reduce: 2 sizes from 1M to 4M, every result right"
    )
    assert served.ended(flow_run)["type"] == "COMPLETED"
    visitor.sees("report: http")
    visitor.picture("prefect-run")
    reports = (
        "return [...document.querySelectorAll('a')].filter(a => "
        "a.href.endsWith('/report.html')).length"
    )
    assert visitor.browser.driver.execute_script(reports) == 1  # one click from the page of the run
    visitor.click("Artifacts")
    visitor.sees("judgements-trial", "summary-trial", "report-trial", "busbw-trial")
    open_artifact(served, visitor, "summary-trial")
    visitor.sees("connectivity", "collectives", "pass")
    open_artifact(served, visitor, "judgements-trial")
    visitor.sees("busbw")
    open_artifact(served, visitor, "busbw-trial")
    picture = (
        "return [...document.images].some(i => i.src.endsWith('busbw.png') && i.complete && "
        "i.naturalWidth > 0)"
    )
    visitor.until(lambda: visitor.browser.driver.execute_script(picture))
    open_artifact(served, visitor, "report-trial")
    visitor.click("report")
    visitor.until(
        lambda: (
            len(visitor.browser.driver.window_handles) > 1 or "/seatrial/runs/" in visitor.address
        )
    )
    visitor.browser.driver.switch_to.window(visitor.browser.driver.window_handles[-1])
    visitor.sees("trial", "brief")
    assert visitor.address.endswith("/report.html")


def open_artifact(served: Site, visitor: Visitor, key: str) -> None:
    """From the artifact's history to its newest version."""
    filters = {"key": {"any_": [key]}}
    (newest_one,) = served.api(
        "POST", "/artifacts/filter", artifacts=filters, sort="CREATED_DESC", limit=1
    )
    visitor.open(f"/artifacts/key/{key}")
    visitor.click(newest_one["id"][:8])
    visitor.until(lambda: "/artifacts/artifact/" in visitor.address)


def test_a_check_is_cancelled_from_the_ui(served: Site, visitor: Visitor) -> None:
    out = served.folder / "runs" / "cancelled"
    flow_run = served.run("ad-hoc", suite=str(served.folder / "long.yaml"), out=str(out))
    served.until_sweeping(out)
    visitor.open(f"/runs/flow-run/{flow_run}")
    visitor.sees("Running", "cluster:trial")
    visitor.click("Cancel")
    visitor.sees("Cancel Flow Run")
    visitor.click("Confirm")
    assert served.ended(flow_run)["type"] == "CANCELLED"
    visitor.sees("Cancelled")
    served.until(lambda: not served.left())
