"""Operators that are definitions: derived for CPUs, templates for GPUs, and logs of before."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from benchmarks.automatic import template_of
from benchmarks.templates import BASELINES
from benchmarks.workloads import CASES, MORE_CASES
from loopwright import ops, te
from loopwright.errors import TensorError
from loopwright.history import why_not_applied
from loopwright.ops.operator import WORKLOADS
from loopwright.records import Checked, Store, load
from loopwright.space import Workload
from loopwright.task import ApplyConfig, ApplyGraphBest, create_task

TARGET = "llvm -mcpu=x86-64-v3 -num-threads=2"
#: Small arguments of every operator that is a definition.
ARGS: dict[str, tuple[Any, ...]] = {
    "conv2d": (1, 3, 9, 21, 17, 3, 3, 1, 1),
    "depthwise_conv2d": (1, 3, 9, 21, 3, 3, 1, 1),
    "elementwise": (9, 37),
    "layer_norm": (9, 37),
    "pool2d": (1, 3, 9, 21, 3, 3, 2, 1, "avg"),
    "reduce": (9, 37),
    "softmax": (9, 37),
    "transpose": (9, 37),
}
#: Runs of when these were templates, by hand, with knobs, and the arguments of each.
OLD_LOGS: dict[str, tuple[Any, ...]] = {
    "conv2d": (1, 3, 9, 9, 17, 3, 3, 1, 1),
    "depthwise_conv2d": (1, 3, 9, 21, 3, 3, 1, 1),
    "matmul": (1, 131072, 16),
    "pool2d": (1, 3, 9, 21, 3, 3, 2, 1, "avg"),
    "softmax": (64, 256),
}


def test_every_definition_is_here_and_has_a_baseline() -> None:
    found = {name for name, o in WORKLOADS.items() if isinstance(o.template, Workload)}
    assert found == set(ARGS) == set(BASELINES)


@pytest.mark.parametrize("name", ARGS)
def test_cpus_derive_and_gpus_have_knobs(name: str) -> None:
    for target in (TARGET, "c", "interp"):
        task = lw.create_task(name, ARGS[name], target)
        assert task.automatic
        assert (task.name, task.args[: len(ARGS[name])]) == (name, ARGS[name])
    on_gpus = lw.create_task(name, ARGS[name], "opencl")
    assert not on_gpus.automatic
    assert len(on_gpus.config_space.knobs) > 1
    schedule, tensors = on_gpus.instantiate(on_gpus.config_space.default_index)
    assert "blockIdx.x" in str(lw.lower(schedule, tensors))
    assert schedule.dag.hash == on_gpus.dag_hash
    assert on_gpus.dag_hash == task.dag_hash


@pytest.mark.parametrize("name", ARGS)
def test_the_baseline_computes_the_same(name: str) -> None:
    derived = lw.create_task(name, ARGS[name], TARGET)
    by_hand = lw.create_task(f"baseline/{name}", ARGS[name], TARGET)
    assert not by_hand.automatic
    assert by_hand.dag_hash in derived.dag_hashes
    config = by_hand.config_space.get(by_hand.config_space.default_index)
    schedule, tensors = by_hand.instantiate(config)
    rng = np.random.default_rng(1)
    *inputs, out = (rng.standard_normal(t.static_shape).astype(t.dtype) for t in tensors)
    lw.build(schedule, tensors, by_hand.target)(*inputs, out)
    np.testing.assert_allclose(out, derived.reference(*inputs), rtol=1e-4, atol=1e-5)


def test_inside_templates_and_workloads_it_is_its_tensors() -> None:
    @lw.template("test/definitions/template")
    def scaled(n: int) -> Any:
        X, Y = lw.ops.softmax(n, n)
        Z = te.compute((n, n), lambda i, j: Y[i, j] * 2, name="Z")
        return te.create_schedule(Z.op), [X, Z]

    def shifted(n: int) -> list[te.Tensor]:
        X, Y = lw.ops.softmax(n, n)
        return [X, te.compute((n, n), lambda i, j: Y[i, j] + 1, name="Z")]

    x = np.random.default_rng(2).standard_normal((8, 8)).astype("float32")
    right = ops.softmax.make_reference(8, 8, "float32")(x)
    for function, answer in ((scaled, right * 2), (shifted, right + 1)):
        task = lw.create_task(function, (8,), TARGET)
        out = np.empty_like(x)
        lw.build(*task.instantiate(task.config_space.default_index), TARGET)(x, out)
        np.testing.assert_allclose(out, answer, rtol=1e-5)
    (on_gpus, *_) = lw.create_task(shifted, (8,), "opencl").structures
    assert [t.name for t in on_gpus.instantiate(on_gpus.config_space.get(0))[1]] == ["X", "Z"]


def test_a_default_is_ranked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from loopwright.space import tasks

    asked = []
    ranked = tasks.ranked
    monkeypatch.setattr(tasks, "ranked", lambda found: asked.append(len(found)) or ranked(found))
    with lw.Target(TARGET):
        for _ in range(3):
            ops.softmax(10, 39)
            ops.softmax(10, 41)
    assert len(asked) == 2


def test_what_a_definition_refuses_is_said() -> None:
    with pytest.raises(TensorError, match="int32 has no exponentials"):
        lw.create_task("softmax", (4, 4, "int32"), TARGET)


def old_log(name: str) -> Path:
    return Path(__file__).with_name(f"{name}_of_a_template.log")


@pytest.mark.parametrize("name", OLD_LOGS)
def test_a_log_of_the_template_applies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from loopwright.space import tasks

    def refuse(_: object) -> None:
        raise AssertionError("replaying a record ranks nothing")

    monkeypatch.setattr(tasks, "ranked", refuse)
    (first, *_) = records = load(old_log(name)).records
    task = lw.create_task(name, OLD_LOGS[name], "llvm -num-threads=2")
    assert {r.op for r in records} == {name}
    assert first.task != task.key
    assert all(task.is_of(record) for record in records)
    assert not task.of((2, *OLD_LOGS[name][1:])).is_of(first)
    history = lw.apply_history_best(old_log(name), any_hardware=True, verdicts=False)
    with history, task.target:
        schedule, tensors = WORKLOADS[name].template(*OLD_LOGS[name])
    (choice,) = history.report()
    assert choice.record is not None
    assert choice.replayed
    assert schedule.trace_json() == choice.record.trace
    rng = np.random.default_rng(3)
    *inputs, out = (rng.standard_normal(t.static_shape).astype("float32") for t in tensors)
    lw.build(schedule, tensors, task.target)(*inputs, out)
    np.testing.assert_allclose(out, task.reference(*inputs), rtol=1e-5, atol=1e-5)


def test_knobs_of_a_template_apply_beside_a_derived_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopwright.space.tasks.ranked", None)
    args, log = OLD_LOGS["matmul"], tmp_path / "matmul.jsonl"
    first = load(old_log("matmul")).records[0]
    old = replace(first, trace=[], dag="", program="")
    store = Store(log)
    store.append(old)
    store.close()
    task = lw.create_task("matmul", args, "llvm -mcpu=x86-64-v4 -num-threads=2")
    assert task.automatic
    assert task.is_of(old)
    assert not task.of((2, *args[1:])).is_of(old)
    assert why_not_applied([old], task.target, any_hardware=True) == [""]
    for context in (
        lw.apply_history_best(log, any_hardware=True),
        ApplyGraphBest(log),
        ApplyConfig(old.config),
    ):
        with context, task.target:
            assert ops.matmul(*args)[0].trace_json() == first.trace
    unrolled, _ = task.instantiate({"unroll_k": 8})
    assert unrolled.trace_json() != first.trace
    A, B = te.placeholder((1, 16), name="A"), te.placeholder((16, 131072), name="B")
    C = ops.matmul_compute(A, B)
    beside = lw.create_task([A, B, C], target=task.target, templates=[("matmul", *args)])
    assert beside.structures[-1].name == f"template {task}"


def test_a_search_goes_on_in_a_log_of_the_template(tmp_path: Path) -> None:
    log = tmp_path / "softmax.jsonl"
    shutil.copy(old_log("softmax"), log)
    before = load(log).records
    task = create_task("softmax", (64, 256), "llvm -num-threads=2")
    summary = lw.tuner.RandomTuner(task, seed=0).tune(
        n_trial=2,
        measure_option=lw.measure_option(
            lw.LocalBuilder(n_parallel=1), lw.LocalRunner(number=1, repeat=1)
        ),
        callbacks=[lw.callback.log_to_file(str(log))],
    )
    assert summary.best_config is not None
    after = load(log).records
    assert after[: len(before)] == before
    own = [r for r in after if r.task == task.key]
    assert len([r for r in own if r.usable]) >= 2
    right = [r for r in after if r.checked is Checked.YES]
    assert {r.op for r in right} == {"softmax"}
    history = lw.apply_history_best(log, any_hardware=True)
    assert history.explain(task).record in right


def test_the_benchmark_compares_with_the_template_by_hand() -> None:
    cases = {case.op: case for case in (*CASES, *MORE_CASES)}
    for name in ("softmax", "transpose", "matmul"):
        assert not template_of(cases[name], "llvm", 1).automatic
    assert template_of(cases["softmax"], "llvm", 1).name == "baseline/softmax"
    assert template_of(cases["softmax"], "opencl", None).name == "softmax"
