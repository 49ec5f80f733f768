"""What a report page holds: the data, and what stands in the page itself."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from loopwright.errors import RecordError
from loopwright.inspection.report import PAGE, Page, page_of, report_html
from loopwright.inspection.report.elements import element, markup, raw
from loopwright.inspection.speed import Work
from loopwright.presenting import harmless_lines
from loopwright.records import Log, load, ranked
from tests.unit.inspection.report_logs import SCRIPT, made_up, playoff, trial, write


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return load(made_up(tmp_path_factory.mktemp("report") / "log.jsonl", 80, ("matmul", SCRIPT)))


@pytest.fixture(scope="module")
def page(log: Log) -> Page:
    return page_of([log])


def data_in(text: str) -> dict:
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert len(found) == 1
    return json.loads(found[0])


def test_the_best_and_the_default(log: Log, page: Page) -> None:
    series = page.tasks[0].series[0]
    own = [record for record in log.records if record.op == "matmul"]
    assert series.best is not None
    assert series.default is not None
    assert series.best.id == ranked(own)[0].id
    defaults = [one for one in own if one.candidate == own[0].candidate and one.usable]
    assert series.default.id == defaults[-1].id  # the latest measurement counts
    assert series.best.of_default == pytest.approx(series.default.seconds / series.best.seconds)
    assert [one.id for one in series.top] == [record.id for record in ranked(own, 20)]
    assert series.default.changes == ()
    assert series.best.changes is not None
    assert "tile=[-1,16]" in series.best.changes
    assert (series.outcome, series.gain) == ("faster", 1.5)
    assert series.verdict == "the best beats the default by a factor of 2.50 +- 0.10"


def test_records_of_a_device_name_it_and_no_threads_of_their_host(tmp_path: Path) -> None:
    device = {"kind": "opencl", "name": "a GPU", "driver": "3.1", "processors": 4}
    target = {"kind": "opencl"}
    own = load(made_up(tmp_path / "cpu.jsonl", 20, (SCRIPT,))).records
    made = [replace(r, target=target, env={**r.env, "device": device}) for r in own]
    page = page_of([load(write(tmp_path / "gpu.jsonl", made))])
    assert page.logs[0].facts["device"] == ("a GPU (processors 4, driver 3.1)",)
    assert "threads" not in page.logs[0].facts


def test_counts(page: Page) -> None:
    for task in page.tasks:
        (series,) = task.series
        assert (series.trials, series.failed) == (69, 11)
        (failure,) = series.errors
        assert (failure.kind, failure.count, failure.text) == ("RUN_TIMEOUT", 11, "longer than 1 s")
        assert failure.trial == 6
    assert page.logs[0].records == 2 * 81
    assert page.logs[0].facts["CPU"] == ("Made-up CPU",)
    assert page.logs[0].runs[0]["seed"] == "3"


def test_points_are_the_trials(log: Log, page: Page) -> None:
    points = page.tasks[0].series[0].points
    own = [record for record in log.records if record.op == "matmul" and not record.phase]
    assert points.trial == tuple(range(1, 81))
    assert points.seconds == tuple(record.median for record in own)
    assert points.kind == tuple(
        2 if record.median is None else 1 if record.dropped else 0 for record in own
    )


def test_many_trials_are_thinned_out_and_no_step_is_lost(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    seconds = (1e-3 * (1 + rng.random(6000))).tolist()
    trials = [trial(n, times=(seconds[n],), error=None, dropped=False) for n in range(len(seconds))]
    series = page_of([load(write(tmp_path / "log.jsonl", trials))]).tasks[0].series[0]
    assert len(series.points.trial) <= 2000
    assert series.points.total == 6000
    assert series.points.trial[-1] == 6000
    assert set(series.steps.trial) <= set(series.points.trial)
    best = np.minimum.accumulate(seconds)
    steps = [n + 1 for n in range(6000) if n == 0 or best[n] < best[n - 1]]
    assert list(series.steps.trial) == steps


def test_the_knob_that_decides_comes_first(page: Page) -> None:
    series = page.tasks[0].series[0]
    assert series.knobs[0].name == "tile"
    assert series.knobs[0].share is not None
    assert series.knobs[0].share > 0.5
    values = {value.text: value for value in series.knobs[0].values}
    assert list(values) == ["[-1,16]", "[-1,8]", "[-1,4]", "[-1,2]", "[-1,1]"]
    assert all(v.best <= v.low <= v.middle <= v.high for v in values.values())
    assert series.parallel is not None
    for axis in series.parallel.axes:
        assert len(axis.at) == len(series.parallel.seconds)
        assert max(axis.at) < len(axis.values)
    tile = next(axis for axis in series.parallel.axes if axis.name == "tile[1]")
    assert tile.values == ("1", "2", "4", "8", "16")


def test_what_cannot_be_said_has_its_reason(tmp_path: Path) -> None:
    few = load(write(tmp_path / "few.jsonl", [trial(n) for n in range(5)]))
    series = page_of([few]).tasks[0].series[0]
    assert series.roofline is None
    assert "holds no tensor expression" in series.roofline_note
    assert series.accuracy is None
    assert "36 are needed" in series.accuracy_note
    assert all(knob.share is None for knob in series.knobs)
    text = report_html(page_of([few]))
    assert "Not drawn: there are" in text


def test_times_at_the_ends_of_what_a_record_may_hold(tmp_path: Path) -> None:
    ends = [((5e-324,), 0.0, 0), ((1e29, 1e30), 2.5e11, 2**63 - 1), ((1e-3,), 1.0, 1)]
    odd = [
        trial(n, times=times, error=None, dropped=False, ts=ts, trial=number)
        for n, (times, ts, number) in enumerate(ends * 9)
    ]
    page = page_of([load(write(tmp_path / "log.jsonl", odd))])
    assert page.tasks[0].series[0].trials == 27
    json.loads(page.to_json(), parse_constant=pytest.fail)
    assert "9223372036854775807" in report_html(page)


def test_a_log_of_failures_alone(tmp_path: Path) -> None:
    failed = [trial(6 + 7 * n) for n in range(4)]
    page = page_of([load(write(tmp_path / "log.jsonl", failed))])
    (series,) = page.tasks[0].series
    assert (series.best, series.top, series.trials, series.failed) == (None, (), 0, 4)
    assert "No trial may be best." in report_html(page)


def test_old_and_foreign_records(tmp_path: Path) -> None:
    foreign = {
        "input": ["llvm", "conv", [["TENSOR", [8, 8], "float32"]], {}],
        "config": {"index": 1, "code_hash": None, "entity": [["tile", "sp", [-1, 4]]]},
        "result": [[0.001], 0, 1.0, 1700000000.0], "version": 0.2, "tvm_version": "0.8",
    }  # fmt: skip
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(foreign) + "\n")
    page = page_of([load(path)])
    (series,) = page.tasks[0].series
    assert series.best is not None
    assert series.hardware == ""
    assert "hardware not known" in report_html(page)


def test_no_record_of_autotvm_is_the_default(tmp_path: Path) -> None:
    """It numbers no trials, so that each would be trial 0, which is the default here."""
    foreign = [replace(trial(1), run="", trial=0, ts=0.0), replace(trial(1), run="", trial=0)]
    (series,) = page_of([load(write(tmp_path / "log.jsonl", foreign))]).tasks[0].series
    assert series.best is not None
    assert (series.default, series.best.changes, series.best.of_default) == (None, None, None)


def test_what_shares_the_samples_of_another_is_no_trial(tmp_path: Path) -> None:
    own = [trial(n) for n in range(20)]
    shared = [trial(n + 20, same_as=own[5].id, dropped=True, error=None, times=own[5].times)
              for n in range(4)]  # fmt: skip
    (series,) = page_of([load(write(tmp_path / "log.jsonl", [*own, *shared]))]).tasks[0].series
    assert (series.trials, series.failed, series.dropped, series.duplicates) == (18, 2, 2, 4)
    assert series.points.total == 20


def test_tasks_that_take_turns_have_their_own_time_alone(tmp_path: Path) -> None:
    ops = ("matmul", "conv2d")
    trials = [trial(n, ops[n % 2], ts=1e9 + n, build_s=0.4, run_s=0.2) for n in range(60)]
    again = [playoff(trials[at], trials[at], ts=1e9 + 65 + 6 * at) for at in (0, 1)]
    log = load(write(tmp_path / "log.jsonl", [*trials, *again]))
    page = page_of([log])
    # 30 trials of 0.2 s, as many builds of 0.4 s by two builders, a playoff of 6 s.
    assert [task.series[0].spent for task in page.tasks] == pytest.approx([18, 18])
    (one,) = page_of([log], "conv2d").tasks
    assert one.series[0].spent == pytest.approx(18)
    assert page_of([log], "conv2d").logs[0].time == page.logs[0].time


def test_a_task_alone_has_the_limits_that_another_one_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(flop=2_000_000, bytes=500_000)
    for module in ("speed", "report.series"):
        monkeypatch.setattr(f"loopwright.inspection.{module}.work_of", lambda log, record: work)
    trials = [trial(n, op) for op in ("matmul", "conv2d") for n in range(6)]
    log = load(write(tmp_path / "log.jsonl", [*trials, playoff(trials[0], trials[0])]))
    (task,) = page_of([log], "conv2d").tasks
    line = task.series[0].roofline
    assert line is not None
    seconds = log.records[-1].median
    assert line.flops == pytest.approx(2_000_000 / (seconds or 0) / 0.5)
    assert "FMA peak (AVX2) of float32 beside the playoff" in line.source


def test_a_knob_on_which_the_best_agree_has_an_axis(tmp_path: Path) -> None:
    """The best 50 of 80 all have one value of a knob; 30 slower ones have another."""
    trials = [
        trial(n, error=None, dropped=False, times=(1e-3 + n * 1e-6 + (n >= 50),),
              config={"tile": [-1, n], "agree": "yes" if n < 50 else "no", "fixed": 1})
        for n in range(80)
    ]  # fmt: skip
    (series,) = page_of([load(write(tmp_path / "log.jsonl", trials))]).tasks[0].series
    assert series.parallel is not None
    axes = {axis.name: axis for axis in series.parallel.axes}
    assert list(axes) == ["agree", "tile[1]"]
    assert axes["agree"].values == ("yes",)
    assert set(axes["agree"].at) == {0}
    assert axes["tile[1]"].at == tuple(range(50))


def test_what_of_many_knobs_is_left_out_is_said(tmp_path: Path) -> None:
    def config(n: int) -> dict[str, int]:
        return {f"k{knob}": n // 2 ** (knob % 5) % 2 for knob in range(30)}

    trials = [trial(n, error=None, dropped=False, config=config(n)) for n in range(32)]
    text = report_html(page_of([load(write(tmp_path / "log.jsonl", trials))]))
    assert "24 of 30 knobs are shown." in text
    assert "12 of 30 knobs are drawn, those on which they agree most." in text


def test_long_text_is_cut_with_a_mark(tmp_path: Path) -> None:
    said = {"kind": "RUN_CRASH", "text": "x" * 2000}
    isa = [f"feature{n}" for n in range(90)]
    log = load(write(tmp_path / "log.jsonl", [trial(6, error=said, env={"isa": isa})]))
    page = page_of([log])
    (failure,) = page.tasks[0].series[0].errors
    assert failure.text == "x" * 599 + "\u2026"
    assert page.logs[0].facts["instruction sets"][0].endswith("\u2026")


def test_one_template_for_two_targets_is_two_names(tmp_path: Path) -> None:
    here = trial(0)
    other = trial(1, task='["matmul",[256,256],"c"]', target={"kind": "c"})
    page = page_of([load(write(tmp_path / "log.jsonl", [here, other]))])
    assert [task.name for task in page.tasks] == [
        "matmul(256, 256) on llvm znver4", "matmul(256, 256) on c",
    ]  # fmt: skip


def test_the_overview_sorts_speeds_by_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = {"small": Work(1_000, 100), "large": Work(9_000_000, 100), "none": None}
    monkeypatch.setattr(
        "loopwright.inspection.report.series.work_of", lambda log, record: works[record.op]
    )
    trials = [trial(n, op) for op in works for n in range(3)]
    text = report_html(page_of([load(write(tmp_path / "log.jsonl", trials))]))
    overview = text[text.index('id="overview-table"') : text.index("</table>")]
    cells = re.findall(r'<td class="n" data-value="([^"]*)">([^<]*)</td>', overview)
    speeds = [(value, shown) for value, shown in cells if "GFLOP/s" in shown]
    assert len(speeds) == 4  # the best and the default of two tasks
    assert all(f"{float(value) / 1e9:.4g} GFLOP/s" == shown for value, shown in speeds)
    assert [value for value, shown in cells if shown.endswith(" ms")] == ["", ""]


def test_two_logs_of_which_one_has_failures_alone(tmp_path: Path) -> None:
    good = load(write(tmp_path / "a.jsonl", [trial(n, op) for op in "ab" for n in range(5)]))
    bad = load(write(tmp_path / "b.jsonl", [trial(6, op) for op in "a"]))
    text = report_html(page_of([good, bad]))
    assert "not compared: only one of them has a best, or none" in text
    assert "in one of them only" in text
    assert "best, default and verdict are those of the first" in text


def test_a_page_is_known_again(page: Page) -> None:
    assert PAGE.is_one(report_html(page).encode())
    assert not PAGE.is_one(b"<!doctype html><title>mine</title>")


def test_machines_and_logs_are_told_apart(tmp_path: Path) -> None:
    here = [trial(n) for n in range(40)]
    there = [replace(one, env={**one.env, "cpu": "Other CPU"}) for one in here]
    log = load(write(tmp_path / "a.jsonl", [*here, *there]))
    (task,) = page_of([log]).tasks
    assert [one.label for one in task.series] == ["Made-up CPU", "Other CPU"]
    second = load(write(tmp_path / "b.jsonl", here))
    (task,) = page_of([log, second]).tasks
    assert [one.label for one in task.series] == [
        "a.jsonl, Made-up CPU", "a.jsonl, Other CPU", "b.jsonl, Made-up CPU",
    ]  # fmt: skip
    assert len(task.comparisons) == 2
    assert task.comparisons[1].text.startswith("no measurable difference (95 % interval")


def test_threads_are_told_apart(tmp_path: Path) -> None:
    threads = [{"kind": "llvm", "num_threads": count} for count in (1, 8)]
    records = [trial(n, target=threads[n % 2]) for n in range(8)]
    (task,) = page_of([load(write(tmp_path / "log.jsonl", records))]).tasks
    assert [one.label for one in task.series] == ["1 thread", "8 threads"]


def test_one_cpu_with_code_for_two_is_told_apart(tmp_path: Path) -> None:
    own = [trial(n) for n in range(4)]
    other = [replace(one, target={**one.target, "mcpu": "core-avx2"}) for one in own]
    page = page_of([load(write(tmp_path / "log.jsonl", [*own, *other]))])
    labels = [one.label for one in page.tasks[0].series]
    assert labels == ["llvm znver4", "llvm core-avx2"]
    assert '<p class="soft">llvm znver4 and llvm core-avx2</p>' in report_html(page)


def test_hardware_that_is_no_cpu(tmp_path: Path) -> None:
    target = {"kind": "cuda", "mcpu": "sm_90", "model": "Made-up <GPU>"}
    records = [trial(n, env={}, target=target) for n in range(4)]
    page = page_of([load(write(tmp_path / "log.jsonl", records))])
    assert page.tasks[0].series[0].hardware == "Made-up <GPU>"
    assert '<p class="soft">Made-up &lt;GPU&gt;, cuda sm_90</p>' in report_html(page)


def test_the_same_name_twice(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    logs = [load(write(tmp_path / name, [trial(1)])) for name in ("log.jsonl", "x/log.jsonl")]
    names = [one.name for one in page_of(logs).logs]
    assert names == [str(tmp_path / "log.jsonl"), str(tmp_path / "x/log.jsonl")]
    twice = page_of([logs[0], logs[0]])
    assert len({one.name for one in twice.logs}) == 2


def test_very_many_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopwright.inspection.report.collect.MOST_TASKS", 6)
    monkeypatch.setattr("loopwright.inspection.report.collect._EXPLAINED", 2)
    trials = [
        trial(n, op=f"op{task}", ts=1e9 + task)
        for task in range(9)
        for n in range(25 if task < 2 else 4)
    ]
    page = page_of([load(write(tmp_path / "log.jsonl", trials))])
    assert (len(page.tasks), page.tasks_total) == (6, 9)
    explained = [any(k.share is not None for k in task.series[0].knobs) for task in page.tasks]
    assert explained == [True] * 2 + [False] * 4
    text = report_html(page)
    assert "3 more tasks are left out" in text
    assert "a page of this task alone (--task) has them" in text


def test_only_some_tasks(log: Log) -> None:
    assert [task.name for task in page_of([log], "matmul").tasks] == ["matmul(256, 256)"]
    with pytest.raises(RecordError, match=r"none of the 162 records is of a task that contains 'x"):
        page_of([log], "xyz")


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no record to report; tune first, or name a log"):
        page_of([load(write(tmp_path / "log.jsonl", []))])
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\xff")
    with pytest.raises(RecordError, match=r"no record to report \(.*lines skipped.*not JSON"):
        page_of([load(tmp_path / "picture.png")])


def test_names_and_errors_are_text(page: Page) -> None:
    text = report_html(page)
    assert text.count("<script") == text.count("</script>") == 2
    assert "<img" not in text
    assert data_in(text)["tasks"][1]["name"] == f"{SCRIPT}(256, 256)"


def test_text_that_a_page_cannot_hold(tmp_path: Path) -> None:
    odd = "bell \x07, null \x00, escape \x1b[31m, left \u202e, half \ud83d, ]]> -->"
    records = [trial(6, error={"kind": odd, "text": odd}), trial(1, config={odd: odd})]
    text = report_html(page_of([load(write(tmp_path / "log.jsonl", records))]))
    text.encode("utf-8")
    assert r"bell \x07, null \x00, escape \x1b[31m, left \u202e, half \ud83d, ]]&gt; --&gt;" in text
    shown = text.partition('<script type="application/json"')[0]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff]", shown)


def test_the_page_is_well_formed_and_names_are_unique(page: Page) -> None:
    text = report_html(page)
    ids = re.findall(r'\sid="([^"]*)"', text)
    assert len(ids) == len(set(ids)) > 20
    body = text[text.index("<main") : text.index("</main>") + len("</main>")]
    ElementTree.fromstring(body)
    for tag in ("html", "head", "body", "header", "nav"):
        assert len(re.findall(rf"<{tag}[ >]", text)) == text.count(f"</{tag}>") > 0
    assert "width=device-width" in text


def test_the_script_may_run_and_no_other(page: Page) -> None:
    import base64
    import hashlib

    text = report_html(page)
    program = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(program[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert not re.search(r"<[a-z][^<>]* on[a-z]+=", text.partition("<script")[0])


def test_json_has_finite_numbers_only(page: Page) -> None:
    data = json.loads(page.to_json(), parse_constant=pytest.fail)
    assert data["version"] == 1
    assert len(page.to_json()) < 60_000


def test_elements_escape_what_they_hold() -> None:
    made = element("p", "a < b & c", ["d", None, element("b", "<i>")], "e", class_="x", data_n=1)
    assert markup([made]) == '<p class="x" data-n="1">a &lt; b &amp; cd<b>&lt;i&gt;</b>e</p>'
    assert harmless_lines("a\nb\tc") == r"a" + "\n" + r"b\tc"
    with pytest.raises(AssertionError, match="would end its script"):
        raw("script", "x = '</SCRIPT>'")
