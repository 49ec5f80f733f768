"""Distinct programs: configurations that are lowered to one program share its result.

Many knobs make no difference to the program: the order of two loops of which one runs once, an
unrolling that reaches no loop. The builders lower each candidate and name its program by a hash
(`loopwright.driver.program_key`); only the first of each program is compiled and run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict

from loopwright.measure.building import Build, Same
from loopwright.measure.result import ErrorKind, MeasureResult
from loopwright.records import Json
from loopwright.runtime import Artifact
from loopwright.runtime.artifacts.device_code import DeviceCode
from loopwright.runtime.artifacts.kinds import artifact_kind

#: Hexadecimal digits of the hash of object code.
_CODE_DIGITS = 16
#: Failures that another attempt at the same program may not have.
_BY_CHANCE = (
    ErrorKind.BUILD_TIMEOUT,
    ErrorKind.BUILD_CRASH,
    ErrorKind.MEMORY,
    ErrorKind.INSTANTIATION,
)


def code_of(artifact: Artifact) -> str:
    """The hash of object code, by which records identify it."""
    return hashlib.sha256(artifact.objects).hexdigest()[:_CODE_DIGITS]


def resources_of(artifact: Artifact) -> dict[str, Json] | None:
    """Resources of an artifact, as the device's compiler reports them; the maximum of its kernels.

    None for code of CPUs, and where the compiler reports nothing.
    """
    if artifact_kind(artifact.kind).device == "cpu":
        return None
    kernels = DeviceCode.of(artifact.contents, artifact.objects).resources.values()
    told = [{k: n for k, n in asdict(r).items() if n is not None} for r in kernels]
    names = dict.fromkeys(name for figures in told for name in figures)
    return {name: max(figures.get(name, 0) for figures in told) for name in names} or None


def stands_for_program(result: MeasureResult) -> bool:
    """Whether a result is that of its program, rather than of one attempt to measure it.

    A time is, also that of a candidate which racing dropped, and so is a compiler's refusal, a
    crash, a kernel that is too slow, a wrong answer. A builder that was killed, or ran out of
    memory, does not depend on the program.
    """
    if not result.program or result.same_as:
        return False
    return result.error is None or result.error.kind not in _BY_CHANCE


class Programs:
    """The programs of one batch; ``known`` has results of earlier ones, by hash."""

    def __init__(self, known: Mapping[str, MeasureResult]) -> None:
        self._known = known
        self._results: dict[str, MeasureResult] = {}
        self._builds: dict[str, Build] = {}

    def claim(self, build: Build) -> bool:
        """Whether a lowered candidate is the first of its program, and is to be compiled."""
        if self.result(build.program) is not None:
            return False
        return self._builds.setdefault(build.program, build) is build

    def compiled(self, build: Build) -> Build:
        """The build that has, or is making, the code of a candidate's program."""
        return self._builds[build.program] if isinstance(build.outcome, Same) else build

    def result(self, program: str) -> MeasureResult | None:
        """The result of a program; None where it is not measured."""
        return self._results.get(program) or self._known.get(program)

    def note(self, result: MeasureResult) -> None:
        """Keep a result that others of its program may share."""
        if stands_for_program(result):
            self._results[result.program] = result
