"""Measuring what one has chosen oneself, by AutoTVM's names."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import loopwright as tvm
from loopwright import autotvm
from loopwright.errors import UsageError

TASK = autotvm.task.create("matmul", args=(16, 16, 16), target="llvm -num-threads=1")
OTHER = autotvm.task.create("matmul", args=(16, 16, 32), target="llvm -num-threads=1")


def inputs(task=TASK, count=3):
    return [autotvm.MeasureInput(task.target, task, task.config_space.get(i)) for i in range(count)]


def test_a_batch_is_measured_and_built():
    option = autotvm.measure_option(
        autotvm.LocalBuilder(n_parallel=1), autotvm.LocalRunner(number=2)
    )
    with autotvm.measure.create_measure_batch(TASK, option) as measure_batch:
        assert measure_batch.n_parallel == 1
        results = measure_batch(inputs())
        # Nobody races: each has as many samples as were asked for.
        assert [len(result.costs) for result in results] == [3, 3, 3]
        assert all(isinstance(result, autotvm.MeasureResult) for result in results)
        again = autotvm.task.create("matmul", args=(16, 16, 16), target=TASK.target)
        assert len(measure_batch(inputs(again, 1))) == 1
        built = measure_batch.build(inputs())
        assert measure_batch([]) == measure_batch.build([]) == []
        with pytest.raises(UsageError, match=r"measures matmul\(16, 16, 16.*input is of matmul"):
            measure_batch(inputs(OTHER))
        one, two, three = (Path(result.filename) for result in built)
        assert len({one, two, three}) == 3
        assert built[0].arg_info == (((16, 16), "float32"),) * 3
        assert all(result.error is None and result.time_cost > 0 for result in built)
        a, b = (np.random.default_rng(s).random((16, 16), "float32") for s in (0, 1))
        c = np.zeros((16, 16), "float32")
        tvm.load_module(one)(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)
        session = measure_batch._measurer.session
        candidate = session.instantiate(inputs()[0].config)
        session.instantiate = Mock(side_effect=[candidate, UsageError("no safe range")])
        with pytest.raises(UsageError, match="no safe range"):
            measure_batch.build(inputs())
        assert not session.builds._running  # the first is given up
    assert not one.exists()
    with pytest.raises(UsageError, match="this measure_batch is closed"):
        measure_batch(inputs())


@autotvm.template("test/refused_in_a_batch")
def refused(n):
    s, args = tvm.ops.matmul(n, n, n)
    cfg = autotvm.get_config()
    cfg.define_knob("wrong", [0, 1])
    if cfg["wrong"].val:
        cfg.raise_error("this one is refused")
    return s, args


def test_what_fails_to_build_has_an_error_and_no_file():
    task = autotvm.task.create(refused, args=(16,), target="llvm")
    wrong = [task.config_space.get(task.config_space.range_length - 1)]
    option = autotvm.measure_option(autotvm.LocalBuilder(n_parallel=1))
    with autotvm.create_measure_batch(task, option) as measure_batch:
        (built,) = measure_batch.build([autotvm.MeasureInput("llvm", task, c) for c in wrong])
    assert (built.filename, built.arg_info) == ("", ())
    assert str(built.error) == "INSTANTIATION: this one is refused"


def test_wrong_arguments_are_refused():
    with pytest.raises(UsageError, match=r"option is what measure_option.*it is a dict"):
        autotvm.measure.create_measure_batch(TASK, {})
    with pytest.raises(UsageError, match="a target, a task and a configuration"):
        autotvm.MeasureInput(TASK, TASK.config_space.get(0), 3)


def test_an_input_for_another_target_is_of_another_task():
    inp = autotvm.MeasureInput("c", TASK, TASK.config_space.get(2))
    assert (inp.task.kind, inp.target.kind.name) == ("c", "c")
    assert inp.config.values == TASK.config_space.get(2).values
    assert autotvm.MeasureInput(TASK.target, TASK, TASK.config_space.get(2)).task is TASK


def test_results_are_made_and_taken_apart_by_position():
    result = autotvm.MeasureResult((0.5, 0.25), 0, 2.0, 1600.0)
    costs, error_no, all_cost, timestamp = result
    assert (costs, error_no, all_cost, timestamp) == ((0.5, 0.25), 0, 2.0, 1600.0)
    assert (result[0], result[-1]) == (costs, timestamp)
    assert (result.times, result.error, result.run_s, result.ts) == (costs, None, 2.0, 1600.0)
    by_name = autotvm.MeasureResult(costs=[0.5], error_no=0, all_cost=2.0, timestamp=1600.0)
    assert (by_name.times, by_name.all_cost) == ((0.5,), 2.0)
    later = dataclasses.replace(result, ts=1700.0)
    assert (tuple(later)[:3], later.timestamp) == (tuple(result)[:3], 1700.0)


@pytest.mark.parametrize("number", [n for n in autotvm.MeasureErrorNo if n])
def test_a_failure_by_position_has_a_kind_and_no_times(number):
    said = autotvm.MeasureResult((RuntimeError("no such device"),), number, 2.0, 1600.0)
    bare = autotvm.MeasureResult((1e9,), int(number), 2.0, 1600.0)
    assert (said.costs, bare.costs) == ((), ())
    assert said.error.text == "no such device"
    assert bare.error.text not in ("", said.error.text)
    # Two of AutoTVM's numbers mean one kind of ours: 3 is a fault of the compiler as well, 8 one of
    # the run.
    assert bare.error_no == said.error_no == {3: 2, 8: 4}.get(number, number)


def test_whatever_was_measured_is_an_instance_of_both_classes():
    plain = tvm.MeasureResult(times=(0.5,))
    assert isinstance(plain, autotvm.MeasureResult)
    assert isinstance(autotvm.MeasureResult((0.5,), 0, 1.0, 2.0), tvm.MeasureResult)
    assert isinstance(tvm.MeasureInput(TASK, TASK.config_space.get(0)), autotvm.MeasureInput)
    assert not isinstance(0.5, autotvm.MeasureResult)
    with pytest.raises(UsageError, match="error_no is a MeasureErrorNo, 0 to 8, got 9"):
        autotvm.MeasureResult((0.5,), 9, 1.0, 2.0)
    with pytest.raises(UsageError, match="error_no is a MeasureErrorNo, 0 to 8, got None"):
        autotvm.MeasureResult((RuntimeError("no time"),), None, 1.0, 2.0)
