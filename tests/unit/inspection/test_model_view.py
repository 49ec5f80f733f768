"""A model as the report page shows it: the expected time of a run, and its kernels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from loopwright.errors import RecordError
from loopwright.inspection.report import TunedKernels, model_page, page_of, report_html
from loopwright.inspection.report.html import parts_of
from loopwright.records import Log, load, ranked
from tests.unit.inspection.report_logs import SCRIPT, made_up, trial, write

OPS = ("matmul", SCRIPT, "conv2d")


def key(op: str) -> str:
    """What the records of an operator call their task."""
    return trial(0, op).task


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return load(made_up(tmp_path_factory.mktemp("models") / "log.jsonl", 40, OPS))


#: A product that is called three times, and one kernel that is computed in two ways.
KERNELS = (
    TunedKernels("product", 3, 10**9, {key("matmul"): "definition"}),
    TunedKernels(SCRIPT, 1, 0, {key(SCRIPT): "definition", key("conv2d"): "winograd"}),
)


def test_rows_have_the_best_and_the_default_of_each_task(log: Log) -> None:
    page = model_page("m.onnx", KERNELS, log)
    first, second = page.kernels
    assert first.calls * (first.seconds or 0) > second.calls * (second.seconds or 0)
    own = [r for r in log.records if r.op == "matmul"]
    (best,) = ranked(own, 1)
    assert (first.name, first.id, first.seconds) == ("product", best.id, best.median)
    default = [r for r in own if r.candidate == own[0].candidate and r.usable][-1]
    assert first.default == default.median
    assert first.way == ""
    assert (first.trials, second.trials) == (40, 80)
    ways = [r for r in log.records if r.op != "matmul"]
    (best,) = ranked(ways, 1)
    assert second.id == best.id
    assert second.way == {SCRIPT: "definition", "conv2d": "winograd"}[best.op]


def test_the_curve_is_the_sum_of_calls_times_the_best_until_then(log: Log) -> None:
    page = model_page("m.onnx", KERNELS, log)
    best = {"product": np.inf, "other": np.inf}
    expected = []
    trials = [r for r in log.records if not r.phase]
    for number, record in enumerate(trials, 1):
        name = "product" if record.op == "matmul" else "other"
        if record.usable and (record.median or np.inf) < best[name]:
            best[name] = record.median or np.inf
            total = 3 * best["product"] + best["other"]
            expected += [(number, total)] if np.isfinite(total) else []
    assert list(page.steps.trial) == [number for number, _ in expected]
    assert list(page.steps.seconds) == pytest.approx([total for _, total in expected])
    assert list(page.steps.clock) == sorted(page.steps.clock)
    assert page.trials == len(trials) == 120


def test_the_machine_with_the_most_records_counts(log: Log, tmp_path: Path) -> None:
    other = [replace(r, env={**r.env, "cpu": "Another"}) for r in log.records[:20]]
    mixed = load(write(tmp_path / "mixed.jsonl", [*other, *log.records]))
    assert model_page("m", KERNELS, mixed).trials == 120


def test_a_log_of_something_else_is_refused(log: Log) -> None:
    kernels = [TunedKernels("pool", 1, 0, {"pool": "definition"})]
    with pytest.raises(RecordError, match=r"no record of any kernel of m\.onnx; it is a log of"):
        model_page("m.onnx", kernels, log)


def test_the_section_says_what_is_expected(log: Log) -> None:
    model = model_page("m.onnx", KERNELS, log)
    page = replace(page_of([log]), model=model)
    root = ElementTree.fromstring(f"<div>{parts_of(page).main}</div>")
    (section,) = [one for one in root.iter("article") if one.get("id") == "model"]
    text = " ".join(section.itertext())
    whole = sum(row.calls * (row.seconds or 0) for row in model.kernels)
    assert f"A run is expected to take {1e3 * whole:.4g} ms" in text
    assert "by the default of each" in text
    assert SCRIPT in text  # as text, not as markup
    assert section.get("data-part") == "overview"
    assert len(list(section.iter("tr"))) == 3
    html = report_html(page)
    assert "<script>window.broken" not in html
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    assert data["model"]["name"] == "m.onnx"
    assert len(data["model"]["steps"]["seconds"]) == len(model.steps.seconds)


def test_tasks_without_a_time_are_counted(log: Log) -> None:
    missing = TunedKernels("later", 2, 0, {"later": "definition"})
    model = model_page("m.onnx", [*KERNELS, missing], log)
    assert model.steps.seconds == ()
    page = replace(page_of([log]), model=model)
    text = parts_of(page).main
    assert "1 of 3 tasks have no time yet; the others take" in text
