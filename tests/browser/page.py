"""What a person does with a page, through Chromium's own driver."""

import base64
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

_COLOURS = 256  # enough for a page of text and lines, and half of the bytes


@dataclass(slots=True)
class Browser:
    """A window, and what was asked of the network and said by JavaScript in it.

    It reaches this machine alone.
    """

    driver: Chrome

    @classmethod
    @contextmanager
    def started(
        cls,
        chromium: str,
        profile: Path,
        *,
        scripts: bool = True,
        size: tuple[int, int] = (1100, 900),
    ) -> "Iterator[Browser]":
        """`size` is in pixels; without `scripts` none runs, as where a site forbids them."""
        options = ChromeOptions()
        options.binary_location = chromium
        for word in (
            "--headless=new",
            "--no-sandbox",  # it wants no root
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            f"--window-size={size[0]},{size[1]}",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={profile}",
        ):
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        if not scripts:
            never = {"profile.managed_default_content_settings.javascript": 2}
            options.add_experimental_option("prefs", never)
        driver = Chrome(options, Service(shutil.which("chromedriver")))
        browser = cls(driver)
        try:
            driver.get("about:blank")
            browser.requests()  # those of the browser's own first page
            yield browser
        finally:
            driver.quit()

    def open(self, file: Path) -> float:
        """Seconds until the page has loaded, or the time of its own that it took, whichever is
        longer.
        """
        began = time.monotonic()
        self.driver.get(file.resolve().as_uri())
        return time.monotonic() - began

    def requests(self) -> list[str]:
        """The address of everything that was asked for since the last time."""
        events = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        return [
            e["params"]["request"]["url"]
            for e in events
            if e["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self, *levels: str) -> list[str]:
        """What the browser's console says, of these levels if any are named."""
        return [
            entry["message"]
            for entry in self._log("browser")
            if not levels or entry["level"] in levels
        ]

    def _log(self, kind: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.driver.get_log(kind)  # type: ignore[no-untyped-call]
        return entries

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str = "body") -> str:
        """What can be seen of it, on one line."""
        return " ".join(self.find(selector).text.split())

    def point_at(self, element: WebElement) -> None:
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        ActionChains(self.driver).move_to_element(element).perform()

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def ask(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def prefer(self, scheme: str) -> None:
        """light or dark."""
        parameters = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", parameters)

    def print(self) -> bytes:
        """What the print dialogue would send to an A4 printer."""
        paper = {
            "paperWidth": 8.27,
            "paperHeight": 11.69,
            "printBackground": True,
            "preferCSSPageSize": True,
        }
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", paper)["data"])

    def unreadable(self) -> list[str]:
        """Texts whose contrast is below what WCAG 2 asks for (level AA)."""
        texts: list[str] = self.ask(files("tests.browser").joinpath("contrast.js").read_text())
        return texts

    def picture(self, target: Path, height: int | None = None) -> None:
        """The top of the page, or where it is scrolled to, as a PNG file; `height` in pixels is the
        window's then.
        """
        from PIL import Image

        if height:
            self.driver.set_window_size(self.driver.get_window_size()["width"], height)
        assert self.driver.save_screenshot(str(target))
        with Image.open(target) as image:
            shown = image.convert("RGB")
        assert shown.entropy() > 0, f"{target.name}: nothing to be seen"
        shown.quantize(_COLOURS).save(target, optimize=True)
