"""Candidates that are one program: built and run once, by a real builder and runner."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from loopwright.errors import InternalError
from loopwright.measure import (
    ErrorKind,
    MeasureError,
    Measurer,
    MeasureResult,
)
from loopwright.measure.building import Build
from loopwright.measure.result import is_reusable
from loopwright.measure.workers.protocol import LoweredReply
from loopwright.runtime import Artifact
from tests.unit.measure import kernels
from tests.unit.measure.programs import OPTION, MatmulTask, matmul


class Disguised(MatmulTask):
    """A configuration is 10 times a tile plus how it is disguised."""

    def instantiate(self, config: int) -> tuple[Any, list[Any]]:
        tile, way = divmod(config, 10)
        s, args = matmul(self.n, tile)
        c = args[-1]
        loops = s[c].leaf_iter_vars
        if way == 1:
            s[c].split(loops[0], factor=1)
        elif way == 2:
            whole, once = s[c].split(loops[1], factor=1)
            s[c].unroll(once)
            s[c].reorder(once, loops[0], whole)
        elif way == 3:
            s[c].pragma(loops[0], "auto_unroll_max_step", 1)
        elif way == 4:
            s[c].vectorize(loops[-1])
        return s, args


@pytest.fixture(scope="module")
def measurer(measurer: Measurer) -> Iterator[Measurer]:
    with Measurer(Disguised(), OPTION, beside=measurer) as m:
        yield m


def measured(measurer: Measurer, *configs: int, known: Any = None) -> list[MeasureResult]:
    return list(measurer.measure_new(measurer.task.inputs(*configs), None, known or {}))  # type: ignore[attr-defined]


def test_equal_programs_are_compiled_and_run_once(measurer: Measurer) -> None:
    before = measurer.timing
    results = measured(measurer, 40, 41, 80, 42, 43, 83, 44)
    after = measurer.timing
    assert [r.same_as != "" for r in results] == [False, True, False, True, True, True, False]
    first, other = results[0], results[2]
    assert [results[i].times for i in (1, 3, 4)] == [first.times] * 3
    assert results[5].times == other.times
    assert {r.program for r in results[:2]} == {results[1].same_as}
    assert len({r.program for r in results}) == 3
    assert len({r.code for r in results}) == 3
    # The traces are their own, so that each record can be replayed.
    assert len({r.trace for r in results}) == 7
    assert after["trials"] - before["trials"] == 3
    assert after["duplicates"] - before["duplicates"] == 4
    # And the naive schedule, which the first result is compared with.
    assert after["built"] - before["built"] in (3, 4)


def test_known_programs_are_not_run(measurer: Measurer) -> None:
    (first,) = measured(measurer, 20)
    assert first.code
    past = replace(first, times=(123.0,))
    before = measurer.timing["built"]
    known = {first.program: past}
    same, new = measured(measurer, 21, 160, known=known)
    assert known == {first.program: past}
    assert (same.times, same.same_as, same.run_s) == ((123.0,), first.program, 0.0)
    assert new.same_as == ""
    assert measurer.timing["built"] == before + 1


def test_a_wrong_answer_is_shared(measurer: Measurer) -> None:
    task = Disguised(reference=lambda a, b: a @ b + 1)
    with Measurer(task, OPTION, beside=measurer) as m:
        first, second = measured(m, 40, 41)
    assert first.error is not None
    assert first.error.kind == ErrorKind.WRONG_ANSWER
    assert (second.error, second.same_as) == (first.error, first.program)


def test_the_name_and_the_passes_are_in_the_key(measurer: Measurer) -> None:
    found = measurer.session.instantiate(40)
    named = replace(found, name="other")
    passes = replace(found, passes={"opt_level": 3})
    builds = [measurer.session.builds.add(c) for c in (found, named, passes)]
    measurer.session.wait_for(builds)
    assert len({b.program for b in builds}) == 3
    assert all(isinstance(b.outcome, Artifact) for b in builds)


# -- the book-keeping alone ----------------------------------------------------------------------


def test_the_first_of_a_program_is_compiled() -> None:
    old = MeasureResult((1.0,), program="old")
    programs: dict[str, MeasureResult | Build] = {"old": old}
    first, second, third = (Build(kernels.candidate("c"), 1.0, programs) for _ in range(3))
    for build, name, outcome in ((first, "new", None), (second, "new", first), (third, "old", old)):
        build.finish(LoweredReply(program=name), 0.5)
        assert (build.program, build.seconds) == (name, 0.5)
        assert build.outcome is outcome
        with pytest.raises(InternalError, match="has no code"):
            _ = build.compiled
    assert programs == {"old": old, "new": first}
    first.finish(LoweredReply(program="new"), 0.5)  # once more, after its builder was killed
    assert first.outcome is None


@pytest.mark.parametrize(
    ("kind", "shared"),
    [
        (ErrorKind.COMPILE, True),
        (ErrorKind.RUN_CRASH, True),
        (ErrorKind.RUN_TIMEOUT, True),
        (ErrorKind.RUN_ERROR, True),
        (ErrorKind.WRONG_ANSWER, True),
        (ErrorKind.BUILD_TIMEOUT, False),
        (ErrorKind.BUILD_CRASH, False),
        (ErrorKind.MEMORY, False),
    ],
)
def test_only_failures_of_the_program_are_shared(kind: ErrorKind, shared: bool) -> None:
    result = MeasureResult(error=MeasureError(kind, "why"), program="p")
    assert is_reusable(result) == shared
    assert not is_reusable(replace(result, program=""))
    assert not is_reusable(replace(result, same_as="p"))


class LateBuilds:
    """Stands where the builder pool stands: the first build of a program never comes back."""

    def __init__(self, measurer: Measurer) -> None:
        self.added = 0
        self.built = 0
        measurer.session.instantiate = lambda config: kernels.candidate(str(config))  # type: ignore[method-assign]
        measurer.session.builds.workers = []
        measurer.session.builds.add = self.add  # type: ignore[method-assign]

    def add(self, candidate: Any, *, programs: Any = None, **options: object) -> Build:
        build = Build(candidate, 1.0, programs)
        build.finish(LoweredReply(program="p"), 0.0)
        if programs is None:
            build.outcome = kernels.built(kernels.GOOD)
        elif build.outcome is None:
            build.outcome = MeasureError(ErrorKind.BUILD_TIMEOUT, "too late")
        self.added += 1
        return build


@pytest.mark.usefixtures("processes_share_the_cpu")
def test_a_build_that_failed_by_chance_is_tried_again_for_the_next_of_its_program(
    measurer: Measurer,
) -> None:
    m = Measurer(MatmulTask(reference=lambda a: a + 1), OPTION, beside=measurer)
    pool = LateBuilds(m)
    with m:
        first, second, third = m.measure(m.task.inputs(0, 1, 2))  # type: ignore[attr-defined]
    assert first.error is not None
    assert first.error.kind == ErrorKind.BUILD_TIMEOUT
    assert (second.valid, second.same_as) == (True, "")
    assert (third.times, third.same_as) == (second.times, "p")
    assert pool.added == 4
    digest = hashlib.sha256(kernels.built(kernels.GOOD).objects).hexdigest()
    assert second.code == digest[:16]
