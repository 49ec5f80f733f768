"""A real browser for the tests of report pages: Chromium without a window, driven by Selenium."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


class Browser:
    """One browser, and what the tests ask of it.

    Args:
        options: more options of Chromium.
    """

    def __init__(self, *options: str) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        driver, program = shutil.which("chromedriver"), shutil.which("chromium")
        if driver is None or program is None:
            pytest.fail("no browser: apt-get install chromium chromium-driver")
        chosen = webdriver.ChromeOptions()
        chosen.binary_location = program
        headless = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
        for option in (*headless, "--window-size=1280,900", *options):
            chosen.add_argument(option)
        chosen.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=chosen, service=Service(driver))

    def open(self, page: Path | str, part: str = "") -> Browser:
        """Open a file or an address, with nothing left of the page before."""
        self.driver.get("about:blank")
        self.said()
        address = page.resolve().as_uri() if isinstance(page, Path) else page
        self.driver.get(f"{address}{part}")
        return self

    def run(self, program: str, *arguments: object):  # type: ignore[no-untyped-def]
        """What a program gives that runs in the page."""
        return self.driver.execute_script(program, *arguments)

    def count(self, selector: str) -> int:
        """How many elements there are."""
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def texts(self, selector: str) -> list[str]:
        """The texts of the elements that can be seen."""
        return list(
            self.run(
                "return [...document.querySelectorAll(arguments[0])].filter((e) => e.offsetParent)"
                ".map((e) => e.textContent)",
                selector,
            )
        )

    def said(self) -> list[str]:
        """What the console of the browser got since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def device(self, width: int, height: int = 800, *, dark: bool = False) -> None:
        """Be a screen of this width."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})


def until(find: Callable[[], T], seconds: float = 40.0) -> T:
    """What a function finds, as soon as it finds something."""
    end = time.monotonic() + seconds
    while not (found := find()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="session")
def _browser() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.driver.quit()


@pytest.fixture
def browser(_browser: Browser) -> Iterator[Browser]:
    """A browser of a desk; a test fails where its console complains."""
    _browser.device(1280, 900)
    _browser.said()
    yield _browser
    assert _browser.said() == []
