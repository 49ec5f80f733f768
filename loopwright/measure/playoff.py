"""The playoff: finalists measured again in turns, so that a drift of the machine hits all alike."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loopwright.errors import UsageError
from loopwright.measure.building import BuildJob, Built
from loopwright.measure.options import PLAYOFF_WINDOW_S
from loopwright.measure.result import MeasureError
from loopwright.measure.running import Race

if TYPE_CHECKING:
    from loopwright.measure.measurer import Measurer


class Finalist:
    """One configuration in the playoff."""

    def __init__(self, number: int, config: Any) -> None:
        # Slot 0 belongs to ordinary trials: filling it empties the others.
        self.slot, self.config = number + 1, config
        self.built: Built | None = None
        self.race: Race | None = None
        self.launched = -1  # the runner process that holds its code
        self.checked = False
        self.times: list[float] = []

    @property
    def alive(self) -> bool:
        """False once it has failed."""
        return self.built is not None


def playoff(m: Measurer, configs: Sequence[Any], rounds: int) -> list[tuple[Any, list[float]]]:
    """See `Measurer.playoff`."""
    if rounds < 1:
        raise UsageError(f"playoff: rounds must be at least 1; it is {rounds}")
    finalists = [Finalist(i, config) for i, config in enumerate(configs)]
    _build(m, finalists)
    m.take_device()
    for f in finalists:
        _check(m, f)
    for turn in range(rounds):
        # Each round begins with another one: nobody always follows the same neighbour.
        start = turn % max(1, len(finalists))
        for f in finalists[start:] + finalists[:start]:
            _sample(m, f)
    ranked = sorted(finalists, key=lambda f: statistics.median(f.times or [float("inf")]))
    return [(f.config, f.times) for f in ranked]


def _build(m: Measurer, finalists: Sequence[Finalist]) -> None:
    jobs: dict[str, BuildJob] = {}
    waiting: list[tuple[Finalist, BuildJob]] = []
    for f in finalists:
        found = m.instantiate(f.config)
        if isinstance(found, MeasureError):
            _fail(m, f, found)
            continue
        if found.key not in jobs:
            jobs[found.key] = m.builds.add(found)
        waiting.append((f, jobs[found.key]))
    m.wait_for(list(jobs.values()))
    for f, job in waiting:
        if isinstance(job.outcome, Built):
            f.built = job.outcome
        else:
            assert job.outcome is not None
            _fail(m, f, job.outcome)


def _load(m: Measurer, f: Finalist) -> bool:
    """Have the present runner process hold its code; False when it fails."""
    if not f.alive:
        return False
    m.runs.worker.start()
    if f.launched == m.runs.worker.launched:
        return True
    assert f.built is not None
    race = m.runs.load_and_race(f.built, None, slot=f.slot, race=False)
    if isinstance(race, MeasureError):
        _fail(m, f, race)
        return False
    f.race, f.launched = race, m.runs.worker.launched
    return True


def _check(m: Measurer, f: Finalist) -> None:
    if not m.option.runner.check or not _load(m, f):
        return
    assert f.built is not None
    checked = m.check(f.built, slot=f.slot)
    if checked.error is not None:
        _fail(m, f, checked.error)


def _sample(m: Measurer, f: Finalist) -> None:
    with m.clock.phase("run"):
        if not _load(m, f):
            return
        assert f.race is not None
        samples = m.runs.sample(f.race, slot=f.slot, windows=1, window_s=PLAYOFF_WINDOW_S)
    if isinstance(samples, MeasureError):
        _fail(m, f, samples)
        return
    f.times.append(statistics.median(samples.times))


def _fail(m: Measurer, f: Finalist, error: MeasureError) -> None:
    f.built, f.times = None, []
    m.announce(f"playoff: a finalist is out ({error})")
