"""Times that no machine can reach are refused, with the figure; others are not."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest

import loopwright as lw
from loopwright import te
from loopwright.measure import ErrorKind, Measurer
from loopwright.measure.candidate import Candidate
from loopwright.measure.machine_limit import time_out_of_reach
from loopwright.runtime.peak import assumed_peak, out_of_reach
from loopwright.schedule import create_schedule
from tests.unit.measure.planted import PlainTask, Program, scheduled
from tests.unit.measure.programs import OPTION, matmul, under

PEAK = 1e11


def test_stores_and_arithmetic_have_limits() -> None:
    assert out_of_reach(1e-6, 1 << 10, 10**5, 4, PEAK) == ""
    assert "stores 1.02e+04 GB/s" in out_of_reach(1e-7, 1_024_000, 0, 4, PEAK)
    text = out_of_reach(1e-6, 4, 10**6, 4, PEAK)
    assert "1000000 operations, 10 times what vector instructions can do (100 GFLOP/s)" in text
    assert out_of_reach(1e-6, 4, 10**6, 1, PEAK) == ""  # four bytes stand in the place of a float


def test_more_threads_reach_more() -> None:
    assert assumed_peak(4) == 4 * assumed_peak(1)


def problem(program: Program, seconds: float, beside: Measurer) -> Any:
    with Measurer(PlainTask("timed", program), OPTION, beside=beside) as m:
        candidate = m.session.instantiate(0)  # type: ignore[arg-type]
        assert isinstance(candidate, Candidate)
        return time_out_of_reach(m.task.target, candidate, [seconds])


def test_a_product_in_a_nanosecond_is_refused(measurer: Measurer) -> None:
    error = problem(matmul(64, 8), 1e-9, measurer)
    assert error.kind == ErrorKind.RUN_ERROR
    assert error.text.startswith("no machine is so fast: a call of 1 ns stores 1.64e+04 GB/s")
    assert problem(matmul(64, 8), 1e-3, measurer) is None


def test_a_total_in_no_time_is_refused_by_its_operations(measurer: Measurer) -> None:
    a, k = te.placeholder((1 << 20,), name="a"), te.reduce_axis((0, 1 << 20), name="k")
    total = te.compute((1,), lambda i: te.sum(a[k], axis=k), name="total")
    assert "1048576 operations" in problem(scheduled(total, a), 1e-8, measurer).text


def test_what_a_compiler_may_leave_out_is_not_counted(measurer: Measurer) -> None:
    """The same number is added a million times, which one multiplication does."""
    a, k = te.placeholder((1,), "int32", name="a"), te.reduce_axis((0, 1 << 20), name="k")
    total = te.compute((1,), lambda i: te.sum(a[i] * 3, axis=k), name="total")
    assert problem(scheduled(total, a), 1e-8, measurer) is None


def test_a_sum_that_a_formula_gives_is_not_counted(measurer: Measurer) -> None:
    a, k = te.placeholder((1,), "int32", name="a"), te.reduce_axis((0, 1 << 20), name="k")
    total = te.compute((1,), lambda i: te.sum(a[i] + k, axis=k), name="total")
    assert problem(scheduled(total, a), 1e-8, measurer) is None


def test_a_kernel_that_is_timed_so_fast_gets_a_typed_failure(
    monkeypatch: pytest.MonkeyPatch, measurer: Measurer
) -> None:
    """Nor does it where nothing is checked: a check takes times of its own."""
    task = PlainTask("timed", matmul(64, 8))
    unchecked = replace(OPTION, runner=replace(OPTION.runner, check=False))
    with under(unchecked, Measurer(task, OPTION, beside=measurer)) as m:  # type: ignore[arg-type]
        monkeypatch.setattr(m.session.runner, "sample", lambda *a, **k: (1e-9, 1e-9))
        (result,) = m.measure([lw.MeasureInput(task, 0)])  # type: ignore[arg-type]
    assert result.error is not None
    assert result.error.kind == ErrorKind.RUN_ERROR
    assert "no machine is so fast" in result.error.text


def test_a_record_of_a_nanosecond_is_applied_with_a_word(tmp_path: Any) -> None:
    @lw.template("test/reach")
    def product(n: int) -> Any:
        a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
        k = te.reduce_axis((0, n), name="k")
        c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
        s = create_schedule(c.op)
        lw.get_config().define_knob("x", [0, 1])
        return s, [a, b, c]

    log = tmp_path / "log.jsonl"
    task = lw.create_task("test/reach", (64,), "llvm -num-threads=1")
    lw.tuner.GridSearchTuner(task).tune(
        n_trial=1,
        measure_option=lw.measure_option(
            lw.LocalBuilder(n_parallel=1), lw.LocalRunner(number=1, repeat=1)
        ),
        callbacks=[lw.callback.log_to_file(str(log))],
    )
    (record,) = [r for r in lw.records.load(str(log)).records if not r.phase][:1]
    quick = replace(record, times=(1e-9,), extra={})
    for one, expected in ((record, False), (quick, True)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            words: list[str] = []
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("loopwright.history.apply_best.say_once", words.append)
                with lw.apply_history_best([one]), lw.Target("llvm -num-threads=1"):
                    product(64)
        text = " ".join([*words, *(str(w.message) for w in said)])
        assert ("is implausible" in text) is expected
