"""Nests as golden texts, each run by the interpreter against NumPy beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright.ir.interp import interpret
from loopwright.lower import lower
from tests.unit.lower.programs import CASES, Case


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
