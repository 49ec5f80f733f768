"""What processes bring where a template runs for each candidate: seconds in one, and in all CPUs.

    python -m benchmarks.side_by_side [--counts 250 1000 4000]

Both ways take turns on the same candidates, which are new each time; the rows are compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks.scoring import branching
from loopwright.cost.features.extract import StateFeatures
from loopwright.cost.symbolic.population import CandidateRows
from loopwright.env import usable_cpus
from loopwright.task import create_task
from loopwright.task.sampling import Digits

#: Turns that both ways take.
_TURNS = 3


def main() -> int:
    """Print a line for the start of the processes, and one for each number of candidates."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.side_by_side",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--counts", type=int, nargs="+", default=[250, 1000, 4000])
    counts: list[int] = parser.parse_args().counts
    task = create_task(branching, args=(512, 512, 512, True), target="llvm -num-threads=1")
    described = StateFeatures(task.target, "itervar")
    logged = tuple(column.logged for column in described.columns)
    made = CandidateRows(task, described.values, logged)
    processes = len(usable_cpus())
    rng = np.random.default_rng(0)

    def fresh(count: int) -> Digits:
        return np.stack([rng.integers(0, n, count) for n in task.config_space.dims], axis=1)

    made.in_one_process(fresh(100))  # what is imported, or learned, when it is first needed
    started, _ = _timed(lambda d: made.side_by_side(d, processes), fresh(8))
    print(f"start of {processes} processes: {started:.2f} s")
    for count in counts:
        one, many = [], []
        for _ in range(_TURNS):
            digits = fresh(count)
            seconds, alone = _timed(made.in_one_process, digits)
            one.append(seconds)
            seconds, shared = _timed(lambda d: made.side_by_side(d, processes), digits)
            many.append(seconds)
            assert np.array_equal(alone, shared, equal_nan=True), "the same rows"
        ratios = [a / b for a, b in zip(one, many, strict=True)]
        print(
            f"{count} candidates: {statistics.median(one):.2f} s in one process, "
            f"{statistics.median(many):.2f} s side by side: {statistics.median(ratios):.2f} times "
            f"as fast ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )
    return 0


def _timed(rows: Callable[[Digits], np.ndarray], digits: Digits) -> tuple[float, np.ndarray]:
    begin = time.perf_counter()
    found = rows(digits)
    return time.perf_counter() - begin, found


if __name__ == "__main__":
    raise SystemExit(main())
