"""The report page in a real browser, opened from a disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loopwright.inspection.report import TunedKernels, model_page, page_of, report_html
from loopwright.inspection.report.page_data import Roofline
from loopwright.records import load
from tests.browser.conftest import Browser, until
from tests.unit.inspection.report_logs import SCRIPT, made_up, trial, write

pytestmark = pytest.mark.browser


def report(*logs: Path) -> Path:
    """The page of some logs, beside the first."""
    path = logs[0].with_suffix(".html")
    path.write_text(report_html(page_of([load(log) for log in logs])), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one task."""
    return report(made_up(tmp_path_factory.mktemp("one") / "log.jsonl"))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of three tasks, one of which has markup for a name."""
    folder = tmp_path_factory.mktemp("three")
    return report(made_up(folder / "log.jsonl", 40, ("matmul", SCRIPT, "conv2d")))


def test_the_curve_of_a_model_falls(browser: Browser, tmp_path: Path) -> None:
    log = load(made_up(tmp_path / "log.jsonl", 40, ("matmul", "conv2d")))
    ways = [{trial(0, op).task: "definition"} for op in ("matmul", "conv2d")]
    kernels = [TunedKernels(f"kernel {n}", n, 0, way) for n, way in enumerate(ways, 1)]
    page = replace(page_of([log]), model=model_page("m.onnx", kernels, log))
    path = tmp_path / "model.html"
    path.write_text(report_html(page), encoding="utf-8")
    browser.open(path)
    data = browser.run("return JSON.parse(document.getElementById('data').textContent)")
    figure = "#model figure"
    steps = data["model"]["steps"]["seconds"]
    assert browser.count(f"{figure} circle.step") == len(steps) > 3
    heights = browser.run(
        f"return [...document.querySelectorAll('{figure} circle.step')].map((c) =>"
        " +c.getAttribute('cy'))"
    )
    assert heights == sorted(heights)  # downwards: a run takes less and less
    assert browser.count("#model-table tbody tr") == 2


def test_the_curve_has_the_points_of_the_data(browser: Browser, one: Path) -> None:
    browser.open(one)
    data = browser.run("return JSON.parse(document.getElementById('data').textContent)")
    (series,) = data["tasks"][0]["series"]
    seconds = series["points"]["seconds"]
    assert len(seconds) == 80
    assert browser.count("circle.trial") == sum(value is not None for value in seconds) == 69
    assert browser.count("line.failure") == 11
    assert browser.count("circle.step") == len(series["steps"]["seconds"]) > 3
    places = browser.run(
        "return [...document.querySelectorAll('circle.trial')].map((c) => [+c.getAttribute('cx'),"
        " +c.getAttribute('cy')])"
    )
    # To the right with the number of the trial; up with time, which has equal ratios here.
    across = [x for x, _ in places]
    assert across == sorted(across)
    times = [value for value in series["points"]["seconds"] if value is not None]
    order = sorted(range(len(times)), key=lambda n: times[n])
    heights = [places[n][1] for n in order]
    assert heights == sorted(heights, reverse=True)


def test_every_chart_is_drawn(browser: Browser, one: Path) -> None:
    browser.open(one)
    empty = browser.run(
        "return [...document.querySelectorAll('figure[data-chart]')].filter((f) => f.offsetParent"
        " && !f.querySelector('svg *')).map((f) => f.dataset.chart)"
    )
    assert empty == []
    drawn = browser.run(
        "return [...document.querySelectorAll('figure svg')]"
        ".map((s) => s.getAttribute('aria-label'))"
    )
    assert len(drawn) == len(set(drawn)) >= 7
    assert all(len(label) > 20 for label in drawn)


@pytest.mark.parametrize(
    ("flops", "bandwidth", "roofs"),
    [(8e9, 4e9, 2), (8e9, None, 1), (None, 4e9, 1), (None, 4e11, 1), (None, None, 0)],
)
def test_the_roofline_has_the_limits_that_are_known(
    browser: Browser, tmp_path: Path, flops: float | None, bandwidth: float | None, roofs: int
) -> None:
    page = page_of([load(made_up(tmp_path / "log.jsonl", 20))])
    (task,) = page.tasks
    roofline = Roofline(1.5, 2e9, 1e9, flops, bandwidth, "Made up.")
    series = replace(task.series[0], roofline=roofline)
    path = tmp_path / "page.html"
    changed = replace(page, tasks=(replace(task, series=(series,)),))
    path.write_text(report_html(changed), encoding="utf-8")
    browser.open(path)
    assert browser.count("line.roof") == roofs
    assert browser.count("circle.kernel") == 2
    inside = browser.run(
        "const f = document.querySelector('figure[data-chart=roofline]').getBoundingClientRect();"
        "return [...document.querySelectorAll('.roof, .kernel')].every((e) => {"
        " const b = e.getBoundingClientRect();"
        " return b.left >= f.left && b.right <= f.right + 1"
        " && b.top >= f.top && b.bottom <= f.bottom"
        "})"
    )
    assert inside


#: Pairs of labels of one chart that lie on each other, and labels that stick out of the page.
LABELS = """
const found = [];
for (const svg of document.querySelectorAll(arguments[0])) {
  const boxes = [...svg.querySelectorAll(arguments[1])].map((e) => [e.textContent, e.getBoundingClientRect()]);
  boxes.forEach(([text, a], n) => {
    if (a.left < 0 || a.right > innerWidth) found.push(text);
    for (const [other, b] of boxes.slice(n + 1)) {
      if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) found.push([text, other]);
    }
  });
}
return found;
"""  # noqa: E501


@pytest.mark.parametrize("width", [360, 700, 1280])
@pytest.mark.parametrize(("best", "default"), [(7.9e9, 7.6e9), (2e9, 1.9e9), (1e9, 4e9)])
def test_labels_do_not_lie_on_each_other(
    browser: Browser, tmp_path: Path, width: int, best: float, default: float
) -> None:
    page = page_of([load(made_up(tmp_path / "log.jsonl", 60))])
    (task,) = page.tasks
    roofline = Roofline(1.5, best, default, 8e9, None, "Made up.")
    series = replace(task.series[0], roofline=roofline)
    path = tmp_path / "page.html"
    changed = replace(page, tasks=(replace(task, series=(series,)),))
    path.write_text(report_html(changed), encoding="utf-8")
    browser.device(width)
    browser.open(path)
    assert browser.run(LABELS, "figure[data-chart] svg", "text.tick") == []
    assert browser.run(LABELS, "figure[data-chart=roofline] svg", "text.strong") == []


def test_few_trials_have_no_parts(browser: Browser, tmp_path: Path) -> None:
    browser.open(report(write(tmp_path / "log.jsonl", [trial(1)])))
    ticks = "return [...document.querySelectorAll('figure[data-chart=curve] text.tick')]"
    assert browser.run(f"{ticks}.map((e) => e.textContent)") == ["0", "1"]


def test_a_printed_page_has_its_charts(browser: Browser, one: Path) -> None:
    browser.open(one)
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = "return document.querySelector('figure[data-chart=curve] svg').getBoundingClientRect()"
    assert browser.run(shown)["height"] > 100
    assert browser.texts(".tools") == []
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_the_axes_of_the_curve_are_chosen(browser: Browser, one: Path) -> None:
    browser.open(one)
    before = browser.run("return document.querySelector('polyline.best').getAttribute('points')")
    pressed = "figure[data-chart=curve] button[aria-pressed=true]"
    assert browser.texts(pressed) == ["by trial"]
    browser.run(
        "[...document.querySelectorAll('button')].find((b) => b.textContent === 'by time').click()"
    )
    assert browser.texts(pressed) == ["by time"]
    after = browser.run("return document.querySelector('polyline.best').getAttribute('points')")
    assert after != before


def test_a_table_is_sorted_and_filtered_from_the_keyboard(browser: Browser, one: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(one)
    trials = "#top-0-0 tbody tr td:nth-child(3)"
    first = [int(text) for text in browser.texts(trials)]
    button = browser.driver.find_element("css selector", "#top-0-0 th:nth-child(3) button")
    button.send_keys(Keys.ENTER)
    assert [int(text) for text in browser.texts(trials)] == sorted(first) != first
    sort = "return document.querySelector('#top-0-0 th:nth-child(3)').getAttribute('aria-sort')"
    assert browser.run(sort) == "ascending"
    button.send_keys(Keys.ENTER)
    assert [int(text) for text in browser.texts(trials)] == sorted(first, reverse=True)
    assert browser.run(sort) == "descending"
    box = browser.driver.find_element("css selector", "#top-0-0-filter")
    box.send_keys("unroll=true")
    rows = browser.texts("#top-0-0 tbody tr")
    assert 0 < len(rows) < len(first)
    assert all("unroll=true" in row for row in rows)
    assert (
        browser.texts("#top-0-0-filter ~ [role=status]")[0] == f"{len(rows)} of {len(first)} rows"
    )


def test_numbers_are_sorted_by_their_size(browser: Browser, one: Path) -> None:
    browser.open(one)
    browser.run("document.querySelector('#top-0-0 th:nth-child(4) button').click()")
    values = browser.run(
        "return [...document.querySelectorAll('#top-0-0 tbody td:nth-child(4)')]"
        ".map((c) => +c.dataset.value)"
    )
    assert len(values) == 20
    assert values == sorted(values)


def test_one_task_of_several_is_shown(browser: Browser, three: Path) -> None:
    browser.open(three)
    assert len(browser.texts("#overview-table tbody tr")) == 3
    assert browser.texts("article h2") == []
    browser.run(
        "const s = document.getElementById('task'); s.value = '2';"
        "s.dispatchEvent(new Event('change'))"
    )
    assert until(lambda: browser.texts("article h2")) == ["conv2d(256, 256)"]
    assert browser.run("return location.hash") == "#task-2"
    browser.open(three, "#task-0")
    assert browser.texts("article h2") == ["matmul(256, 256)"]
    assert browser.count("#task-0 circle.trial") > 0
    assert browser.count("#task-2 circle.trial") == 0


def test_markup_in_a_name_is_text(browser: Browser, three: Path) -> None:
    browser.open(three, "#task-1")
    assert browser.texts("article h2") == [f"{SCRIPT}(256, 256)"]
    assert browser.run("return window.broken") is None
    assert browser.count("img") == 0
    assert SCRIPT in browser.run("return document.title + document.body.textContent")


def test_two_logs_stand_beside_each_other(browser: Browser, tmp_path: Path) -> None:
    made_up(tmp_path / "a.jsonl")
    faster = [record for record in load(tmp_path / "a.jsonl").records if record.trial < 30]
    write(tmp_path / "b.jsonl", faster)
    browser.open(report(tmp_path / "a.jsonl", tmp_path / "b.jsonl"))
    assert browser.count("polyline.best") == 2
    assert browser.texts("figure[data-chart=curve] .legend li")[:2] == ["a.jsonl", "b.jsonl"]
    assert len(browser.texts("#compare-0 tbody tr")) == 1


def test_numbers_at_the_ends_of_what_a_record_may_hold(browser: Browser, tmp_path: Path) -> None:
    odd = [
        trial(n, times=times, error=None, dropped=False, ts=ts, trial=number)
        for n, (times, ts, number) in enumerate(
            [((5e-324,), 0.0, 0), ((1e29, 1e30), 2.5e11, 2**63 - 1), ((1e-3,), 1.0, 1)] * 9
        )
    ]
    browser.open(report(write(tmp_path / "log.jsonl", odd)))
    assert browser.count("circle.trial") == 27


@pytest.mark.parametrize("part", ["", "#task-1"])
def test_a_phone_needs_no_scrolling_to_the_side(browser: Browser, three: Path, part: str) -> None:
    browser.device(360, 740)
    browser.open(three, part)
    width = browser.run("return document.documentElement.scrollWidth")
    assert width <= browser.run("return window.innerWidth") == 360


def test_no_table_is_cut_off_on_a_desk(browser: Browser, tmp_path: Path) -> None:
    """Tables of many tasks with long names, of one log and of two, every part of the page."""
    names = [f"a_convolution_with_a_long_name_{n}" for n in range(6)]
    structure = "xn: rows in cache; Y: t x h, W packed at panel, vectors outside, one thread"

    def log(name: str, ops: list[str]) -> Path:
        trials = [
            trial(n, op, config={**trial(n).config, "structure": f"{structure}, {n % 3}"})
            for op in ops
            for n in range(12)
        ]
        return write(tmp_path / name, trials, options={"plan_size": 16}, limits={"n_trial": 64})

    first, second, other = log("a", names), log("b", names[:2]), log("c", ["matmul"])
    for logs in ([first], [first, second], [first, other], [other]):
        browser.open(report(*logs))
        cut = browser.run(
            "document.querySelectorAll('details, [data-part]').forEach((e) => {"
            " e.open = true; e.hidden = false; });"
            "return [...document.querySelectorAll('.scroll')].filter((e) => e.offsetParent &&"
            " e.scrollWidth > e.clientWidth).map((e) => e.firstChild.id)"
        )
        assert cut == []
        beside = [text for text in browser.texts("#overview-table th") if "beside each" in text]
        assert len(beside) == (second in logs)


def test_dark_and_light(browser: Browser, one: Path) -> None:
    def paper() -> int:
        colour = browser.run("return getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour[4:-1].split(","))

    browser.open(one)
    light = paper()
    browser.device(1280, dark=True)
    assert paper() < 150 < 600 < light


def test_without_scripts_the_figures_and_the_best_are_there(three: Path) -> None:
    browser = Browser("--blink-settings=scriptEnabled=false")
    try:
        browser.driver.get(three.resolve().as_uri())
        shown = browser.driver.find_element("tag name", "body").text
    finally:
        browser.driver.quit()
    for text in ("matmul(256, 256)", "conv2d(256, 256)", "of the default", "RUN_TIMEOUT", "2.50x"):
        assert text in shown


def test_nothing_is_asked_of_a_network(one: Path) -> None:
    text = one.read_text(encoding="utf-8")
    assert "connect-src" not in text
    assert "default-src 'none'" in text
    for part in (' src="', "url(", "@import", 'href="http'):
        assert part not in text
