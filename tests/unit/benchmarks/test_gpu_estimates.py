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
    assert row["registers_error"] < 0.4
    assert row["build_s"] > 0


def test_registers_of_kernels_without_reductions_follow_what_a_thread_loads() -> None:
    task = create_task(ops.elementwise, args=(256, 512), target="cuda -arch=sm_90")
    row = figures(estimates_of(task, 10, 0))
    low, high = row["registers_range"]
    assert high > 1.5 * low
    assert row["registers_correlation"] > 0.5
    assert row["registers_error"] < 0.25


def test_nothing_compiled_gives_a_row_without_figures() -> None:
    row = figures(Estimates(drawn=3, pruned=2, refused=1))
    assert row["pruned"] == pytest.approx(2 / 3)
    assert row["kernels"] == 0
    absent = ("registers_range", "registers_correlation", "registers_error", "spills")
    assert [row[name] for name in absent] == [None] * 4
