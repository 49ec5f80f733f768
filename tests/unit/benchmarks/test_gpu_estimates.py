"""Estimates beside what the compiler says: shared memory is known before a build."""

from __future__ import annotations

import pytest

from benchmarks.gpu_estimates import Estimates, estimates_of, figures
from loopwright import ops
from loopwright.task import create_task

pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")


def test_shared_memory_is_what_the_compiler_takes() -> None:
    task = create_task(ops.matmul, args=(256, 256, 256), target="cuda -arch=sm_80")
    found = estimates_of(task, 4, 1)
    assert len(found.seconds) == len(found.kernels) == 4
    assert found.drawn == 4 + found.pruned + found.refused + found.skipped
    row = figures(found)
    assert row["shared_equal"] == 1
    assert row["registers_error"] < 0.6
    assert row["build_s"] > 0


def test_nothing_compiled_gives_a_row_without_figures() -> None:
    row = figures(Estimates(drawn=3, pruned=2, refused=1))
    assert row["pruned"] == pytest.approx(2 / 3)
    assert row["kernels"] == 0
    assert row["registers_correlation"] is row["registers_error"] is row["spills"] is None
