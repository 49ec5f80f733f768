"""Kernels take turns inside runs of a model, and what is fastest there is built."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright import graph, te
from loopwright.errors import ArgumentError, UsageError
from loopwright.graph import op
from loopwright.graph.building import InsideReport, KernelFinalist, KernelPlayoff, _alone
from loopwright.measure import paired_gain

TARGET = "llvm -num-threads=1"
DATA = np.random.default_rng(0).standard_normal((64, 256)).astype("float32")
WEIGHT = np.random.default_rng(1).standard_normal((256, 256)).astype("float32")
EXPECTED = np.maximum(np.maximum(DATA @ WEIGHT.T, 0) @ WEIGHT.T, 0)


def module() -> graph.IRModule:
    """Two layers of one kernel, and a softmax."""
    x = graph.var("x", (64, 256))
    layer = op.nn.relu(op.nn.dense(x, WEIGHT))
    return graph.IRModule.from_expr(op.nn.relu(op.nn.dense(layer, WEIGHT)))


def wasteful_dense(data: te.Tensor, weight: te.Tensor, *, out_dtype: str = "") -> te.Tensor:
    """The same product, of which all is summed eight times over."""
    k = te.reduce_axis((0, weight.shape[1]), name="k")
    again = te.reduce_axis((0, 8), name="again")
    shape = (data.shape[0], weight.shape[0])
    tensor: te.Tensor = te.compute(
        shape,
        lambda i, j: te.sum(data[i, k] * weight[j, k] * 0.125, axis=[again, k]),
        name="dense",
    )
    return tensor


@pytest.fixture
def wasteful() -> Iterator[None]:
    """A way to compute nn.dense that goes before its definition, and is slower."""
    graph.register_implementation("nn.dense", "wasteful", plevel=20)(wasteful_dense)
    yield
    graph.remove_implementation("nn.dense", "wasteful")


@pytest.mark.usefixtures("wasteful")
def test_what_is_slower_inside_is_not_built() -> None:
    before = graph.compile(module(), TARGET)
    assert set(before.implementations.values()) == {"wasteful"}
    assert before.inside is None
    after = graph.compile(module(), TARGET, finalists=1)
    assert after.inside is not None
    (place,) = after.inside
    assert [one.origin for one in place.finalists] == ["wasteful, default", "definition, default"]
    assert place.taken == 1
    assert set(after.implementations.values()) == {"definition"}
    assert after.kernels[place.kernel] is place.winner.module
    np.testing.assert_allclose(after(DATA)[0], EXPECTED, rtol=1e-3, atol=1e-3)
    text = str(after.inside)
    assert text.startswith("inside the model 1 of 1 kernel with several candidates changed\n")
    assert "definition, default in place of wasteful, default" in text


def test_records_and_the_default_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    option = lw.measure_option(runner=lw.LocalRunner(number=1, repeat=3, min_repeat_ms=0))
    lw.tune(module(), TARGET, log=path, trials=5, tuner="random", measure_option=option)
    model = graph.compile(module(), TARGET, history=path, finalists=3)
    history = lw.apply_history_best(path)
    (task,) = graph.extract_tasks(module(), TARGET)
    best = history.finalists(task.task, 3)
    named = [choice.record.id for choice, _ in best if choice.record is not None]
    order = [one.id for one in lw.records.ranked(lw.records.load(path)) if one.id in named]
    assert named == order
    assert all(choice.checked is lw.records.Checked.YES for choice, _ in best)
    assert len({choice.record.candidate for choice, _ in best if choice.record}) == len(best)
    assert model.inside is not None
    for place in model.inside:
        origins = [one.origin for one in place.finalists]
        assert len(set(origins)) == len(origins)
        named = [f"record {choice.record.id}" for choice, _ in best if choice.record]
        assert set(origins) <= {"default", *named}
        assert len({len(samples) for samples in place.times}) == 1
        assert model.kernels[place.kernel] is place.winner.module
    np.testing.assert_allclose(model(DATA)[0], EXPECTED, rtol=1e-3, atol=1e-3)


def test_what_takes_turns_stays_on_its_cpu() -> None:
    with _alone(lw.Target(TARGET)):
        assert len(os.sched_getaffinity(0)) == 1


def test_without_anything_to_compare_nothing_changes() -> None:
    model = graph.compile(module(), TARGET, finalists=3)
    assert model.inside == InsideReport()
    assert str(model.inside) == "no kernel has another candidate than the one that is built"


def test_the_fastest_of_those_that_are_measurably_faster_is_taken() -> None:
    built = graph.compile(module(), TARGET)
    (kernel,) = built.kernels.values()

    def place(*speeds: float) -> KernelPlayoff:
        noise = np.random.default_rng(2).uniform(0.98, 1.02, (len(speeds), 20))
        times = [tuple(row / speed) for row, speed in zip(noise, speeds, strict=True)]
        gains = [paired_gain(times[0], t) for t in times[1:]]
        names = [f"record {n}" for n in range(len(speeds))]
        ones = tuple(KernelFinalist(name, "definition", kernel, None) for name in names)
        return KernelPlayoff(
            "dense_0", ones, tuple(times), tuple(g for g in gains if g is not None)
        )

    assert place(1, 0.9, 1.001).taken == 0  # slower, and a tie
    assert place(1, 1.3, 0.5, 1.6, 1.2).taken == 3
    one = place(1, 2)
    assert one.winner.origin == "record 1"
    assert "record 1 in place of record 0, 50" in str(one)


def test_a_comparison_leaves_the_model_as_it_is() -> None:
    model = graph.compile(module(), TARGET)
    (name,) = model.kernels
    other = graph.compile(module(), "llvm -num-threads=2").kernels[name]
    executor = model.debug_executor()
    executor.run(x=DATA)
    kernels = [model.kernels[name], other, model.kernels[name]]
    times = executor.compare({name: kernels}, rounds=4, inputs={"x": DATA})
    assert [len(samples) for samples in times[name]] == [4, 4, 4]
    assert min(map(min, times[name])) > 0
    np.testing.assert_allclose(executor.get_output(0).numpy(), EXPECTED, rtol=1e-3, atol=1e-3)
    assert len(executor.compare({name: kernels}, rounds=100, seconds=0.0)[name][0]) == 6
    assert executor.compare({}) == {}
    with pytest.raises(ArgumentError, match="there is no kernel 'dens'"):
        executor.compare({"dens": kernels})


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "3"])
def test_what_is_no_number_of_finalists_is_refused(wrong: object) -> None:
    with pytest.raises(UsageError, match="give the number of records of each kernel"):
        graph.compile(module(), TARGET, finalists=wrong)  # type: ignore[arg-type]
