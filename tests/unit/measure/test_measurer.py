"""The measurer end to end: real builders, a real runner, real faults."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.errors import UsageError
from loopwright.measure import (
    ErrorKind,
    LocalBuilder,
    LocalRunner,
    MeasureError,
    Measurer,
    MeasureResult,
    PlayoffPlan,
    measure_option,
)
from loopwright.measure.arguments import arguments
from loopwright.measure.building import Candidate
from loopwright.measure.options import WINDOW_S
from loopwright.measure.paired_ratios import FEWEST_ROUNDS
from loopwright.measure.playoff import CHOOSING
from loopwright.measure.reference import References
from loopwright.records import Checked, Outcome
from loopwright.runtime import Artifact
from loopwright.schedule import create_schedule
from loopwright.time_limit import limited
from loopwright.transform import PassContext, PassTimingInstrument
from tests.unit.measure import kernels
from tests.unit.measure.canned import Canned
from tests.unit.measure.programs import MatmulTask, product

OPTION = measure_option(LocalBuilder(n_parallel=1, timeout=20), LocalRunner(timeout=2))


def error_kinds(results: list[MeasureResult]) -> list[str | None]:
    return [r.error.kind if r.error else None for r in results]


@pytest.fixture(scope="module")
def task() -> MatmulTask:
    return MatmulTask()


@pytest.fixture(scope="module")
def measurer(task: MatmulTask) -> Iterator[Measurer]:
    with Measurer(task, replace(OPTION, builder=LocalBuilder(n_parallel=2, timeout=20))) as m:
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


def test_candidates_are_lowered_in_the_context_of_the_caller() -> None:
    task = PastTheEnd()
    checking = PassContext(config={"tir.instrument_bound_checkers": True})
    with Measurer(task, replace(OPTION, runner=LocalRunner(check=False))) as m:
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


def test_template_errors_beyond_exception_are_not_swallowed(measurer: Measurer) -> None:
    task = measurer.task
    stop = KeyboardInterrupt()

    class Interrupting:
        def __eq__(self, other: object) -> bool:
            raise stop

        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(KeyboardInterrupt):
        list(measurer.measure(task.inputs(Interrupting())))
    assert error_kinds(list(measurer.measure(task.inputs(4)))) == [None]


def test_closing_the_iterator_frees_the_device_and_the_builders(
    task: MatmulTask, measurer: Measurer
) -> None:
    results = measurer.measure(task.inputs(4, 8))
    next(results)
    assert measurer.equipment.lock.held
    results.close()  # type: ignore[attr-defined]
    assert not measurer.equipment.lock.held
    assert error_kinds(list(measurer.measure(task.inputs(16)))) == [None]


def test_timing_adds_up(task: MatmulTask, measurer: Measurer) -> None:
    list(measurer.measure(task.inputs(4)))
    t = measurer.timing
    phases = ["instantiate", "build", "run", "check", "reference", "wait", "cooldown", "overhead"]
    assert sum(t[p] for p in phases) == pytest.approx(t["total"], rel=1e-6)
    assert t["trials"] >= 1


def test_playoff_interleaves_ranks_and_judges(task: MatmulTask, measurer: Measurer) -> None:
    flop = 2 * 32**3
    yardstick = iter(range(1, 100))
    plan = PlayoffPlan(32, flop=flop, beside={"other": lambda: next(yardstick) * 1e-3})
    found = measurer.playoff([4, 2, 32, 0], plan)
    assert {f.config for f in found.finalists} == {0, 2, 4, 32}
    failed = found.finalists[-1]
    assert (failed.config, failed.times) == (0, ())
    assert failed.error is not None
    rest = found.finalists[:-1]
    assert all(f.checked is Checked.YES and f.max_error is not None for f in rest)
    assert all(2 <= len(f.times) <= CHOOSING[1] for f in rest)
    medians = [np.median(f.times) for f in rest]
    assert medians == sorted(medians)
    # At least twenty where there is time, and never fewer than an interval needs.
    assert found.verdict().rounds >= FEWEST_ROUNDS
    assert found.peak == "FMA peak"
    assert len(found.at_peak) == len(found.best) == len(found.default)
    assert found.of_peak == pytest.approx(np.median(found.at_peak) / np.median(found.best))
    assert found.beside["other"][:6] == tuple(i * 1e-3 for i in range(1, 7))
    assert all(map(math.isnan, found.beside["other"][7::2]))
    assert found.gain_over("other") is not None


class Named(int):
    """A tile size; two of them are two configurations, also where they are one program."""

    __eq__, __ne__ = object.__eq__, object.__ne__
    __hash__ = object.__hash__


def test_equal_programs_are_one_finalist_and_never_beat_each_other(measurer: Measurer) -> None:
    default, same = Named(4), Named(4)
    found = measurer.playoff([same, 2], PlayoffPlan(default, places=2))
    times = {id(f.config): f.times for f in found.finalists}
    assert times[id(default)] == times[id(same)]
    only = measurer.playoff([same], PlayoffPlan(default, places=1))
    assert only.verdict().outcome is Outcome.TIE
    assert only.verdict().gain == 0.0


def test_another_task_is_refused(measurer: Measurer) -> None:
    with pytest.raises(UsageError, match="test/matmul"):
        measurer.measure(MatmulTask().inputs(4))


def test_outside_of_with(task: MatmulTask) -> None:
    m = Measurer(task, OPTION)
    with pytest.raises(UsageError, match="inside `with"):
        m.measure(task.inputs(4))
    with pytest.raises(UsageError, match="inside `with"):
        m.playoff([4], PlayoffPlan())


def test_builder_killed_in_the_middle_costs_no_trial(task: MatmulTask) -> None:
    option = measure_option(LocalBuilder(n_parallel=1, timeout=20), LocalRunner(timeout=2))
    with Measurer(task, option) as m:
        assert error_kinds(list(m.measure(task.inputs(4)))) == [None]
        pid = m.equipment.builds.workers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        timer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
        timer.start()
        results = list(m.measure(task.inputs(8, 16)))
        timer.join()
        assert error_kinds(results) == [None, None]


def test_runner_killed_from_outside_costs_no_trial() -> None:
    """Between the samples of a candidate and its check."""
    killed: list[int] = []

    def reference(a: Any, b: Any) -> Any:
        pid = m.equipment.runs.worker.pid
        if not killed and pid is not None:
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return product(a, b)

    task = MatmulTask(reference=reference)
    with Measurer(task, OPTION) as m:
        (result,) = m.measure(task.inputs(8))
    assert killed
    assert result.error is None
    assert result.max_error is not None


def test_runner_killed_in_the_playoff_costs_no_finalist(task: MatmulTask) -> None:
    with Measurer(task, OPTION) as m:
        runs = m.equipment.runs
        killed: list[int] = []
        sample = runs.sample

        def sample_of_a_dead_one(*args: Any, **options: Any) -> Any:
            pid = runs.worker.pid
            if not killed and pid is not None:
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            return sample(*args, **options)

        runs.sample = sample_of_a_dead_one  # type: ignore[method-assign]
        played = m.playoff([8, 16], PlayoffPlan())
    assert killed
    assert [f.error for f in played.finalists] == [None, None]
    assert min(len(f.times) for f in played.finalists) >= CHOOSING[0]


def test_stopped_builder_is_killed_at_its_limit_and_costs_no_trial(task: MatmulTask) -> None:
    option = measure_option(LocalBuilder(n_parallel=1, timeout=2), LocalRunner(timeout=2))
    with Measurer(task, option) as m:
        assert error_kinds(list(m.measure(task.inputs(4)))) == [None]
        pid = m.equipment.builds.workers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        results = list(m.measure(task.inputs(8, 16)))
        assert error_kinds(results) == [None, None]
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_compiler_errors_are_typed(task: MatmulTask, measurer: Measurer) -> None:
    found = measurer.equipment.instantiate(8)
    broken = Candidate(found.dag, [["split", 99]], found.arg_ids, "main", "broken trace")
    missing = Candidate(found.dag, found.trace, (0, 1), "main", "an argument is missing")
    named = Candidate(found.dag, found.trace, found.arg_ids, "not a name", "bad name")
    jobs = [measurer.equipment.builds.add(c) for c in (broken, missing, named)]
    measurer.equipment.wait_for(jobs)
    kinds = [getattr(j.outcome, "kind", None) for j in jobs]
    assert kinds == [ErrorKind.INSTANTIATION, ErrorKind.COMPILE, ErrorKind.COMPILE]
    assert "not a name" in jobs[2].outcome.text  # type: ignore[union-attr]


def test_numpy_reference_is_used() -> None:
    task = MatmulTask(reference=product)
    said: list[str] = []
    with Measurer(task, OPTION, said.append) as m:
        (result,) = m.measure(task.inputs(8))
        assert result.error is None
        assert result.max_error is not None
        assert 0 < result.max_error < 1e-4
        assert m.timing["built"] == 1  # no naive schedule
    assert said == []


def test_a_reference_that_disagrees_is_a_wrong_answer() -> None:
    task = MatmulTask(reference=lambda a, b: product(a, b) + 1)
    with Measurer(task, OPTION) as m:
        (result,) = m.measure(task.inputs(8))
    assert result.error is not None
    assert result.error.kind == ErrorKind.WRONG_ANSWER
    assert result.max_error == pytest.approx(1.0, rel=1e-3)
    assert result.times == ()
    assert "1024 of 1024 elements are wrong" in result.error.text


def artifact_of(measurer: Measurer, config: Any) -> tuple[Candidate, Artifact]:
    build = measurer.equipment.builds.add(measurer.equipment.instantiate(config))
    measurer.equipment.wait_for([build])
    assert isinstance(build.outcome, Artifact)
    return build.candidate, build.outcome


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (lambda a, b: sys.exit(5), "it raised SystemExit: 5"),
        (lambda a, b: 1 / 0, "ZeroDivisionError"),
        (lambda a, b: [a, b], "2 arrays for 1 outputs"),
        (lambda a, b: a[:3], "has shape"),
    ],
)
def test_a_broken_reference_is_said_and_replaced(
    task: MatmulTask, measurer: Measurer, reference: Any, words: str
) -> None:
    candidate, built = artifact_of(measurer, 8)
    said: list[str] = []
    broken = MatmulTask(reference=reference)
    references = References(broken, measurer.equipment.builds, measurer.equipment.runs, said.append)
    answer = references.get(candidate, built)
    assert answer is not None
    a, b = measurer.equipment.runs.input_arrays(arguments(built))
    np.testing.assert_allclose(
        np.frombuffer(answer.sets[0], "float32").reshape(32, 32), product(a, b), atol=1e-4
    )
    assert len(said) == 1
    assert words in said[0]


def never(*inputs: Any) -> Any:
    while True:
        time.sleep(0.01)


def test_a_reference_that_never_returns_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    short = lambda seconds, *call: limited(0.1, *call)  # noqa: E731
    monkeypatch.setattr("loopwright.measure.reference.limited", short)
    task = MatmulTask(reference=never)
    said: list[str] = []
    with Measurer(task, OPTION, said.append) as m:
        (result,) = m.measure(task.inputs(8))
    assert result.usable
    assert result.max_error is not None
    assert len(said) == 1
    assert "it took longer than 0.1 s); comparing with the naive schedule" in said[0]


def test_inputs_that_are_never_made_cost_their_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopwright.measure.reference.PREPARE_S", 0.1)
    task = MatmulTask(make_inputs=never)
    with Measurer(task, OPTION) as m:
        results = list(m.measure(task.inputs(8, 4)))
    assert error_kinds(results) == [ErrorKind.RUN_ERROR] * 2
    assert results[0].error is not None
    assert results[0].error.text == "make_inputs of test/matmul took longer than 0.1 s"


def test_a_template_that_never_returns_costs_one_trial() -> None:
    class Endless(MatmulTask):
        def instantiate(self, config: int) -> Any:
            return never() if config == 3 else super().instantiate(config)

    task = Endless()
    builder = LocalBuilder(n_parallel=1, timeout=1.0)
    with Measurer(task, replace(OPTION, builder=builder)) as m:
        results = list(m.measure(task.inputs(8, 3, 4)))
    assert error_kinds(results) == [None, ErrorKind.INSTANTIATION, None]


def test_without_any_reference_that_is_said_once(task: MatmulTask, measurer: Measurer) -> None:
    candidate, built = artifact_of(measurer, 8)
    lost = replace(candidate, arg_ids=(0, 1))  # the naive schedule cannot be built
    said: list[str] = []
    references = References(task, measurer.equipment.builds, measurer.equipment.runs, said.append)
    assert [references.get(lost, built), references.get(lost, built)] == [None, None]
    assert len(said) == 1
    assert "cannot be checked" in said[0]


def test_inputs_of_the_template_are_used() -> None:
    task = MatmulTask(
        make_inputs=lambda: [np.ones((32, 32)), np.full((32, 32), 2.0)],
        reference=lambda a, b: np.full(a.shape, 64.0),
    )
    with Measurer(task, OPTION) as m:
        (result,) = m.measure(task.inputs(8))
    assert result.error is None
    assert result.max_error == 0.0


def test_inputs_that_do_not_fit_are_refused() -> None:
    task = MatmulTask(make_inputs=lambda: [np.ones((32, 1))])
    with Measurer(task, OPTION) as m, pytest.raises(UsageError, match="make_inputs of test/matmul"):
        list(m.measure(task.inputs(8)))


def test_check_can_be_switched_off() -> None:
    task = MatmulTask(reference=lambda a, b: product(a, b) + 1)
    with Measurer(task, measure_option(OPTION.builder, LocalRunner(check=False))) as m:
        (result,) = m.measure(task.inputs(8))
    assert result.usable
    assert result.max_error is None


def test_cooldown_rests_between_candidates(task: MatmulTask) -> None:
    runner = LocalRunner(timeout=2, cooldown_interval=0.05)
    with Measurer(task, measure_option(OPTION.builder, runner)) as m:
        list(m.measure(task.inputs(4, 8, 16)))
        assert m.timing["cooldown"] >= 0.1


def test_a_batch_of_faults_costs_one_trial_each() -> None:
    texts = [
        kernels.GOOD,
        kernels.SEGFAULT,
        kernels.EXIT,
        kernels.HUNGRY,
        kernels.HANG,
        kernels.RETURNS_7,
        kernels.OVERRUNS,
        kernels.PRINTS,
        kernels.GOOD,
    ]
    task = MatmulTask(reference=lambda a: a + np.float32(1))
    option = measure_option(LocalBuilder(n_parallel=1), LocalRunner(timeout=0.5, racing=False))
    m = Measurer(task, option)
    Canned(m, texts)
    with m:
        results = list(m.measure(task.inputs(*range(len(texts)))))
    assert error_kinds(results) == [
        None,
        ErrorKind.RUN_CRASH,
        ErrorKind.RUN_CRASH,
        ErrorKind.MEMORY,
        ErrorKind.RUN_TIMEOUT,
        ErrorKind.RUN_ERROR,
        ErrorKind.WRONG_ANSWER,
        None,
        None,
    ]
    assert all(r.times == () for r in results if r.error)
    assert m.timing["failed"] == 6


def test_a_wrong_winner_does_not_become_the_incumbent() -> None:
    """The wrong kernel is much faster; the right one after it must not be raced against it."""
    task = MatmulTask(reference=lambda a: a + np.float32(1))
    option = measure_option(LocalBuilder(n_parallel=1), LocalRunner(timeout=2))
    m = Measurer(task, option)
    Canned(m, [kernels.SKIPS_LAST, kernels.sleepy(3000)])
    with m:
        wrong, right = m.measure(task.inputs(0, 1))
    assert wrong.error is not None
    assert wrong.error.kind == ErrorKind.WRONG_ANSWER
    assert right.usable
    assert not right.dropped
    assert right.max_error == 0.0


def test_playoff_goes_on_after_a_crash() -> None:
    task = MatmulTask(reference=lambda a: a + np.float32(1))
    said: list[str] = []
    option = measure_option(LocalBuilder(n_parallel=1), LocalRunner(timeout=2))
    m = Measurer(task, option, said.append)
    Canned(
        m,
        [
            kernels.GOOD,
            kernels.SEGFAULT,
            kernels.SKIPS_LAST,
            kernels.sleepy(2000),
            kernels.sleepy(4000),
        ],
    )
    with m:
        found = m.playoff([1, 2, 3, 4], PlayoffPlan(0, places=2))
    # Those that crash or are wrong give their places to the next ones.
    assert [f.config for f in found.finalists] == [0, 3, 4, 1, 2]
    kinds = [None if f.error is None else f.error.kind for f in found.finalists]
    assert kinds == [None, None, None, ErrorKind.RUN_CRASH, ErrorKind.WRONG_ANSWER]
    assert [f.checked for f in found.finalists[:3]] == [Checked.YES] * 3
    crash, wrong = (text for text in said if text.startswith("playoff"))
    assert "SIGSEGV" in crash
    assert "WRONG_ANSWER" in wrong


def test_a_winner_that_fails_while_it_is_judged_is_out() -> None:
    task = MatmulTask(reference=lambda a: a + np.float32(1))
    m = Measurer(task, measure_option(LocalBuilder(n_parallel=1), LocalRunner(timeout=2)))
    Canned(m, [kernels.sleepy(3000), kernels.GOOD, kernels.sleepy(1000)])
    with m:
        sample = m.equipment.runs.sample

        def fails(first: float, **how: Any) -> Any:
            if how["slot"] == 2 and how["window_s"] == WINDOW_S:
                return MeasureError(ErrorKind.RUN_CRASH, "late")
            return sample(first, **how)

        m.equipment.runs.sample = fails  # type: ignore[method-assign]
        found = m.playoff([1, 2], PlayoffPlan(0))
    assert found.winner is not None
    assert found.winner.config == 2
    assert found.finalists[-1].error == MeasureError(ErrorKind.RUN_CRASH, "late")
    assert found.verdict().is_gain


def test_measuring_again_races_and_checks_nobody() -> None:
    task = MatmulTask(reference=lambda a: a + np.float32(1))
    m = Measurer(task, measure_option(LocalBuilder(n_parallel=1), LocalRunner(timeout=2)))
    canned = Canned(m, [kernels.sleepy(1000), kernels.sleepy(60000), kernels.SEGFAULT])
    with m:
        slow, slower, crash = m.measure_again([0, 1, 2], windows=2)
        built = canned.built
        (again,) = m.measure_again([0], windows=2)
    assert [len(r.times) for r in (slow, slower, again)] == [2, 2, 2]
    assert max(slower.times) > min(slow.times)
    assert crash.error is not None
    assert crash.error.kind == ErrorKind.RUN_CRASH
    assert canned.built == built == 3  # the first one is kept
    assert m.timing["checked"] == 0


def test_close_leaves_no_process() -> None:
    task = MatmulTask()
    with Measurer(task, OPTION) as m:
        list(m.measure(task.inputs(4)))
        pids = [w.pid for w in [*m.equipment.builds.workers, m.equipment.runs.worker]]
    for pid in pids:
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_overlap_when_there_are_cores_enough() -> None:
    task = MatmulTask()
    with Measurer(task, OPTION, cores=8) as m:
        assert m.overlap
        results = list(m.measure(task.inputs(*[4, 0, 8, 16, 2, 32] * 3)))
    kinds = [None, ErrorKind.INSTANTIATION, None, None, None, None] * 3
    assert error_kinds(results) == kinds
    assert Measurer(task, OPTION, cores=2).overlap  # one builder, a kernel of one thread
    assert not Measurer(task, measure_option(LocalBuilder(n_parallel=2)), cores=2).overlap


def test_hundreds_of_trials_leave_no_growth(task: MatmulTask, measurer: Measurer) -> None:
    list(measurer.measure(task.inputs(4)))
    runner = measurer.equipment.runs.worker
    before = runner.rss
    for _ in range(15):
        list(measurer.measure(task.inputs(*[4, 8, 16, 2] * 5), incumbent=1e-9))
    assert runner.launched == 1
    assert runner.rss - before < 8 << 20
