"""Stages inlined one into the other: what would double at every step is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.ir.stmt import Allocate
from loopwright.ir.visitor import nodes

N, STEPS = 8, 40
Array = np.ndarray[Any, Any]
#: A stage of the one before, and the same of arrays.
FORMS: dict[str, tuple[Callable[..., Any], Callable[[Array], Array]]] = {
    "sum": (lambda x, i, j: x[i, j] + x[i, j], lambda a: a + a),
    "polynomial": (lambda x, i, j: x[i, j] * x[i, j] * 0.25 + x[i, j], lambda a: a * a / 4 + a),
    "choice": (
        lambda x, i, j: te.if_then_else(x[i, j] > 0.5, x[i, j] * 0.5, x[i, j] + 0.25),
        lambda a: np.where(a > 0.5, a / 2, a + np.float32(0.25)),
    ),
    "padded": (
        lambda x, i, j: x[i, j] * 0.5 + te.if_then_else(j > 0, x[i, j - 1] * 0.5, 0.0),
        lambda a: a / 2 + np.pad(a, ((0, 0), (1, 0)))[:, :-1] / 2,
    ),
    "transposed": (lambda x, i, j: x[i, j] * 0.5 + x[j, i] * 0.5, lambda a: a / 2 + a.T / 2),
    "moved": (
        lambda x, i, j: x[(i * N + j) % N, (i * N + j) // N],
        lambda a: np.ascontiguousarray(a.T),
    ),
    "several": (lambda x, i, j: x[i, 0] * 0.5 + x[i, j] * 0.5, lambda a: a[:, :1] / 2 + a / 2),
}


def chain(form: str, steps: int = STEPS) -> list[te.Tensor]:
    tensors = [te.placeholder((N, N), name="A")]
    for k in range(steps):
        before, step = tensors[-1], FORMS[form][0]
        value = lambda i, j, x=before, f=step: f(x, i, j)  # noqa: E731
        tensors.append(te.compute((N, N), value, name=f"B{k}"))
    return tensors


def expected(form: str, a: Array, steps: int = STEPS) -> Array:
    for _ in range(steps):
        a = FORMS[form][1](a)
    return a


def data() -> Array:
    return np.random.default_rng(0).random((N, N), "float32") / 8


KEPT = ("polynomial", "moved")  # others compile for half a second and more


@pytest.mark.parametrize(
    "form", [f if f in KEPT else pytest.param(f, marks=pytest.mark.slow) for f in FORMS]
)
def test_forty_stages_that_each_read_the_one_before_twice(form: str) -> None:
    tensors = chain(form)
    s, out = te.create_schedule(tensors[-1].op), tensors[-1]
    for t in tensors[1:-1]:
        s[t].compute_inline()
    s[out].vectorize(s[out].split(out.op.axis[1], factor=3)[1])
    got = np.empty((N, N), "float32")
    lw.build(s, [tensors[0], out], target="llvm -num-threads=1")(data(), got)
    np.testing.assert_allclose(got, expected(form, data()), rtol=1e-4)


def test_it_is_held_in_a_register_of_the_innermost_loop() -> None:
    tensors = chain("sum")
    s = te.create_schedule(tensors[-1].op)
    for t in tensors[1:-1]:
        s[t].compute_inline()
    f = lw.lower(s, [tensors[0], tensors[-1]])
    kept = [n.buffer for n in nodes(f.body) if isinstance(n, Allocate)]
    assert 0 < len(kept) < STEPS
    assert all(b.shape == (1, 1) for b in kept)


def test_what_fits_is_written_out() -> None:
    tensors = chain("sum", 8)
    s = te.create_schedule(tensors[-1].op)
    for t in tensors[1:-1]:
        s[t].compute_inline()
    f = lw.lower(s, [tensors[0], tensors[-1]])
    assert str(f).count("A[i, j]") == 2**8


def test_too_large_an_expression_of_threads_is_refused() -> None:
    tensors = chain("transposed", 20)
    s = te.create_schedule(tensors[-1].op)
    for t in tensors[1:-1]:
        s[t].compute_inline()
    s[tensors[-1]].bind(tensors[-1].op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(ScheduleError, match=r"compute_inline .* more than 32768 nodes") as caught:
        lw.lower(s, [tensors[0], tensors[-1]])
    assert caught.type is ScheduleError


def test_several_readers_and_copies_of_an_unrolled_loop() -> None:
    """Two results share a chain, which is computed before both; 13 stages fit, not their copies."""
    tensors = chain("sum", 13)
    x, (low, high) = tensors[-1], tensors[:2]
    C = te.compute((N, N), lambda i, j: x[i, j] + 1.0, name="C")
    D = te.compute((N, N), lambda i, j: x[i, j] - high[i, j], name="D")
    s = te.create_schedule([C.op, D.op])
    for t in tensors[1:]:
        s[t].compute_inline()
    for t in (C, D):
        for loop in s[t].op.axis:
            s[t].unroll(loop)
    c, d = np.empty((2, N, N), "float32")
    lw.build(s, [low, C, D], target="llvm -num-threads=1")(data(), c, d)
    np.testing.assert_array_equal(c, data() * 2**13 + 1)
    np.testing.assert_array_equal(d, data() * 2**13 - data() * 2)


@pytest.mark.slow  # evaluates the structures of an automatic space
def test_the_automatic_schedule_of_sums_of_themselves() -> None:
    tensors = chain("polynomial")
    got = np.empty((N, N), "float32")
    lw.build([tensors[0], tensors[-1]], target="llvm -num-threads=1")(data(), got)
    np.testing.assert_allclose(got, expected("polynomial", data()), rtol=1e-4)
