"""The measurer end to end: real builders, a real runner, real faults."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from loopwright import te
from loopwright.errors import UsageError
from loopwright.measure import (
    ErrorKind,
    LocalBuilder,
    LocalRunner,
    Measurer,
    PlayoffPlan,
    measure_option,
)
from loopwright.measure.session import Clock
from loopwright.schedule import create_schedule
from loopwright.transform import PassContext, PassTimingInstrument
from tests.unit.measure.programs import OPTION, MatmulTask, error_kinds, product, under


@pytest.fixture(scope="module")
def unchecked(measurer: Measurer) -> Iterator[Measurer]:
    """It checks nothing, though the reference is wrong, and rests between candidates."""
    runner = LocalRunner(timeout=2, check=False, cooldown_interval=0.05)
    task = MatmulTask(reference=lambda a, b: product(a, b) + 1)
    with under(replace(OPTION, runner=runner), Measurer(task, OPTION, beside=measurer)) as m:
        yield m


def test_results_in_order_with_a_checked_winner(task: MatmulTask, measurer: Measurer) -> None:
    results = list(measurer.measure(task.inputs(4, 0, 8, 16)))
    assert error_kinds(results) == [None, ErrorKind.INSTANTIATION, None, None]
    assert results[1].error is not None
    assert "a tile of 0 columns" in results[1].error.text
    good = [r for r in results if r.usable]
    best = min(good, key=lambda r: r.median or 0.0)
    assert best.max_error is not None
    assert best.max_error < 1e-4
    assert all(r.build_s > 0 and r.run_s > 0 and r.ts > 0 for r in good)
    schedule, _ = task.instantiate(4)
    assert results[0].dag == schedule.dag.hash
    assert json.loads(results[0].trace) == schedule.trace_json()
    assert (results[1].dag, results[1].trace) == ("", "")


class PastTheEnd(MatmulTask):
    """Reads the element behind an array, which only a build that checks notices."""

    def instantiate(self, config: int) -> tuple[Any, list[Any]]:
        a = te.placeholder((4,), "float32", name="A")
        b = te.compute((5,), lambda i: te.if_then_else(i >= 0, a[i], 0.0), name="B")
        return create_schedule(b.op), [a, b]


def test_candidates_are_lowered_in_the_context_of_the_caller(unchecked: Measurer) -> None:
    task = PastTheEnd()
    checking = PassContext(config={"tir.instrument_bound_checkers": True})
    with Measurer(task, unchecked.option, beside=unchecked) as m:
        (plain,) = m.measure(task.inputs(1))
        with checking:
            (checked,) = m.measure(task.inputs(1))
            times = m.playoff([1], PlayoffPlan()).finalists[0].times
    assert plain.valid
    assert times == ()
    assert checked.error is not None
    assert checked.error.kind == ErrorKind.RUN_ERROR
    assert "access outside A: index [4], shape [4] (load at i = 4)" in checked.error.text


def test_a_context_of_functions_is_refused_before_anything_is_measured(
    task: MatmulTask, measurer: Measurer
) -> None:
    before = measurer.timing["trials"]
    with (
        PassContext(instruments=[PassTimingInstrument()]),
        pytest.raises(UsageError, match="its instruments live in this process"),
    ):
        measurer.measure(task.inputs(4))
    assert measurer.timing["trials"] == before


def test_slower_than_the_incumbent_is_not_checked(task: MatmulTask, measurer: Measurer) -> None:
    before = measurer.timing["checked"]
    (result,) = measurer.measure(task.inputs(4), incumbent=1e-9)
    assert result.dropped
    assert not result.usable
    assert len(result.times) == 1
    assert result.max_error is None
    assert measurer.timing["checked"] == before


def test_equal_candidates_are_built_once(task: MatmulTask, measurer: Measurer) -> None:
    list(measurer.measure(task.inputs(4)))  # the first of all builds the naive schedule, too
    before = measurer.timing
    results = list(measurer.measure(task.inputs(2, 2, 2)))
    after = measurer.timing
    assert [r.valid for r in results] == [True] * 3
    assert after["built"] - before["built"] == 1
    assert after["duplicates"] - before["duplicates"] == 2
    assert [r.times for r in results] == [results[0].times] * 3
    assert [r.same_as for r in results] == ["", results[0].program, results[0].program]


def test_closing_the_iterator_frees_the_device_and_the_builders(
    task: MatmulTask, measurer: Measurer
) -> None:
    results = measurer.measure(task.inputs(4, 8))
    next(results)
    assert all(lock.held for lock in measurer.session.locks)
    results.close()  # type: ignore[attr-defined]
    assert not any(lock.held for lock in measurer.session.locks)
    assert error_kinds(list(measurer.measure(task.inputs(16)))) == [None]


def test_after_its_block_it_measures_nothing(task: MatmulTask, measurer: Measurer) -> None:
    with Measurer(task, measurer.option, beside=measurer) as m:
        pass
    with pytest.raises(UsageError, match="is used inside `with Measurer"):
        list(m.measure(task.inputs(4)))


def test_timing_adds_up(task: MatmulTask, measurer: Measurer) -> None:
    # One of its own: other tests make `measurer` work without measuring.
    with Measurer(task, measurer.option, beside=measurer) as m:
        start = time.perf_counter()
        list(m.measure(task.inputs(4)))
        taken = time.perf_counter() - start
        t = m.timing
    phases = ["instantiate", "build", "run", "check", "reference", "wait", "cooldown", "overhead"]
    assert sum(t[p] for p in phases) == pytest.approx(t["total"], rel=1e-6)
    assert 0 < t["total"] <= taken
    assert t["trials"] == 1


def test_who_takes_the_results_spends_no_time_of_measuring(
    task: MatmulTask, measurer: Measurer
) -> None:
    with Measurer(task, measurer.option, beside=measurer) as m:
        start = time.perf_counter()
        results = m.measure(task.inputs(4, 8))
        next(results)
        taken = time.perf_counter() - start
        time.sleep(0.2)
        results.close()  # type: ignore[attr-defined]
        assert m.timing["total"] <= taken


def test_a_phase_inside_another_is_charged_once() -> None:
    clock = Clock()
    with clock.counting(), clock.phase("check"):
        time.sleep(0.02)
        with clock.phase("build"):
            time.sleep(0.02)
    assert clock.seconds["build"] >= 0.02
    assert clock.seconds["check"] >= 0.02
    assert clock.seconds["build"] + clock.seconds["check"] <= clock.total
    assert clock.report()["overhead"] >= 0


def test_another_task_is_refused(measurer: Measurer) -> None:
    with pytest.raises(UsageError, match="test/matmul"):
        measurer.measure(MatmulTask().inputs(4))


def test_outside_of_with(task: MatmulTask) -> None:
    m = Measurer(task, OPTION)
    with pytest.raises(UsageError, match="inside `with"):
        m.measure(task.inputs(4))
    with pytest.raises(UsageError, match="inside `with"):
        m.playoff([4], PlayoffPlan())


def test_check_can_be_switched_off(unchecked: Measurer) -> None:
    (result,) = unchecked.measure(unchecked.task.inputs(8))  # type: ignore[attr-defined]
    assert result.usable
    assert result.max_error is None


def test_cooldown_rests_between_candidates(unchecked: Measurer) -> None:
    before = unchecked.timing["cooldown"]
    list(unchecked.measure(unchecked.task.inputs(4, 8, 16)))  # type: ignore[attr-defined]
    assert unchecked.timing["cooldown"] - before >= 0.1


def test_close_leaves_no_process(task: MatmulTask) -> None:
    with Measurer(task, measure_option(LocalBuilder(n_parallel=1))) as m:
        list(m.measure(task.inputs(4)))
        pids = [w.pid for w in [*m.session.builds.workers, m.session.runner.worker]]
    for pid in pids:
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_overlap_when_there_are_cores_enough(task: MatmulTask, measurer: Measurer) -> None:
    with Measurer(task, OPTION, cores=8, beside=measurer) as m:
        assert m.overlap
        results = list(m.measure(task.inputs(*[4, 0, 8, 16, 2, 32] * 3)))
    kinds = [None, ErrorKind.INSTANTIATION, None, None, None, None] * 3
    assert error_kinds(results) == kinds
    one_builder = measure_option(LocalBuilder(n_parallel=1))
    assert Measurer(task, one_builder, cores=2).overlap  # and a kernel of one thread
    assert not Measurer(task, OPTION, cores=2).overlap


def test_hundreds_of_trials_leave_no_growth(task: MatmulTask, measurer: Measurer) -> None:
    list(measurer.measure(task.inputs(4)))
    runner = measurer.session.runner.worker
    before, launched = runner.rss, runner.launched
    for _ in range(15):
        list(measurer.measure(task.inputs(*[4, 8, 16, 2] * 5), incumbent=1e-9))
    assert runner.launched == launched
    assert runner.rss - before < 8 << 20
