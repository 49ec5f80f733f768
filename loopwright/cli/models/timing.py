"""The time of a run of a whole model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopwright.runtime.executors import Executor

#: A sample holds so many seconds of runs, at least one.
_SAMPLE_S = 0.05


def sampler(run: Callable[[], object]) -> Callable[[], float]:
    """A function that takes a sample: seconds of a run, the mean of about 50 ms of runs.

    A run that is not timed comes before each sample: what something else left in caches, and its
    threads that still wait for work, shall not count.
    """
    run()
    once = _seconds(run, 1)
    number = max(1, round(_SAMPLE_S / max(once, 1e-9)))

    def sample() -> float:
        run()
        return _seconds(run, number) / number

    return sample


def waited(executor: Executor) -> Callable[[], object]:
    """A run that has ended when it returns, as those of devices have not."""

    def run() -> None:
        executor.run()
        executor.sync()

    return run


def _seconds(run: Callable[[], object], number: int) -> float:
    begin = time.perf_counter()
    for _ in range(number):
        run()
    return time.perf_counter() - begin
