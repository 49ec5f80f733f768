"""Points that a GPU has no room for: which are pruned, by every tuner, and what is counted."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright.cost.analytical import MARGINS, Excess
from loopwright.cost.gpu.device import device_of
from loopwright.cost.gpu.kernel import kernels_of
from loopwright.errors import LowerError
from loopwright.lowering.gpu_limits import limits_of, verify_gpu_limits
from loopwright.tuner import GATuner, GridSearchTuner, RandomTuner, XGBTuner
from loopwright.tuner.candidate_checks import Pruning
from tests.unit.cost import gpu_workloads as workloads

TUNERS = (RandomTuner, GridSearchTuner, GATuner, XGBTuner)


@pytest.fixture(scope="module")
def task():
    return workloads.task_of("matmul")


def widely_over(task, index) -> bool:
    """Whether a point exceeds a limit widely, from its own schedule."""
    device = device_of(task.target)
    (k,) = kernels_of(task.instantiate(index)[0].state, device)
    return (
        k.threads > 1.25 * 1024
        or k.shared_bytes > 1.25 * 232448
        or k.registers > 2 * k.register_cap
    )


def test_what_is_pruned_exceeds_a_limit_widely(task):
    indices = np.random.default_rng(0).integers(0, task.config_space.range_length, 80).tolist()
    pruning = Pruning(task)
    expected = [not widely_over(task, index) for index in indices]
    assert pruning(indices).tolist() == expected
    assert 0 < sum(expected) < 80
    assert pruning.pruned == 80 - sum(expected)
    assert pruning.looked_at == 80


def test_a_point_counts_once(task):
    pruning = Pruning(task)
    for _ in range(3):
        pruning(list(range(50)))
    assert pruning.looked_at == 50
    assert pruning.note == "" if not pruning.pruned else "of 50 points" in pruning.note


def test_the_exact_check_refuses_what_is_pruned_for_threads_or_memory():
    small = "cuda -max-shared-memory-per-block=16384 -max-threads-per-block=128"
    task = workloads.task_of("matmul", small)
    excess, space = Excess(task), task.config_space
    limits = limits_of(task.target.options)
    refused = 0
    for digits in workloads.digits_of(task, 200, 4):
        over = dict(zip(MARGINS, excess.widely(digits[None])[0], strict=True))
        if not (over["threads of a block"] or over["shared memory"]) or refused == 5:
            continue
        s, args = task.instantiate(space.knob2point(digits.tolist()))
        with pytest.raises(LowerError, match="gpu limits"):
            verify_gpu_limits(lw.lower(s, args), limits)
        refused += 1
    assert refused == 5


@pytest.mark.parametrize("kind", TUNERS)
def test_no_tuner_proposes_them(kind, task):
    tuner = kind(task, seed=1)
    for _ in range(2):
        configs = tuner.ask(12)
        assert not any(widely_over(task, c.index) for c in configs)
        tuner.tell([(c, lw.MeasureResult(times=(1e-3 * (1 + c.index % 7),))) for c in configs])
    if kind is not GridSearchTuner:
        assert tuner.notes[0].startswith(f"pruned:  {tuner.pruning.pruned} of ")


def test_points_that_fit_are_all_admitted():
    assert Pruning(workloads.task_of("rows"))(list(range(5))).all()


def test_other_targets_have_no_pruning():
    pruning = Pruning(lw.create_task("matmul", (64, 64, 64), "llvm"))
    assert pruning([0, 1]).tolist() == [True, True]
    assert (pruning.looked_at, pruning.note) == (0, "")
