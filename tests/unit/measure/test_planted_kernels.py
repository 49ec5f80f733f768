"""Kernels that are right on ordinary numbers alone do not pass the check; what they stand for
does."""

from __future__ import annotations

import pytest

from loopwright import te
from loopwright.measure import ErrorKind, Measurer
from tests.unit.measure.planted import PLANTED, artifact_of, checked, scheduled


@pytest.mark.parametrize("name", PLANTED)
def test_only_the_right_one_passes(name: str, measurer: Measurer) -> None:
    right, wrong = PLANTED[name]()
    assert checked(name, right, artifact_of(right), measurer) is None
    error = checked(name, right, artifact_of(wrong), measurer)
    assert error is not None, "the wrong one passed"
    assert error.kind == ErrorKind.WRONG_ANSWER
    assert "are wrong" in error.text


def test_a_program_that_another_task_named_otherwise_is_checked(measurer: Measurer) -> None:
    """Its right answer comes of a build for the other one."""
    for name in ("x", "z", "x"):
        a = te.placeholder((77,), name=name)
        program = scheduled(te.compute((77,), lambda i, a=a: a[i] * 3.0, name="y" + name), a)
        assert checked(f"task of {name}", program, artifact_of(program), measurer) is None
