"""Vector loads whose lanes lie in stretches: what is loaded, and that the values are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.driver import build
from loopwright.schedule import create_schedule

TARGET = "llvm -mcpu=x86-64-v3"


def gathered(index: Callable[[Any], Any], size: int, lanes: int = 8) -> str:
    """Check ``B[i] = A[index(i)]`` as one vector; returns the code before optimisation."""
    a = te.placeholder((size,), name="A")
    b = te.compute((lanes,), lambda i: a[index(i)], name="B")
    s = create_schedule(b)
    s[b].vectorize(b.op.axis[0])
    x, out = np.arange(size, dtype="float32"), np.zeros(lanes, "float32")
    build(s, [a, b])(x, out)
    np.testing.assert_array_equal(out, [x[index(i)] for i in range(lanes)])
    return str(build(s, [a, b], target=TARGET).get_source("ll-unoptimised"))


@pytest.mark.parametrize(
    ("index", "size", "loads"),
    [
        (lambda i: i // 4 * 16 + i % 4, 20, ["<4 x float>", "<4 x float>"]),
        (lambda i: i % 2 * 8 + i // 2, 12, ["<4 x float>", "<4 x float>"]),
        (lambda i: i // 2, 4, ["<4 x float>"]),
        (lambda i: i % 4 * 2 + i // 4, 8, ["<8 x float>"]),
    ],
)
def test_stretches_are_loaded_whole(
    index: Callable[[Any], Any], size: int, loads: list[str]
) -> None:
    """Nothing beyond the last wanted element is touched: the array ends there."""
    text = gathered(index, size)
    assert re.findall(r"= load (<\d x float>)", text) == loads
    assert "insertelement" not in text


def test_more_than_two_stretches_are_gathered() -> None:
    text = gathered(lambda i: i // 2 * 5 + i % 2, 17)
    assert "shufflevector <2 x float>" not in text


@pytest.mark.parametrize("dtype", ["float16", "bool"])
def test_what_is_stored_in_another_type_is_gathered(dtype: str) -> None:
    a = te.placeholder((20,), dtype, name="A")
    b = te.compute((8,), lambda i: a[i // 4 * 16 + i % 4].astype("float32"), name="B")
    s = create_schedule(b)
    s[b].vectorize(b.op.axis[0])
    x, out = np.arange(20).astype(dtype), np.zeros(8, "float32")
    build(s, [a, b])(x, out)
    np.testing.assert_array_equal(out, [x[i // 4 * 16 + i % 4] for i in range(8)])
