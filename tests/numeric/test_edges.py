"""Integer division and powers at the limits of every dtype, beside Python's own integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import dtypes, te
from tests.covering import covering

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_Array = np.ndarray[Any, Any]


def _toward_zero(x: int, y: int) -> int:
    size = abs(x) // abs(y)
    return size if (x < 0) == (y < 0) else -size


DIVISIONS: dict[Callable[..., Any], Callable[[int, int], int]] = {
    te.floordiv: lambda x, y: x // y,
    te.floormod: lambda x, y: x % y,
    te.truncdiv: _toward_zero,
    te.truncmod: lambda x, y: x - y * _toward_zero(x, y),
}


def _power(x: int, y: int) -> int:
    if y >= 0:
        return int(x**y)
    return x ** (y & 1) if abs(x) == 1 else 0


def _wrapped(value: int, dtype: str) -> int:
    low, high = map(int, dtypes.limits(dtype))
    return (value - low) % (high - low + 1) + low


def _edges(dtype: str) -> list[int]:
    low, high = map(int, dtypes.limits(dtype))
    near = (0, 1, 2, 3, 5, 7, 8, 10, 100, high // 2, high // 3, high - 2, high - 1, high)
    values = {*near, *(-v for v in near), low, low + 1}
    return sorted(v for v in values if low <= v <= high)


def _pairs(values: list[int], dtype: str) -> tuple[_Array, _Array]:
    a, b = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    return np.ascontiguousarray(a.ravel()), np.ascontiguousarray(b.ravel())


def _run(
    target: str, inputs: list[_Array], element: Callable[..., tuple[Any, ...]], lanes: int = 0
) -> list[_Array]:
    """The outputs of one function, an element of each for each element of the inputs."""
    tensors = [te.placeholder(a.shape, a.dtype.name, name=f"x{n}") for n, a in enumerate(inputs)]
    found = te.compute(inputs[0].shape, lambda i: element(*(t[i] for t in tensors)), name="y")
    outputs = found if isinstance(found, tuple) else (found,)
    s = te.create_schedule(outputs[0].op)
    if lanes:
        _, inner = s[outputs[0]].split(outputs[0].op.axis[0], factor=lanes)
        s[outputs[0]].vectorize(inner)
    made = [np.empty(inputs[0].shape, t.dtype) for t in outputs]
    lw.build(s, [*tensors, *outputs], target)(*inputs, *made)
    return made


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_all_pairs_of_bytes_are_divided_exactly(dtype: str) -> None:
    low, high = map(int, dtypes.limits(dtype))
    a, b = _pairs(list(range(low, high + 1)), dtype)
    found = _run("llvm", [a, b], lambda x, y: tuple(f(x, y) for f in DIVISIONS), lanes=16)
    x, y = a.astype("int64"), b.astype("int64")
    by = np.where(y == 0, 1, y)
    down, cut = x // by, np.sign(x) * np.sign(by) * (np.abs(x) // np.abs(by))
    for got, want in zip(found, (down, x - by * down, cut, x - by * cut), strict=True):
        np.testing.assert_array_equal(got, np.where(y == 0, 0, want).astype(dtype))


@pytest.mark.parametrize("target", ["llvm", "c", "interp"])
def test_limits_are_divided_exactly(target: str) -> None:
    for dtype in INTEGERS if target == "llvm" else ("int8", "int32", "uint64"):
        a, b = _pairs(_edges(dtype), dtype)
        found = _run(target, [a, b], lambda x, y: tuple(f(x, y) for f in DIVISIONS))
        pairs = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
        for got, exact in zip(found, DIVISIONS.values(), strict=True):
            want = [_wrapped(exact(x, y), dtype) if y else 0 for x, y in pairs]
            assert [int(v) for v in got] == want, dtype


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_constants_divide_exactly(target: str) -> None:
    for dtype in ("int8", "int32", "uint64"):
        values = _edges(dtype)
        divisors = [v for v in values if v][:: 1 if dtype == "int8" else 4]
        x = np.array(values, dtype)

        def element(x: Any, dtype: str = dtype, divisors: list[int] = divisors) -> tuple[Any, ...]:
            return tuple(f(x, te.const(c, dtype)) for c in divisors for f in DIVISIONS)

        found = iter(_run(target, [x], element))
        for c in divisors:
            for exact in DIVISIONS.values():
                assert [int(v) for v in next(found)] == [
                    _wrapped(exact(v, c), dtype) for v in values
                ], (dtype, c)


@pytest.mark.parametrize(
    ("dtype", "target"),
    covering(["int8", "int32", "int64", "uint8", "uint64"], ["llvm", "c", "interp"], strength=1),
)
def test_powers_of_integers_are_exact_and_wrap(dtype: str, target: str) -> None:
    a, b = _pairs([v for v in _edges(dtype) if abs(v) < 1000 or dtype != "int8"], dtype)
    small = np.where(np.abs(b.astype("float64")) < 200, b, 3).astype(dtype)
    lanes = 4 if target == "llvm" else 0
    (found,) = _run(target, [a, small], lambda x, y: (te.power(x, y),), lanes)
    pairs = zip(a, small, strict=True)
    assert [int(v) for v in found] == [_wrapped(_power(int(x), int(y)), dtype) for x, y in pairs]


@pytest.mark.parametrize("target", ["llvm", "c", "interp"])
def test_constants_of_an_inlined_stage_shift_modulo_the_width(target: str) -> None:
    kinds = ("int8", "uint16", "int32", "uint64")
    xs = [np.array([1, 2, 3, 100], d) for d in kinds]
    tensors = [te.placeholder((4,), d, name=f"x{d}") for d in kinds]
    amounts = [
        te.compute((4,), lambda i, d=d: te.const(dtypes.bits(d) + 3, d), name=f"by{d}")
        for d in kinds
    ]
    outputs = [
        te.compute((4,), lambda i, f=f, x=x, by=by: f(x[i], by[i]), name=f"y{n}_{x.dtype}")
        for x, by in zip(tensors, amounts, strict=True)
        for n, f in enumerate((te.shift_left, te.shift_right))
    ]
    s = te.create_schedule([t.op for t in outputs])
    for by in amounts:
        s[by].compute_inline()
    found = [np.empty(4, t.dtype) for t in outputs]
    lw.build(s, [*tensors, *outputs], target)(*xs, *found)
    for n, x in enumerate(xs):
        np.testing.assert_array_equal(found[2 * n], x << x.dtype.type(3))
        np.testing.assert_array_equal(found[2 * n + 1], x >> x.dtype.type(3))


@pytest.mark.parametrize("target", ["llvm", "c", "interp"])
def test_axes_as_uint64_beyond_the_limit_of_int64(target: str) -> None:
    large, step, three = (te.const(v, "uint64") for v in (2**64 - 1, 2**61, 3))

    def element(x: Any) -> tuple[Any, ...]:
        i = x.indices[0].astype("uint64")
        largest = te.select(i * step > three, i, three)
        return te.truncmod(i, large) + x.astype("uint64"), (i * step) // three, largest

    remainder, quotient, largest = _run(target, [np.zeros(8, "int8")], element)
    assert remainder.tolist() == list(range(8))
    assert quotient.tolist() == [i * 2**61 // 3 for i in range(8)]
    assert largest.tolist() == [3, *range(1, 8)]


@pytest.mark.parametrize("target", ["llvm", "c", "interp"])
def test_a_float_cut_to_a_whole_number_is_no_negative_zero(target: str) -> None:
    for real, whole in (("float32", "int32"), ("float64", "int64"), ("float32", "int8")):
        x = np.array([-0.5, -0.0, 0.0, 0.5, -0.99, -1.5], real)
        for lanes in (0, 2):
            (y,) = _run(target, [x], lambda v, w=whole: (v.astype(w).astype(v.dtype),), lanes)
            np.testing.assert_array_equal(y, np.array([0, 0, 0, 0, 0, -1], real))
            assert np.signbit(y).tolist() == [False] * 5 + [True], (real, lanes)
