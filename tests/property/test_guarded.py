"""The guarded process notices accesses outside arrays, and goes on after a fault."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fuzzing.guarded import GuardedRunner, ProcessTimedOutError
from loopwright import te
from loopwright.driver import build
from loopwright.errors import RunError
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.schedule import create_schedule


@pytest.fixture(scope="module")
def runner() -> Iterator[GuardedRunner]:
    runner = GuardedRunner()
    yield runner
    runner.close()


def add_one(n: int) -> Artifact:
    """B = A + 1 over n float32, through a copy in the workspace."""
    A = te.placeholder((n,), name="A")
    T = te.compute((n,), lambda i: A[i] + 1, name="T")
    B = te.compute((n,), lambda i: T[n - 1 - i], name="B")
    return build(create_schedule(B), [A, B]).artifact


@pytest.mark.parametrize("side", ["start", "end"])
@pytest.mark.parametrize("n", [1, 7, 1024, 5000])
def test_a_right_function_passes(runner: GuardedRunner, n: int, side: str) -> None:
    a = np.arange(n, dtype="float32")
    got = runner.run(add_one(n), [a, np.zeros(n, "float32")], side)
    np.testing.assert_array_equal(got[0], a)
    np.testing.assert_array_equal(got[1], a[::-1] + 1)


def test_arrays_without_dimensions(runner: GuardedRunner) -> None:
    A = te.placeholder((), "int64", name="A")
    B = te.compute((), lambda: A[()] * 2, name="B")
    artifact = build(create_schedule(B), [A, B]).artifact
    got = runner.run(artifact, [np.array(21), np.array(0)])
    assert got[1].shape == ()
    assert got[1] == 42


def test_an_access_past_the_end_is_told_and_survived(runner: GuardedRunner) -> None:
    """The function believes in 16 elements, the arrays have 8."""
    short = [np.zeros(8, "float32"), np.zeros(8, "float32")]
    for _ in range(2):
        with pytest.raises(RunError, match="killed its process"):
            runner.run(add_one(16), short, "end")
        with pytest.raises(RunError, match="wrote outside B"):
            runner.run(add_one(16), short, "start")
    test_a_right_function_passes(runner, 7, "end")


def test_a_function_that_does_not_end_is_ended() -> None:
    """A sum of 2^60 numbers in order, of which no compiler knows the result."""
    a, x = np.ones(1, "float32"), te.placeholder((1,), name="A")
    axes = [te.reduce_axis((0, 1 << 20)) for _ in range(3)]
    b = te.compute((1,), lambda i: te.sum(x[i] + axes[0] + axes[1] * axes[2], axis=axes), name="B")
    runner = GuardedRunner(seconds=0.5)
    with pytest.raises(ProcessTimedOutError, match=r"did not end in 0.5 s"):
        runner.run(build(create_schedule(b), [x, b]).artifact, [a, np.zeros(1, "float32")])
    test_a_right_function_passes(runner, 7, "end")
    runner.close()
