"""Automatic spaces of random programs: every point gives what NumPy gives."""

from __future__ import annotations

from contextlib import closing

import pytest

import loopwright as lw
from fuzzing import fuzz
from fuzzing.differential import Checker
from loopwright import te

#: A device of few threads and little memory, whose kernels the interpreter runs.
DEVICE = "opencl -max-threads-per-block=128 -max-shared-memory-per-block=8192"

#: Half a second and more for each point, on a slow CPU: longer than a test may take otherwise.
BY_NIGHT = (pytest.mark.slow, pytest.mark.timeout(3600))


@pytest.mark.parametrize(("first", "count"), [(0, 8), pytest.param(10_000, 1500, marks=BY_NIGHT)])
def test_points_of_structures(first: int, count: int) -> None:
    with closing(Checker()) as checker:
        run = fuzz.Fuzz(checker=checker, shrink_seconds=0)
        run.run_all(range(first, first + count), fuzz.SPACES)
    assert not run.failures, run.summary()
    # Programs of several stages and reductions, which rules know: hardly any has nothing to do.
    assert run.ends[fuzz.SPACES, "ran"] == count
    assert run.applied["annotate"] > count // 2
    assert min(run.applied["cache_write"], run.applied["cache_read"]) > 0, run.summary()


@pytest.mark.parametrize(("first", "count"), [(0, 3), pytest.param(10_000, 400, marks=BY_NIGHT)])
def test_points_of_structures_for_devices(first: int, count: int) -> None:
    """All bound and within the limits before anything is built, and right without races."""
    kernels = 0
    with closing(Checker()) as checker:
        for seed in range(first, first + count):
            (case,), targets, schedule = fuzz.examples(seed, fuzz.SPACES, [DEVICE])
            assert targets == [DEVICE]
            assert checker.check(case, []) == "ran"
            kernels += schedule.applied["bind"] + schedule.applied["env_threads"] > 0
    assert kernels == count


def test_a_point_that_is_not_bound_is_a_failure(fresh_checker: Checker) -> None:
    @lw.space_rule("test/unbound", priority=50, stops=True, targets=("gpu",))
    def unbound(outputs: list[te.Tensor], args: list[te.Tensor]) -> lw.space.Structure:
        return lw.space.Sketch(outputs, args).finished("unbound")

    run = fuzz.Fuzz([DEVICE], shrink_seconds=0, checker=fresh_checker)
    try:
        assert not run.run(0, fuzz.SPACES)
    finally:
        lw.space.remove_rule("test/unbound")
    assert "runs unbound" in run.failures[0]
