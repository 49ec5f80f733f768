"""Repeated measurement of configurations: without a race, and without a check."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loopwright.measure.building import Build
from loopwright.measure.equipment import Equipment
from loopwright.measure.result import MeasureError, MeasureResult

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity


class Again:
    """Measures configurations again; keeps the build of the first one, the reference."""

    def __init__(self, equipment: Equipment) -> None:
        self.equipment = equipment
        self._kept: dict[str, Build] = {}

    def measure(self, configs: Sequence[ConfigEntity], windows: int) -> list[MeasureResult]:
        builds = [self._build(config) for config in configs]
        self.equipment.wait_for([b for b in builds if isinstance(b, Build) and b.outcome is None])
        self._kept = {b.candidate.key: b for b in builds[:1] if isinstance(b, Build)}
        self.equipment.take_device()
        return [self._run(build, windows) for build in builds]

    def _build(self, config: ConfigEntity) -> Build | MeasureError:
        candidate = self.equipment.instantiate(config)
        if isinstance(candidate, MeasureError):
            return candidate
        return self._kept.get(candidate.key) or self.equipment.builds.add(candidate)

    def _run(self, build: Build | MeasureError, windows: int) -> MeasureResult:
        artifact = build if isinstance(build, MeasureError) else build.compiled
        if isinstance(artifact, MeasureError):
            return MeasureResult(error=artifact, ts=time.time())
        runs = self.equipment.runs
        with self.equipment.clock.phase("run"):
            race = runs.load_and_race(artifact, None, race=False)
            if isinstance(race, MeasureError):
                return MeasureResult(error=race, ts=time.time())
            times = runs.sample(race.first, windows=windows, spent=race.warm + race.first)
        if isinstance(times, MeasureError):
            return MeasureResult(error=times, ts=time.time())
        return MeasureResult(times, ts=time.time())
