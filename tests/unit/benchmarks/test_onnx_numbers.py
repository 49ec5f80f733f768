"""Nodes drawn by ONNX's schemas at the edges of their numbers, beside onnx's reference."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')

from benchmarks import onnx_numbers
from benchmarks.onnx_number_cases import Case, cases_of, dtypes_of, schemas
from benchmarks.onnx_numbers import MEANT, Outcome, by_reference, difference, judged, outcomes

OPSET = 13


def drawn(count: int) -> list[Case]:
    """Some cases of one opset; the same ones each time."""
    every = [
        case
        for schema in schemas()
        if schema.since_version == OPSET
        for dtype in dtypes_of(schema)
        for case in cases_of(schema, dtype)
    ]
    chosen = random.Random(33).sample(every, count)
    return [case for case in chosen if not any(m.fits(case) for m in MEANT)]


def test_some_cases_beside_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_numbers, "by_runtime", by_reference)
    found = list(outcomes(drawn(32), {}))
    assert len(found) > 24
    assert [o for o in found if o.kind in ("wrong", "failed")] == []
    assert sum(o.kind == "same" for o in found) > 0.9 * len(found)


def test_differences_are_found() -> None:
    x = np.array([0.0, np.nan, 2.5], "float32")
    case = Case("Round", OPSET, "float32", "edges", (x,))
    right = np.array([0.0, np.nan, 2.0], "float32")
    assert difference(case, [right], [right.copy()]) == ""
    for place, value in ((0, -0.0), (1, 0.0), (2, np.nextafter(np.float32(2), np.float32(3)))):
        wrong = right.copy()
        wrong[place] = value
        assert f"1 of 3, first [{place}]" in difference(case, [wrong], [right])
    assert difference(case, [right.astype("float64")], [right]) == "float64[3] for float32[3]"
    assert difference(case, [right[:2]], [right]) == "float32[2] for float32[3]"


def test_outcomes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.array([1.0, np.nan], "float32")
    monkeypatch.setattr(onnx_numbers, "by_runtime", lambda case: [x])
    case = Case("Abs", OPSET, "float32", "edges", (x,))
    assert judged(case, [x]).kind == "same"
    assert judged(case, [x + 1]).kind == "wrong"
    monkeypatch.setattr(onnx_numbers, "by_runtime", lambda case: [x + 1])
    assert judged(case, [x]).kind == "other"
    split = Case("Split", OPSET, "float32", "parts", (x, np.array([1, 2])), {}, (1,), 2)
    (refused,) = outcomes([split], {})
    assert isinstance(refused, Outcome)
    assert refused.kind == "refused"
    assert "do not fill 2 elements" in refused.text
