"""A measurer whose candidates are kernels that were written by hand."""

from __future__ import annotations

from loopwright.measure import Measurer
from loopwright.measure.building import Build
from loopwright.measure.candidate import Candidate
from tests.unit.measure import kernels


class Canned:
    """Stands where the builder pool stands: artifacts are ready, the runner is real."""

    def __init__(self, measurer: Measurer, texts: list[str]) -> None:
        self.measurer, self.texts = measurer, texts
        self.built = 0
        session = measurer.session
        session.instantiate = lambda config: kernels.candidate(str(config))  # type: ignore[method-assign]
        session.builds.workers = []
        session.builds.add = self.add  # type: ignore[method-assign]

    def add(self, candidate: Candidate, **options: object) -> Build:
        self.built += 1
        build = Build(candidate, 1.0)
        build.outcome = kernels.built(self.texts[int(candidate.name)])
        return build
