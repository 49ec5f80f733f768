"""The scoring section of the benchmarks."""

from __future__ import annotations

from benchmarks.scoring import branching, measured_row
from loopwright.task import create_task


def test_a_row_has_the_rate_of_each_part() -> None:
    task = create_task(branching, args=(16, 16, 16, False), target="llvm")
    row = measured_row(task, True, 1e-6)
    assert row["trees"] > 0
    assert row["bar_per_s"] == 1000
    parts = ("features", "model", "both", "offset", "all")
    assert all(row[f"{name}_per_s"] > 0 for name in parts)
