"""Data types: names, widths, promotion."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from loopwright import dtypes
from loopwright.errors import TensorError


@pytest.mark.parametrize("name", dtypes.SUPPORTED)
def test_names_and_numpy_types_are_understood(name: str) -> None:
    assert dtypes.check(name) == name
    assert dtypes.check(np.dtype(name)) == name
    assert dtypes.check(np.dtype(name).type) == name


@pytest.mark.parametrize(("given", "name"), [(float, "float64"), (int, "int64"), (bool, "bool")])
def test_python_types(given: Any, name: str) -> None:
    assert dtypes.check(given) == name


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("uint128", r"unknown dtype 'uint128' .*use one of float32, float64, int8"),
        ("flaot32", r"unknown dtype 'flaot32' \(did you mean 'float32'\?\); use one of float32"),
        ("f4", "unknown dtype 'f4'"),
        (object, "unknown dtype <class 'object'>"),
        (7, "unknown dtype 7"),
        (None, "unknown dtype None"),
        (np.complex64, "unknown dtype <class 'numpy.complex64'>"),
    ],
)
def test_other_types_are_refused(given: Any, text: str) -> None:
    with pytest.raises(TensorError, match=text):
        dtypes.check(given)


@pytest.mark.parametrize("name", dtypes.SUPPORTED)
def test_widths_are_those_of_numpy(name: str) -> None:
    d = np.dtype(dtypes.check(name))
    assert dtypes.nbytes(name) == d.itemsize
    assert dtypes.bits(name) == (1 if name == "bool" else 8 * d.itemsize)
    assert dtypes.is_float(name) == (d.kind == "f" or name == "bfloat16")
    assert dtypes.is_int(name) == (d.kind in "iu")
    assert dtypes.is_unsigned(name) == (d.kind == "u")


@pytest.mark.parametrize("name", [d for d in dtypes.SUPPORTED if dtypes.is_int(d)])
def test_limits_of_integers(name: str) -> None:
    info = np.iinfo(name)
    assert dtypes.limits(name) == (info.min, info.max)


def test_limits_of_the_others() -> None:
    assert dtypes.limits("float32") == (-np.inf, np.inf)
    assert dtypes.limits("bool") == (0, 1)


def te_rule(a: str, b: str) -> str:
    """TE's rule, said another way: sort by (float, width, unsigned), take the larger."""

    def rank(d: str) -> tuple[bool, bool, int, bool]:
        return d != "bool", dtypes.is_float(d), dtypes.bits(d), dtypes.is_unsigned(d)

    return "float32" if {a, b} == set(dtypes.HALVES) else max(a, b, key=rank)


@pytest.mark.parametrize(("a", "b"), list(itertools.product(dtypes.SUPPORTED, repeat=2)))
def test_promotion(a: str, b: str) -> None:
    assert dtypes.promote(a, b) == te_rule(a, b)
    assert dtypes.promote(b, a) == te_rule(a, b)


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        ("int32", "float32", "float32"),
        ("int64", "float32", "float32"),
        ("int32", "uint32", "uint32"),
        ("int64", "uint32", "int64"),
        ("float16", "int64", "float16"),
        ("float16", "bfloat16", "float32"),
        ("bool", "uint8", "uint8"),
    ],
)
def test_promotion_differs_from_numpy(a: str, b: str, want: str) -> None:
    assert dtypes.promote(a, b) == want


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (1.9, "int32", 1),
        (-1.9, "int32", -1),
        (300.0, "uint8", 255),
        (-1.0, "uint8", 0),
        (1e30, "int64", 2**63 - 1),
        (float("-inf"), "int8", -128),
        (float("nan"), "int32", 0),
    ],
)
def test_truncation_of_floats(value: float, dtype: str, want: int) -> None:
    assert dtypes.truncate(value, dtype) == want
