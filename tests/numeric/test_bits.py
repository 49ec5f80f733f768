"""Bit operations, `fma` and `reinterpret`: scalar and vector code and the interpreter."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import create_schedule
from tests.kernels import build
from tests.numeric.programs import check


def numbers(dtype: str, n: int = 97, seed: int = 0) -> np.ndarray[Any, Any]:
    raw = np.random.default_rng(seed).integers(0, 256, n * np.dtype(dtype).itemsize, np.uint8)
    out = raw.view(dtype).copy()
    out[:4] = [0, 1, np.iinfo(dtype).max, np.iinfo(dtype).min]
    return out


INTS = ("int8", "uint8", "int16", "int32", "int64")


@pytest.mark.parametrize("dtype", INTS)
def test_bitwise(dtype: str) -> None:
    a, b = numbers(dtype), numbers(dtype, seed=1)
    check(
        (lambda x, y: x & y, a & b, a, b),
        (lambda x, y: x | y, a | b, a, b),
        (lambda x, y: x ^ y, a ^ b, a, b),
        (lambda x: ~x, ~a, a),
        (lambda x: (x & 12) | 3, (a & 12) | 3, a),
    )


@pytest.mark.parametrize("dtype", INTS)
def test_shifts_take_their_amount_modulo_the_width(dtype: str) -> None:
    bits = np.dtype(dtype).itemsize * 8
    a = numbers(dtype)
    b = np.resize(np.array([0, 1, bits - 1, bits, bits + 3, 2 * bits + 2], dtype), a.shape)
    left = [int(x) << (int(n) % bits) for x, n in zip(a, b, strict=True)]
    right = [int(x) >> (int(n) % bits) for x, n in zip(a, b, strict=True)]
    wrapped = [x & (2**bits - 1) for x in left]
    want = np.array(wrapped, np.uint64).astype(f"uint{bits}").view(dtype)
    signed = []
    if np.issubdtype(dtype, np.signedinteger):
        c = np.resize(np.array([-1, -bits, -bits - 2], dtype), a.shape)
        places = [int(x) >> (int(n) % bits) for x, n in zip(a, c, strict=True)]
        signed.append((lambda x, n: x >> n, places, a, c))
    check(
        *signed,
        (lambda x, n: x << n, want, a, b),
        (lambda x, n: x >> n, right, a, b),
        (lambda x: x >> (bits + 1), a >> 1, a),
        (lambda x: 1 << x, (np.array(1, dtype) << (a % bits).astype(dtype)), a),
    )


def test_bits_of_an_index() -> None:
    a = np.arange(64, dtype="int32") * 3
    A = te.placeholder((64,), "int32", name="A")
    B = te.compute((32,), lambda i: A[(i ^ 5) & 63] + A[i << 1], name="B")
    want = a[(np.arange(32) ^ 5) & 63] + a[np.arange(32) << 1]
    for vector in (False, True):
        s = create_schedule(B)
        if vector:
            s[B].vectorize(B.op.axis[0])
        got = np.zeros(32, "int32")
        interpret(lower(s, [A, B]), [a, got])
        np.testing.assert_array_equal(got, want)
        build(s, [A, B])(a, got)
        np.testing.assert_array_equal(got, want)


def test_reinterpret() -> None:
    f = np.array([0.0, -0.0, 1.5, -2.0, np.inf, 1e-45, 3e38], "float32")
    d, b = f.astype("float64"), np.array([0, 127, 128, 255], "uint8")
    check(
        (lambda x: te.reinterpret("int32", x), f.view("int32"), f),
        (lambda x: te.reinterpret("float32", x), f, f.view("int32")),
        (lambda x: te.reinterpret("int64", x) >> 52, d.view("int64") >> 52, d),
        (lambda x: te.reinterpret("int8", x), b.view("int8"), b),
    )


def rounded(x: Fraction, dtype: str) -> Any:
    """A rational number rounded once, by comparing the neighbours."""
    if dtype == "float64":
        return float(x)
    guess = np.float32(float(x))
    near = [
        guess,
        np.nextafter(guess, np.float32(np.inf)),
        np.nextafter(guess, -np.float32(np.inf)),
    ]
    return min(near, key=lambda v: (abs(Fraction(float(v)) - x), int(v.view(np.int32)) & 1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fma_rounds_once(dtype: str) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal(200).astype(dtype), rng.standard_normal(200).astype(dtype)
    c = -(a * b)  # what is left is the rounding error of the product
    c[100:] *= np.asarray(1 + rng.standard_normal(100) * 1e-3, dtype)
    # 1 + 2**-24 + 2**-60: rounding to float64 in between would make it a tie.
    a[0], b[0], c[0] = 1 + 2.0**-12, 1 - 2.0**-12, 2.0**-24 + 2.0**-30
    a[1], b[1], c[1] = 2.0**-30, 2.0**-30, 1 + 2.0**-23
    a[2], b[2], c[2] = 1 + 2.0**-23, 2.0**-24 + 2.0**-46, 1 + 2.0**-23
    want = [
        rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), dtype)
        for x, y, z in zip(a, b, c, strict=True)
    ]
    check((te.fma, want, a, b, c))


def test_fma_of_special_values() -> None:
    a = np.array([np.inf, np.inf, np.nan, 0.0, -0.0, 3e38, 1e-30], "float32")
    b = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 3e38, 1e-30], "float32")
    c = np.array([1.0, -np.inf, 1.0, -0.0, -0.0, -np.inf, 0.0], "float32")
    with np.errstate(all="ignore"):
        want = np.array([np.nan, np.nan, np.nan, 0.0, -0.0, -np.inf, 0.0], "float32")
    check((te.fma, want, a, b, c))


def test_fma_survives_fastmath() -> None:
    """``a * b - fl(a * b)`` is zero when computed in two steps."""
    A = te.placeholder((16,), name="A")
    B = te.compute((16,), lambda i: te.fma(A[i], A[i], -(A[i] * A[i])), name="B")
    s = create_schedule(B)
    s[B].vectorize(B.op.axis[0])
    a = np.linspace(1, 2, 16).astype("float32") + np.float32(2.0**-23)
    got = np.zeros(16, "float32")
    build(s, [A, B], target="llvm -fastmath=true -num-threads=1")(a, got)
    wide = a.astype("float64") ** 2
    want = wide - (a * a).astype("float64")
    assert np.count_nonzero(want) > 8
    np.testing.assert_array_equal(got, want.astype("float32"))
