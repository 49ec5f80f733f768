"""A task for a device from its space to its log: tuning on an OpenCL device that is here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopwright import inspection, records, te
from loopwright.errors import BuildError
from loopwright.history.call_overhead import time_as_called
from loopwright.inspection.report import page_of
from loopwright.measure import LocalBuilder, LocalRunner, MeasureInput, Measurer, measure_option
from loopwright.records import Checked, ErrorKind
from loopwright.runtime import cpu
from loopwright.runtime.devices.device import facts_here
from loopwright.schedule import create_schedule
from loopwright.task import Task, apply_history_best, create_task, get_config, template
from loopwright.task.template import TASKS
from loopwright.tuner import RandomTuner, log_to_file
from tests.unit.measure.device_kernels import needs_opencl

pytestmark = needs_opencl
OPTION = measure_option(
    LocalBuilder(n_parallel=1, timeout=30), LocalRunner(number=1, repeat=2, device="opencl:0")
)
NAME = "test/bound_matmul"
TARGET = "opencl -max-threads-per-block=448"


def matmul(n: int) -> tuple[Any, list[Any]]:
    """A tile of the output for each block, an element for each thread."""
    cfg = get_config()
    a = te.placeholder((n, n), "float32", name="A")
    b = te.placeholder((n, n), "float32", name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c.op)
    axes = [s[c].split(axis, nparts=1) for axis in s[c].op.axis]
    rows, columns = (inner for _, inner in axes)
    cfg.define_knob("y", [4, 8, 64])
    cfg.define_knob("x", [16, 8])
    io, ii = s[c].split(rows, factor=cfg["y"].val)
    jo, ji = s[c].split(columns, factor=cfg["x"].val)
    s[c].reorder(axes[0][0], axes[1][0], io, jo, ii, ji)
    for loop, tag in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (ii, "threadIdx.y")):
        s[c].bind(loop, te.thread_axis(tag))
    s[c].bind(ji, te.thread_axis("threadIdx.x"))
    return s, [a, b, c]


@pytest.fixture(scope="module")
def task() -> Iterator[Task]:
    template(NAME)(matmul)
    yield create_task(NAME, (64,), TARGET)
    TASKS.pop(NAME, None)


@pytest.fixture(autouse=True)
def _own_device_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def tuned(task: Task, path: Path, trials: int) -> records.Log:
    RandomTuner(task, seed=3).tune(
        n_trial=trials, measure_option=OPTION, callbacks=[log_to_file(path)]
    )
    return records.load(path)


# By day `cli/test_device_option.py` tunes on a device.
@pytest.mark.slow
def test_tuning_leaves_times_checks_reasons_and_the_device_in_the_log(
    task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.jsonl"
    # There are six configurations: one is far beyond the limit, and never proposed, one is refused.
    log = tuned(task, path, 5)
    trials = [r for r in log.records if not r.phase]
    assert sum(r.usable or r.dropped for r in trials) == 4
    assert any(r.checked is Checked.YES and r.max_error < 1e-4 for r in trials)
    assert all(r.env["device"] == facts_here("opencl") for r in log.records)
    refused = [r for r in trials if r.error is not None]
    assert len(refused) == 1
    for r in refused:  # blocks of 64 x 8 threads
        assert r.error["kind"] == ErrorKind.COMPILE
        assert "max_threads_per_block is 448; bind smaller loops" in r.error["text"]
        assert r.config["y"] == 64
    final = [r for r in log.records if r.phase == "playoff"]
    assert final
    judged = [r.verdict for r in final if r.verdict]
    assert all(v["peak"] == "FMA peak (float32)" and 0 < v["of_peak"] < 1 for v in judged)
    # What is there counts, as long as the device is the same.
    assert len(tuned(task, path, 4).records) == len(log.records)  # all that was asked for
    with records.Store(tmp_path / "other.jsonl") as store:
        for r in trials:
            device = {**r.env["device"], "name": "another model"}
            store.append(replace(r, env={**r.env, "device": device}))
    conditions = records.Conditions(
        task.alias, trials[0].space, trials[0].build, trials[0].hardware, 0, task.target.canonical
    )
    others = records.load(tmp_path / "other.jsonl").records
    assert {records.reuse_of(r, conditions) for r in trials} == {records.Reuse.AS_TRIAL}
    assert {records.reuse_of(r, conditions) for r in others} == {records.Reuse.FOR_TRAINING}
    # The best as a file of its own: it runs on the device, beside the naive schedule on the CPU.
    exported: dict[str, Any] = {"__name__": "exported"}
    exec(inspection.export(path, "best"), exported)
    assert exported["main"]([]) == 0
    assert "right: equal to the naive schedule" in capsys.readouterr().out
    kernel = exported["build"]()
    with pytest.raises(
        BuildError, match=r"main runs on opencl\(0\), where a call from Python only"
    ):
        time_as_called(kernel, None)
    roofline = page_of([log]).tasks[0].series[0].roofline
    assert roofline is not None
    assert roofline.flops is not None
    assert roofline.flops > roofline.speed
    assert roofline.bandwidth is None  # its arrays stay in the cache
    assert "itself: FMA peak (float32) beside the playoff of record" in roofline.source
    # What is built from them: those of this model, and no others.
    assert apply_history_best(path).explain(task).record is not None
    choice = apply_history_best(tmp_path / "other.jsonl").explain(task)
    assert choice.record is None
    assert "of other hardware (device another model)" in str(choice)


def test_what_the_naive_schedule_says_on_the_cpu_is_the_right_answer(task: Task) -> None:
    with Measurer(task, OPTION) as measurer:
        [result] = measurer.measure([MeasureInput(task, task.config_space.get(0))])
        assert (result.error, result.checked) == (None, Checked.YES)
        assert measurer.session.devices[0] != cpu()
        assert not measurer.session.on_cpu


def test_a_template_with_a_reference_of_its_own_that_says_otherwise(task: Task) -> None:
    def wrong(a: Any, b: Any) -> Any:
        return np.zeros((64, 64), "float32")

    template("test/wrong_matmul", reference=wrong)(matmul)
    try:
        other = create_task("test/wrong_matmul", (64,), TARGET)
        with Measurer(other, OPTION) as measurer:
            [result] = measurer.measure([MeasureInput(other, other.config_space.get(0))])
    finally:
        TASKS.pop("test/wrong_matmul", None)
    assert result.error is not None
    assert result.error.kind == ErrorKind.WRONG_ANSWER
