"""A person at Prefect's UI: starts a check by its form, watches it, opens what it found; and cancels another.

With `--pictures` it takes those in docs/pictures anew; with `--basetemp=/srv/seatrial` the form shows paths of a site.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from seatrial.platforms.local import PLATFORM
from tests.site import LONG, QUICK, Site, site

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
_MISSING = ("/favicon.ico", "/ico/")
_OURS = ("data:", "blob:", "chrome:", "about:")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site that offers a suite of its own in the form, one that takes a while."""
    if lacking := PLATFORM.missing():
        pytest.skip("; ".join(lacking))
    if not (CHROMIUM and DRIVER):
        pytest.skip("chromium and chromium-driver are not installed")
    with site(tmp_path_factory.mktemp("site")) as found:
        found.write("trial", nodes=2, platform={"kind": "local"})
        found.write("brief", **QUICK)
        found.write("long", **LONG)
        found.start("trial.yaml", "--suite", "brief.yaml", "--timezone", "UTC")
        yield found


class Browser:
    """A window, and what was asked of the network and said by JavaScript in it."""

    def __init__(self, driver: webdriver.Chrome, served: Site, pictures: Path) -> None:
        self.driver, self._served, self._pictures = driver, served, pictures

    @property
    def text(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "body").text

    def open(self, path: str) -> None:
        self.driver.get(path if path.startswith("http") else self._served.url + path)

    def until(self, true: Callable[[], object], timeout_s: float = 180) -> None:
        """The page changes under our hands: what is not there now may be there in a moment."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if true():
                    return
            except WebDriverException:
                pass
            assert time.monotonic() < deadline, f"it did not happen in time at {self.driver.current_url}:\n{self.text}"
            time.sleep(0.3)

    def sees(self, *words: str) -> None:
        self.until(lambda: all(word in self.text for word in words))

    def click(self, text: str) -> None:
        """The button or link of that text; else whatever else says just that, such as a tab."""

        def clicked() -> bool:
            self._shown(f"//*[self::button or self::a][normalize-space()='{text}']", f"//*[text()='{text}']").click()
            return True

        self.until(clicked)

    def _shown(self, *paths: str) -> WebElement:
        """The first element that can be seen of the first path that has one."""
        found = (element for path in paths for element in self.driver.find_elements(By.XPATH, path))
        shown = next((element for element in found if element.is_displayed()), None)
        if shown is None:
            raise NoSuchElementException(f"nothing to be seen at {paths}")
        return shown

    def picture(self, name: str) -> None:
        time.sleep(1.5)  # pages fade in
        assert self.driver.save_screenshot(str(self._pictures / f"{name}.png"))

    def strangers(self) -> list[str]:
        """Addresses outside this machine that the pages asked for."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]  # type: ignore[no-untyped-call]
        asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith((self._served.url, *_OURS))]

    def errors(self) -> list[str]:
        """JavaScript's errors, and what was not found; icons that Prefect does not ship do not count."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        severe = [entry["message"] for entry in entries if entry["level"] == "SEVERE"]
        return [message for message in severe if not any(icon in message for icon in _MISSING)]


@pytest.fixture
def browser(served: Site, tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Browser]:
    """No page asks for anything outside this machine, and none fails."""
    options = Options()
    options.binary_location = str(CHROMIUM)
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "window-size=1300,1250"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    pictures = PICTURES if pytestconfig.getoption("--pictures") else tmp_path
    try:
        found = Browser(driver, served, pictures)
        yield found
        assert found.strangers() == []
        assert found.errors() == []
    finally:
        driver.quit()


def newest(served: Site) -> str:
    """The id of the newest flow run of the check that did not come from a schedule."""
    wanted = {"flows": {"name": {"any_": ["seatrial-check"]}}, "flow_runs": {"tags": {"all_": ["ad-hoc"]}}}
    runs = served.api("POST", "/flow_runs/filter", sort="EXPECTED_START_TIME_DESC", limit=1, **wanted)
    return str(runs[0]["id"])


def fill_in_the_form(served: Site, browser: Browser, suite: str) -> None:
    """From the list of deployments to a run that is scheduled."""
    browser.open("/deployments")
    browser.click("ad-hoc")
    browser.click("Run")
    browser.click("Custom run")
    browser.sees("Path of the cluster file", "0 gives up at once and says who has it")
    lists = [Select(found) for found in browser.driver.find_elements(By.TAG_NAME, "select")]
    (suites,) = (found for found in lists if "acceptance" in [option.text for option in found.options])
    suites.select_by_visible_text(suite)
    browser.picture("prefect-form")
    browser.click("Submit")
    browser.sees("scheduled to start now")


def test_a_check_is_started_by_its_form_and_its_findings_are_opened(served: Site, browser: Browser) -> None:
    fill_in_the_form(served, browser, str(served.folder / "brief.yaml"))
    flow_run = newest(served)
    browser.open(f"/runs/flow-run/{flow_run}")
    browser.sees("trial brief", "cluster:trial", "suite:brief")
    browser.sees("Completed", "verdict:pass", "all_reduce: 2 sizes from 1M to 4M, every result right")
    assert served.ended(flow_run)["type"] == "COMPLETED"
    browser.picture("prefect-run")
    browser.click("Artifacts")
    browser.sees("judgements-trial", "summary-trial", "report-trial", "busbw-trial", "progress-trial")
    open_artifact(served, browser, "summary-trial")
    browser.sees("connectivity", "collectives", "pass")
    browser.picture("prefect-artifact")
    open_artifact(served, browser, "judgements-trial")
    browser.sees("busbw")
    open_artifact(served, browser, "busbw-trial")
    picture = "return [...document.images].some(i => i.src.endsWith('busbw.png') && i.complete && i.naturalWidth > 0)"
    browser.until(lambda: browser.driver.execute_script(picture))
    open_artifact(served, browser, "report-trial")
    browser.click("report")
    browser.until(lambda: len(browser.driver.window_handles) > 1 or "/seatrial/runs/" in browser.driver.current_url)
    browser.driver.switch_to.window(browser.driver.window_handles[-1])
    browser.sees("trial", "brief")
    assert browser.driver.current_url.endswith("/report.html")


def open_artifact(served: Site, browser: Browser, key: str) -> None:
    """From the artifact's history to its newest version."""
    wanted = {"key": {"any_": [key]}}
    (newest_one,) = served.api("POST", "/artifacts/filter", artifacts=wanted, sort="CREATED_DESC", limit=1)
    browser.open(f"/artifacts/key/{key}")
    browser.click(newest_one["id"][:8])
    browser.until(lambda: "/artifacts/artifact/" in browser.driver.current_url)


def test_a_check_is_cancelled_from_the_ui(served: Site, browser: Browser) -> None:
    out = served.folder / "cancelled"
    flow_run = served.run("ad-hoc", suite=str(served.folder / "long.yaml"), out=str(out))
    served.until_sweeping(out)
    browser.open(f"/runs/flow-run/{flow_run}")
    browser.sees("Running", "cluster:trial")
    browser.click("Cancel")
    browser.sees("Cancel Flow Run")
    browser.click("Confirm")
    assert served.ended(flow_run)["type"] == "CANCELLED"
    browser.sees("Cancelled")
    served.until(lambda: not served.left())
