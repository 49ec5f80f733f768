"""Results and AutoTVM's views of them."""

from __future__ import annotations

import pytest

from loopwright.measure import ErrorKind, MeasureError, MeasureErrorNo, MeasureResult
from loopwright.measure.result import faster, would_lead
from loopwright.records import Checked


def test_a_good_result() -> None:
    r = MeasureResult((3.0, 1.0, 2.0), build_s=0.5, run_s=1.5, ts=7.0)
    assert r.median == 2.0
    assert r.usable
    assert (r.costs, r.error_no, r.all_cost, r.timestamp) == ((3.0, 1.0, 2.0), 0, 2.0, 7.0)


def test_a_dropped_result_has_a_time_and_is_not_usable() -> None:
    r = MeasureResult((3.0,), dropped=True)
    assert r.valid
    assert not r.usable
    assert r.median == 3.0


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_a_failure_has_no_times(kind: str) -> None:
    r = MeasureResult(error=MeasureError(kind, "why"))
    assert r.median is None
    assert r.costs == ()
    assert not r.usable
    assert r.error_no not in (MeasureErrorNo.NO_ERROR, MeasureErrorNo.UNKNOWN_ERROR)
    assert str(r.error) == f"{kind}: why"


def test_kinds_are_their_own_names() -> None:
    assert all(kind.name == kind == str(kind) for kind in ErrorKind)
    assert len(ErrorKind) == 9


@pytest.mark.parametrize("checked", [Checked.YES, Checked.OFF])
def test_the_time_to_beat(checked: Checked) -> None:
    assert faster(None, MeasureResult((3.0, 1.0, 2.0), checked=checked)) == 2.0
    assert faster(1.0, MeasureResult((2.0,), checked=checked)) == 1.0
    assert faster(3.0, MeasureResult((2.0,), checked=checked)) == 2.0
    assert faster(3.0, MeasureResult((2.0,), dropped=True, checked=checked)) == 3.0
    assert faster(None, MeasureResult(error=MeasureError(ErrorKind.COMPILE, ""))) is None


def test_a_time_that_was_not_checked_is_nothing_to_beat() -> None:
    unchecked = MeasureResult((2.0,))
    assert would_lead(3.0, unchecked)
    assert faster(3.0, unchecked) == 3.0
    assert faster(None, unchecked) is None
