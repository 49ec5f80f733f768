"""What goes wrong costs one trial, or none: templates, compilers, kernels, killed processes."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loopwright.measure import (
    ErrorKind,
    LocalBuilder,
    LocalRunner,
    Measurer,
)
from loopwright.measure.candidate import Candidate
from tests.unit.measure import kernels
from tests.unit.measure.canned import Canned
from tests.unit.measure.programs import OPTION, MatmulTask, error_kinds, never, product, under


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


def test_builder_killed_in_the_middle_costs_no_trial(task: MatmulTask, measurer: Measurer) -> None:
    with Measurer(task, OPTION, beside=measurer) as m:
        assert error_kinds(list(m.measure(task.inputs(4)))) == [None]
        pid = m.session.builds.workers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        timer = threading.Timer(0.1, os.kill, (pid, signal.SIGKILL))
        timer.start()
        results = list(m.measure(task.inputs(8, 16)))
        timer.join()
        assert error_kinds(results) == [None, None]


def test_runner_killed_from_outside_costs_no_trial(measurer: Measurer) -> None:
    """Between the samples of a candidate and its check."""
    killed: list[int] = []

    def reference(a: Any, b: Any) -> Any:
        pid = m.session.runner.worker.pid
        if not killed and pid is not None:
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return product(a, b)

    task = MatmulTask(reference=reference)
    with Measurer(task, OPTION, beside=measurer) as m:
        (result,) = m.measure(task.inputs(8))
    assert killed
    assert result.error is None
    assert result.max_error is not None


@pytest.mark.slow  # `test_building.py` says it of a pool of builders
def test_stopped_builder_is_killed_at_its_limit_and_costs_no_trial(
    task: MatmulTask, measurer: Measurer
) -> None:
    option = replace(OPTION, builder=LocalBuilder(n_parallel=2, timeout=3))
    with under(option, Measurer(task, OPTION, beside=measurer)) as m:
        assert error_kinds(list(m.measure(task.inputs(4)))) == [None]
        pid = m.session.builds.workers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        results = list(m.measure(task.inputs(8, 16)))
        assert error_kinds(results) == [None, None]
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_compiler_errors_are_typed(task: MatmulTask, measurer: Measurer) -> None:
    found = measurer.session.instantiate(8)
    broken = Candidate(found.dag, [["split", 99]], found.arg_ids, "main")
    missing = Candidate(found.dag, found.trace, (0, 1), "main")
    named = Candidate(found.dag, found.trace, found.arg_ids, "not a name")
    jobs = [measurer.session.builds.add(c) for c in (broken, missing, named)]
    measurer.session.wait_for(jobs)
    kinds = [getattr(j.outcome, "kind", None) for j in jobs]
    assert kinds == [ErrorKind.INSTANTIATION, ErrorKind.COMPILE, ErrorKind.COMPILE]
    assert "not a name" in jobs[2].outcome.text  # type: ignore[union-attr]


def test_a_template_that_never_returns_costs_one_trial(measurer: Measurer) -> None:
    class Endless(MatmulTask):
        def instantiate(self, config: int) -> Any:
            return never() if config == 3 else super().instantiate(config)

    task = Endless()
    with Measurer(task, OPTION, beside=measurer) as m:
        # Of the template alone, not of builds.
        m.session.option = replace(OPTION, builder=LocalBuilder(n_parallel=2, timeout=0.3))
        results = list(m.measure(task.inputs(8, 3, 4)))
    assert error_kinds(results) == [None, ErrorKind.INSTANTIATION, None]


def test_a_batch_of_faults_costs_one_trial_each(measurer: Measurer) -> None:
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
    option = replace(OPTION, runner=LocalRunner(timeout=0.5, racing=False))
    m = under(option, Measurer(task, OPTION, beside=measurer))
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


def test_a_wrong_winner_does_not_become_the_incumbent(measurer: Measurer) -> None:
    """The wrong kernel is much faster; the right one after it must not be raced against it."""
    task = MatmulTask(reference=lambda a: a + np.float32(1))
    m = Measurer(task, OPTION, beside=measurer)
    Canned(m, [kernels.SKIPS_LAST, kernels.sleepy(3000)])
    with m:
        wrong, right = m.measure(task.inputs(0, 1))
    assert wrong.error is not None
    assert wrong.error.kind == ErrorKind.WRONG_ANSWER
    assert right.usable
    assert not right.dropped
    assert right.max_error == 0.0
