"""The time of each step in a run of a model."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from loopwright.executors import DeviceGraphExecutor
from loopwright.graph.random_inputs import random_inputs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loopwright.executors import Model


def seconds_by_step(model: Model, runs: int) -> dict[str, float]:
    """Mean seconds, over ``runs`` runs, of all calls of each kernel or Python function in a run.

    The data are random; one more run comes before and is not timed. On a CPU calls are timed inside
    runs, back to back. On a device each call is waited for, so that the launch overhead of the host
    is included.
    """
    inputs = random_inputs(model.program)
    if model.device_type == "cpu":
        report = model.debug_executor().profile(runs, **inputs)
        return {call.name: call.seconds / report.runs for call in report.rows()}
    executor = model.executor()
    assert isinstance(executor, DeviceGraphExecutor)
    executor.run(**inputs)
    executor.sync()
    names = [step.kernel for step in model.program.steps]
    return _summed(
        (name, seconds / runs)
        for _ in range(runs)
        for name, seconds in zip(names, executor.seconds_of_steps(), strict=True)
    )


def _summed(parts: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for name, seconds in parts:
        found[name] += seconds
    return dict(found)
