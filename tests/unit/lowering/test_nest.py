"""Nests as golden texts, each run by the interpreter against NumPy beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import create_schedule
from tests.unit.lowering.programs import CASES, Case


def run(case: Case) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The interpreter's result and the reference, on integers that float32 holds exactly."""
    rng = np.random.default_rng(0)
    *inputs, out = case.args
    arrays = [rng.integers(-4, 5, t.shape).astype("float32") for t in inputs]
    result = np.full(out.shape, np.nan, "float32")
    interpret(lower(case.s, case.args), [*arrays, result])
    return result, case.reference(*arrays)


@pytest.mark.parametrize("name", CASES)
def test_nest(name: str, golden: Any) -> None:
    case = CASES[name]()
    golden(str(lower(case.s, case.args, name=name)))
    got, want = run(case)
    np.testing.assert_array_equal(got, want)


def tiled(condition: Any) -> tuple[str, np.ndarray[Any, Any]]:
    """``P`` of six guarded elements, computed in tiles of four: two elements over-run.

    Returns the nest, and what the interpreter makes of it (it refuses accesses outside A).
    """
    a = te.placeholder((6,), name="A")
    p = te.compute((6,), lambda i: te.if_then_else(condition(i), a[i], 9.0), name="P")
    c = te.compute((6,), lambda i: p[i] * 2.0, name="C")
    s = create_schedule(c)
    io, _ = s[c].split(c.op.axis[0], factor=4)
    s[p].compute_at(s[c], io)
    f = lower(s, [a, c])
    out = np.zeros(6, "float32")
    interpret(f, [np.arange(6, dtype="float32"), out])
    return str(f), out


@pytest.mark.parametrize(
    ("condition", "holds", "guarded"),
    [
        (lambda i: i < 6, lambda i: True, False),
        (lambda i: -i > -6, lambda i: True, False),
        (lambda i: i <= 5, lambda i: True, False),
        (lambda i: te.all(i >= 1, i < 5), lambda i: 1 <= i < 5, False),
        (lambda i: i * 2 < 9, lambda i: i * 2 < 9, True),
        (lambda i: i <= 6, lambda i: True, True),
        (lambda i: i < 7, lambda i: True, True),
        (lambda i: i >= 1, lambda i: i >= 1, True),
        (lambda i: te.any(i < 5, i > 100), lambda i: i < 5, True),
        (lambda i: te.logical_not(i >= 6), lambda i: True, True),
        (lambda i: te.cast(i, "int8") + 125 < 127, lambda i: i != 2, True),
    ],
)
def test_a_guard_is_left_out_where_the_programs_condition_implies_it(
    condition: Any, holds: Any, guarded: bool
) -> None:
    """What is not implied stays; the last condition wraps in eight bits and says nothing of i."""
    text, out = tiled(condition)
    assert ("if i.0 * 4 + i < 6 else 0.0" in text) == guarded
    np.testing.assert_array_equal(out, [2.0 * i if holds(i) else 18.0 for i in range(6)])
