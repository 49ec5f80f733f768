"""The dashboard in a real browser: what is appended to a log appears by itself."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopwright.records import Store
from tests.browser.conftest import Browser, until
from tests.unit.inspection.report_logs import made_up, trial, write

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("usual_signals")]


class Dashboard:
    """The verb in a process of its own."""

    def __init__(self, *logs: Path) -> None:
        words = [sys.executable, "-m", "loopwright", "dashboard", *map(str, logs)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert "(Ctrl-C ends it)" in line, line
        self.url = next(word for word in line.split() if word.startswith("http://"))

    def end(self) -> tuple[int, str]:
        """Press Ctrl-C; returns the exit code and what was said."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said.decode().strip()


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    # As of a search that is still running: after a playoff no single trial would be the best one.
    write(tmp_path / "log.jsonl", [trial(number) for number in range(40)])
    dashboard = Dashboard(tmp_path / "log.jsonl")
    yield dashboard
    if dashboard.process.poll() is None:
        dashboard.end()


def status(url: str, host: str) -> int:
    """What a request is answered that names another host."""
    address = url.removeprefix("http://").removesuffix("/")
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", "/live", headers={"Host": host})
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_new_record_appears(browser: Browser, dashboard: Dashboard, tmp_path: Path) -> None:
    browser.open(dashboard.url)
    assert browser.count("circle.trial") + browser.count("line.failure") == 40
    best = browser.texts("dl.figures dd")[0]
    browser.driver.find_element("css selector", "#knob-0-0-0 > summary").click()
    browser.driver.find_element("css selector", "#top-0-0-filter").send_keys("tile")
    place = browser.run("scrollTo(0, 900); return scrollY")
    with Store(tmp_path / "log.jsonl") as store:
        fast = trial(40, times=(1e-6, 1.1e-6, 1e-6), config={"tile": [-1, 64], "unroll": True})
        store.append(fast)
    until(lambda: browser.texts("dl.figures dd")[0] != best)
    assert browser.texts("dl.figures dd")[0].startswith("1 us")
    assert browser.count("circle.trial") + browser.count("line.failure") == 41
    # What the reader typed is still there, and so is the place of the cursor.
    box = "return [document.activeElement.id, document.activeElement.value]"
    assert browser.run(box) == ["top-0-0-filter", "tile"]
    # What was folded stays so, and the page stays where it is.
    folds = "return ['#knob-0-0-0', '#knob-0-0-1'].map((id) => document.querySelector(id).open)"
    assert browser.run(folds) == [False, True]
    assert browser.run("return scrollY") == place == 900
    with Store(tmp_path / "log.jsonl") as store:
        store.append(trial(0, op="dense", task='["dense",[1],"llvm"]', args=[1]))
    until(lambda: browser.count("#task option") == 3)
    code, said = dashboard.end()
    assert (code, said) == (130, "interrupted")
    until(lambda: browser.texts("#live")[0].startswith("the dashboard has ended"))
    browser.said()  # that the server does not answer any more


def test_a_log_that_does_not_exist_yet(browser: Browser, tmp_path: Path) -> None:
    dashboard = Dashboard(tmp_path / "later.jsonl")
    try:
        browser.open(dashboard.url)
        assert "no log at" in browser.texts("main")[0]
        assert browser.texts("#logs") == ["no records"]
        assert browser.run("return document.title") == "no records - tuning report"
        made_up(tmp_path / "later.jsonl", 20)
        until(lambda: browser.count("circle.trial"))
        assert browser.texts("#logs") == ["later.jsonl"]
        assert browser.run("return document.title") == "matmul(256, 256) - tuning report"
        browser.open("about:blank")  # a page whose server has gone complains
    finally:
        dashboard.end()


def test_only_this_machine_is_served(dashboard: Dashboard) -> None:
    port = dashboard.url.rpartition(":")[2].removesuffix("/")
    assert status(dashboard.url, f"127.0.0.1:{port}") == 200
    assert status(dashboard.url, f"localhost:{port}") == 200
    assert status(dashboard.url, "evil.example") == 400
    assert status(dashboard.url, f"evil.example:{port}") == 400
    if Path("/proc/net/tcp").exists():
        listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        own = [line[1] for line in listening if int(line[1][-4:], 16) == int(port)]
        assert own
        assert all(address.startswith("0100007F") for address in own)


def test_a_port_in_use_is_one_line(dashboard: Dashboard, tmp_path: Path) -> None:
    port = dashboard.url.rpartition(":")[2].removesuffix("/")
    words = [sys.executable, "-m", "loopwright", "dashboard", "x.jsonl", "--port", port]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, env={**os.environ})
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.endswith("it is in use; choose another one, or --port 0 for a free one")
