"""Kernels that are right on ordinary numbers alone do not pass the check; what they stand for
does."""

from __future__ import annotations

import pytest

from loopwright.measure import ErrorKind, Measurer
from tests.unit.measure.planted import PLANTED, artifact_of, checked


@pytest.mark.parametrize("name", PLANTED)
def test_only_the_right_one_passes(name: str, measurer: Measurer) -> None:
    right, wrong = PLANTED[name]()
    assert checked(name, right, artifact_of(right), measurer) is None
    error = checked(name, right, artifact_of(wrong), measurer)
    assert error is not None, "the wrong one passed"
    assert error.kind == ErrorKind.WRONG_ANSWER
    assert "are wrong" in error.text
