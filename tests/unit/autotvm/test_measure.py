"""Measuring what one has chosen oneself, by AutoTVM's names."""

from __future__ import annotations

from pathlib import Path

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
