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
        if all(x is None or x.size for x in case.inputs)
    ]
    chosen = random.Random(33).sample(every, count)
    return [case for case in chosen if not any(m.fits(case) for m in MEANT)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:(overflow|invalid|divide):RuntimeWarning")  # the reference's
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


def test_powers_of_known_numbers_are_those_of_kernels() -> None:
    x = np.array([-np.inf, -0.0, 0.0, 4.0], "float32")
    for known in ((1,), (0, 1)):
        case = Case("Pow", OPSET, "float32", "root", (x, np.array(0.5, "float32")), {}, known)
        ((found,),) = onnx_numbers.run([case])
        np.testing.assert_array_equal(found, np.array([np.inf, 0, 0, 2], "float32"))
        assert not np.signbit(found).any()


def test_what_is_meant_is_meant_of_some_elements_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of the elements that a reason speaks of; of others the same operator is wrong."""
    row, nan, most = {"axis": 1, "keepdims": 0}, np.nan, np.finfo("float32").max
    start, delta = np.array(0.0, "float32"), np.array(0.1, "float32")
    every: list[tuple[str, str, list[np.ndarray], dict[str, int], list, list, list]] = [
        ("Range", "parts", [start, delta * 2, delta], {}, [0, 0.1], [0, 0.10000002], [0, 0.11]),
        ("Where", "pairs", [np.array([True, False]), start, start], {}, [-0.0, 1], [0, 1], [0, 2]),
        ("ReduceMax", "nan", [np.array([[1, nan], [1, 2]])], {}, [nan, 2], [1, 2], [nan, 1]),
        ("ReduceLogSumExp", "rank 1", [np.array([most])], {}, [most], [np.inf], [most / 2]),
        ("ArgMax", "nan", [np.array([[1, nan], [1, 2]])], row, [1, 1], [0, 1], [1, 0]),
    ]  # fmt: skip
    for name, edge, inputs, attrs, ours, meant, wrong in every:
        kind = "int64" if name == "ArgMax" else "float32"
        case = Case(name, OPSET, "float32", edge, tuple(inputs), attrs)
        for other, word in ((ours, "same"), (meant, "meant"), (wrong, "wrong")):
            monkeypatch.setattr(onnx_numbers, "by_reference", lambda case: None)
            results = [np.array(other, kind)]
            monkeypatch.setattr(onnx_numbers, "by_runtime", lambda case, found=results: found)
            assert judged(case, [np.array(ours, kind)]).kind == word, (name, word)
