"""What the tests of a runner process do with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.measure.comparison import Closeness
from loopwright.measure.inputs import SETS, DataPlan, input_set
from loopwright.measure.options import LocalRunner
from loopwright.measure.result import MeasureError
from loopwright.measure.runner import Answers, Runner
from loopwright.measure.workers.process import wait_any
from loopwright.measure.workers.protocol import CheckReply, RaceReply
from loopwright.runtime import Arg
from tests.unit.measure import kernels

ARG = Arg("A", (kernels.N,), np.dtype("float32"), False)
INPUTS = [input_set(DataPlan(), [ARG], 0, None, number)[0] for number in SETS]
RIGHT = Answers("r", tuple((a + np.float32(1)).tobytes() for a in INPUTS))  # type: ignore[arg-type]


def race(session: Runner, text: str, incumbent: float | None = None) -> RaceReply | MeasureError:
    return session.load_and_race(kernels.built(text), incumbent)


def sample(session: Runner, found: RaceReply, **options: Any) -> tuple[float, ...]:
    times = session.sample(found.first, **options)
    assert isinstance(times, tuple), times
    return times


def with_options(session: Runner, **options: Any) -> Runner:
    """A session of other options that uses the same process."""
    return Runner(LocalRunner(**options), wait_any, worker=session.worker)


def survives(session: Runner) -> None:
    """The next candidate is measured as if nothing had happened."""
    found = race(session, kernels.GOOD)
    assert isinstance(found, RaceReply), found
    assert session.check(RIGHT, Closeness(1), 1.0) == CheckReply(
        max_error=0.0, rss=session.worker.rss
    )
