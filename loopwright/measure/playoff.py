"""The playoff: finalists measured again in turns, so that a drift of the machine hits all alike."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loopwright.errors import UsageError
from loopwright.measure.building import Build, Same
from loopwright.measure.equipment import Equipment
from loopwright.measure.options import PLAYOFF_WINDOW_S
from loopwright.measure.result import MeasureError
from loopwright.measure.running import wrong_answer

if TYPE_CHECKING:
    from loopwright.runtime import Artifact
    from loopwright.task import ConfigEntity


class Finalist:
    """One configuration in the playoff.

    Attributes:
        slot: where the runner keeps its code. Slot 0 belongs to ordinary trials: filling it empties
            the others.
        config: the configuration.
        build: its code; None until it is queued.
        first: seconds that its first run took.
        launched: number of the runner process that holds its code.
        times: seconds per call, one for each round.
        failed: it is out.
    """

    def __init__(self, number: int, config: ConfigEntity) -> None:
        self.slot, self.config = number + 1, config
        self.build: Build | None = None
        self.first = 0.0
        self.launched = -1
        self.times: list[float] = []
        self.failed = False

    @property
    def artifact(self) -> Artifact:
        """Its compiled program."""
        assert self.build is not None
        assert self.build.outcome is not None
        assert not isinstance(self.build.outcome, MeasureError | Same)
        return self.build.outcome


def playoff(
    equipment: Equipment, configs: Sequence[ConfigEntity], rounds: int
) -> list[tuple[ConfigEntity, list[float]]]:
    """See `Measurer.playoff`."""
    if rounds < 1:
        raise UsageError(f"playoff: rounds must be at least 1; it is {rounds}")
    finalists = [Finalist(i, config) for i, config in enumerate(configs)]
    _build(equipment, finalists)
    equipment.take_device()
    for f in finalists:
        _check(equipment, f)
    for turn in range(rounds):
        # Each round begins with another one: nobody always follows the same neighbour.
        start = turn % max(1, len(finalists))
        for f in finalists[start:] + finalists[:start]:
            _sample(equipment, f)
    ranked = sorted(finalists, key=lambda f: statistics.median(f.times or [float("inf")]))
    return [(f.config, f.times) for f in ranked]


def _build(equipment: Equipment, finalists: Sequence[Finalist]) -> None:
    """Build all of them; equal candidates share one build."""
    builds: dict[str, Build] = {}
    for f in finalists:
        candidate = equipment.instantiate(f.config)
        if isinstance(candidate, MeasureError):
            _fail(equipment, f, candidate)
            continue
        if candidate.key not in builds:
            builds[candidate.key] = equipment.builds.add(candidate)
        f.build = builds[candidate.key]
    equipment.wait_for(list(builds.values()))
    for f in finalists:
        if f.build is not None and isinstance(f.build.outcome, MeasureError):
            _fail(equipment, f, f.build.outcome)


def _load(equipment: Equipment, f: Finalist) -> bool:
    """Have the present runner process hold its code; False when it fails."""
    if f.failed:
        return False
    worker = equipment.runs.worker
    worker.start()
    if f.launched == worker.launched:
        return True
    race = equipment.runs.load_and_race(f.artifact, None, slot=f.slot, race=False)
    if isinstance(race, MeasureError):
        _fail(equipment, f, race)
        return False
    f.first, f.launched = race.first, worker.launched
    return True


def _check(equipment: Equipment, f: Finalist) -> None:
    if not equipment.option.runner.check or not _load(equipment, f):
        return
    assert f.build is not None
    error = wrong_answer(equipment.check(f.build.candidate, f.artifact, slot=f.slot))
    if error is not None:
        _fail(equipment, f, error)


def _sample(equipment: Equipment, f: Finalist) -> None:
    with equipment.clock.phase("run"):
        if not _load(equipment, f):
            return
        times = equipment.runs.sample(f.first, slot=f.slot, windows=1, window_s=PLAYOFF_WINDOW_S)
    if isinstance(times, MeasureError):
        _fail(equipment, f, times)
        return
    f.times.append(statistics.median(times))


def _fail(equipment: Equipment, f: Finalist, error: MeasureError) -> None:
    f.failed, f.times = True, []
    equipment.announce(f"playoff: a finalist is out ({error})")
