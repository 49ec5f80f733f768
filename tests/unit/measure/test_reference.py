"""What results are compared with, and on which inputs: of the template, or the naive schedule."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright.errors import UsageError
from loopwright.measure import (
    ErrorKind,
    MeasureInput,
    Measurer,
)
from loopwright.measure.candidate import Candidate
from loopwright.measure.comparison import Closeness, compare, tolerance
from loopwright.measure.inputs import arguments
from loopwright.measure.reference import References
from loopwright.runtime import Artifact
from loopwright.time_limit import limited
from tests.unit.measure.programs import OPTION, MatmulTask, error_kinds, never, product


def test_numpy_reference_is_used(measurer: Measurer) -> None:
    task = MatmulTask(reference=product)
    said: list[str] = []
    with Measurer(task, OPTION, said.append, beside=measurer) as m:
        (result,) = m.measure(task.inputs(8))
        assert result.error is None
        assert result.max_error is not None
        assert 0 < result.max_error < 1e-4
        assert m.timing["built"] == 1  # no naive schedule
    assert said == []


def test_a_reference_that_disagrees_is_a_wrong_answer(measurer: Measurer) -> None:
    task = MatmulTask(reference=lambda a, b: product(a, b) + 1)
    with Measurer(task, OPTION, beside=measurer) as m:
        (result,) = m.measure(task.inputs(8))
    assert result.error is not None
    assert result.error.kind == ErrorKind.WRONG_ANSWER
    assert result.max_error == pytest.approx(1.0, rel=1e-3)
    assert result.times == ()
    assert "1024 of 1024 elements are wrong" in result.error.text


@pytest.mark.parametrize("off", [0.0, 1e-2])
def test_rounding_of_a_sum_that_goes_into_a_function_is_no_wrong_answer(
    off: float, measurer: Measurer
) -> None:
    """The sum is large beside the result, so that rounding it is more than rounding the result."""
    n, terms = 24, 4096
    A, B = lw.te.placeholder((n, terms), name="A"), lw.te.placeholder((terms, n), name="B")
    k = lw.te.reduce_axis((0, terms), name="k")
    S = lw.te.compute((n, n), lambda i, j: lw.te.sum(A[i, k] * B[k, j], axis=k), name="S")
    Y = lw.te.compute((n, n), lambda i, j: lw.te.tanh(S[i, j]), name="Y")
    task = lw.create_task([A, B, Y], target="llvm -num-threads=1")
    config = task.config(task.config_space.default_index)
    with Measurer(task, OPTION, beside=measurer) as m:
        candidate, artifact = artifact_of(m, config)
        answers = m.session.references.get(candidate, artifact)
        assert answers is not None
        (rounding,) = answers.rounding
        one = np.frombuffer(answers.sets[0], np.float32)
        # What a schedule may do with float32, and what a term that is forgotten does.
        close = Closeness(terms, rounding=answers.rounding)
        assert (compare("Y", one + np.float32(off), one, close).problem is None) == (off == 0)
        assert tolerance("float32", terms) < rounding < 1e-3
        (result,) = m.measure([MeasureInput(task, config, 0)])
    assert result.error is None


def test_tasks_that_share_a_runner_are_compared_with_their_own_references(
    measurer: Measurer,
) -> None:
    """They compute the same; what the runner was sent for one says nothing of the other."""
    kinds = []
    for wrong_by in (0, 1, 0):
        task = MatmulTask(reference=lambda a, b, off=wrong_by: product(a, b) + off)
        with Measurer(task, OPTION, beside=measurer) as m:
            kinds += error_kinds(list(m.measure(task.inputs(8))))
    assert kinds == [None, ErrorKind.WRONG_ANSWER, None]


def artifact_of(measurer: Measurer, config: Any) -> tuple[Candidate, Artifact]:
    build = measurer.session.builds.add(measurer.session.instantiate(config))
    measurer.session.wait_for([build])
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
    references = References(broken, measurer.session.builds, measurer.session.runner, said.append)
    answer = references.get(candidate, built)
    assert answer is not None
    a, b = measurer.session.runner.input_arrays(arguments(built))
    np.testing.assert_allclose(
        np.frombuffer(answer.sets[0], "float32").reshape(32, 32), product(a, b), atol=1e-4
    )
    assert len(said) == 1
    assert words in said[0]


def test_a_reference_that_never_returns_is_replaced(
    measurer: Measurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = lambda seconds, *call: limited(0.1, *call)  # noqa: E731
    monkeypatch.setattr("loopwright.measure.reference.limited", short)
    task = MatmulTask(reference=never)
    said: list[str] = []
    with Measurer(task, OPTION, said.append, beside=measurer) as m:
        (result,) = m.measure(task.inputs(8))
    assert result.usable
    assert result.max_error is not None
    assert len(said) == 1
    assert "it took longer than 0.1 s); comparing with the naive schedule" in said[0]


def test_inputs_that_are_never_made_cost_their_trials(
    measurer: Measurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopwright.measure.candidate.PREPARE_S", 0.1)
    task = MatmulTask(make_inputs=never)
    with Measurer(task, OPTION, beside=measurer) as m:
        results = list(m.measure(task.inputs(8, 4)))
    assert error_kinds(results) == [ErrorKind.RUN_ERROR] * 2
    assert results[0].error is not None
    assert results[0].error.text == "make_inputs of test/matmul took longer than 0.1 s"


def test_without_any_reference_that_is_said_once(task: MatmulTask, measurer: Measurer) -> None:
    candidate, built = artifact_of(measurer, 8)
    lost = replace(candidate, arg_ids=(0, 1))  # the naive schedule cannot be built
    said: list[str] = []
    references = References(task, measurer.session.builds, measurer.session.runner, said.append)
    assert [references.get(lost, built), references.get(lost, built)] == [None, None]
    assert len(said) == 1
    assert "cannot be checked" in said[0]


def test_inputs_of_the_template_are_used(measurer: Measurer) -> None:
    task = MatmulTask(
        make_inputs=lambda: [np.ones((32, 32)), np.full((32, 32), 2.0)],
        reference=lambda a, b: np.full(a.shape, 64.0),
    )
    with Measurer(task, OPTION, beside=measurer) as m:
        (result,) = m.measure(task.inputs(8))
    assert result.error is None
    assert result.max_error == 0.0


def test_inputs_that_do_not_fit_are_refused(measurer: Measurer) -> None:
    task = MatmulTask(make_inputs=lambda: [np.ones((32, 1))])
    with (
        Measurer(task, OPTION, beside=measurer) as m,
        pytest.raises(UsageError, match="make_inputs of test/matmul"),
    ):
        list(m.measure(task.inputs(8)))
