"""The function writer on hand-made functions: interpreter and compiled code beside NumPy."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pytest

from loopwright.codegen.backends import compile_func
from loopwright.codegen.llvm.emitter import ModuleWriter
from loopwright.codegen.llvm.writer import FunctionWriter
from loopwright.driver import build_func
from loopwright.errors import CodegenError, LowerError
from loopwright.ir.affine import Affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, IfThenElse, Select, Var, binary, cast, const
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import For, Func, If, Let, Store, seq
from loopwright.target import Target

Array = np.ndarray[Any, Any]
COMPARISONS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
KINDS = ["serial", "vectorized", "unrolled", "parallel"]


def run(f: Func, *inputs: Array) -> list[Array]:
    """The outputs of a function; interpreter and compiled code must agree to the bit."""
    results = []
    for threads in (0, 1, 2):
        written = [p for p, out in zip(f.params, f.outputs, strict=True) if out]
        outs = [np.zeros(p.shape, p.dtype) for p in written]
        arrays = [*inputs, *outs]
        if threads:
            build_func(f, f"llvm -num-threads={threads}")(*arrays)
        else:
            interpret(f, arrays)
        results.append(outs)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    return results[0]


def random(n: int, dtype: str) -> Array:
    rng = np.random.default_rng(7)
    if dtype == "bool":
        return rng.integers(0, 2, n).astype(bool)
    if dtype.startswith("float"):
        return rng.integers(-8, 9, n).astype(dtype) / 4
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, n, dtype, endpoint=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "int8", "uint8", "int16", "int32", "int64"]
)
def test_a_let_holds_one_value_a_lane(kind: str, dtype: str) -> None:
    """``t = a[i] * a[i]``, used twice; integers wrap when bound, as they do in memory."""
    a, c = Buffer("a", (21,), dtype), Buffer("c", (21,), dtype)
    i, t = Var("i"), Var("t", dtype)
    square = binary("*", Load(a, (i,), dtype), Load(a, (i,), dtype))
    body = Let(t, square, Store(c, (i,), Select(t < 5, t + 1, binary("-", t, 1), dtype)))
    f = Func("f", (a, c), (False, True), For(i, 21, kind, body))
    x = random(21, dtype)
    with np.errstate(over="ignore"):
        (got,) = run(f, x)
        np.testing.assert_array_equal(got, np.where(x * x < 5, x * x + 1, x * x - 1).astype(dtype))


@pytest.mark.parametrize("kind", KINDS)
def test_a_let_outside_a_loop_is_seen_inside(kind: str) -> None:
    """Scalars of several dtypes are broadcast into lanes, and travel through a closure."""
    a, b, k = Buffer("a", (1,), "float32"), Buffer("b", (1,), "bool"), Buffer("k", (1,), "int8")
    c = Buffer("c", (16,), "float32")
    i, zero = Var("i"), (const(0, "int32"),)
    x, y, z = Var("x", "float32"), Var("y", "bool"), Var("z", "int8")
    value = Select(y, binary("+", x, cast(i, "float32")), cast(z, "float32"), "float32")
    nest: Any = For(i, 16, kind, Store(c, (i,), value))
    for v, buffer in ((x, a), (y, b), (z, k)):
        nest = Let(v, Load(buffer, zero, buffer.dtype), nest)
    f = Func("f", (a, b, k, c), (False, False, False, True), nest)
    given = np.array([0.5], "float32"), np.array([-3], "int8")
    (got,) = run(f, given[0], np.array([True]), given[1])
    np.testing.assert_array_equal(got, np.arange(16, dtype="float32") + 0.5)
    (got,) = run(f, given[0], np.array([False]), given[1])
    np.testing.assert_array_equal(got, np.full(16, -3, "float32"))


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_bound_before_anything_is_stored(kind: str) -> None:
    """Exchanging two buffers through two lets, under a condition that differs by lane."""
    a, b = Buffer("a", (19,), "float32"), Buffer("b", (19,), "int32")
    c, d = Buffer("c", (19,), "float32"), Buffer("d", (19,), "int32")
    i = Var("i")
    at = (i,)
    x, y = Var("x", "float32"), Var("y", "int32")
    swap = seq(Store(c, at, cast(y, "float32")), Store(d, at, cast(x, "int32")))
    swap = Let(x, Load(c, at, "float32"), Let(y, Load(d, at, "int32"), swap))
    first = seq(Store(c, at, Load(a, at, "float32")), Store(d, at, Load(b, at, "int32")))
    body = seq(first, If(binary("<", Load(b, at, "int32"), 4), swap))
    f = Func("f", (a, b, c, d), (False, False, True, True), For(i, 19, kind, body))
    p, q = np.arange(19, dtype="float32"), (np.arange(19, dtype="int32") * 5) % 9
    got = run(f, p, q)
    np.testing.assert_array_equal(got[0], np.where(q < 4, q, p))
    np.testing.assert_array_equal(got[1], np.where(q < 4, p, q))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_a_let_bound_integer_can_be_an_index(kind: str, dtype: str) -> None:
    """A gathered index: once of known range, once not, each with an offset."""
    a, k, c = Buffer("a", (12,), "int32"), Buffer("k", (12,), dtype), Buffer("c", (12,), "int32")
    i, p, q = Var("i"), Var("p", dtype), Var("q", dtype)
    load = Load(k, (i,), dtype)

    def element(j: Any) -> Expr:
        return Load(a, (j,), "int32")

    both = binary("+", element(binary("+", p, 1)), element(binary("-", q, 1)))
    body = Let(p, binary("%", load, 5), Let(q, load, Store(c, (i,), both)))
    f = Func("f", (a, k, c), (False, False, True), For(i, 12, kind, body))
    x, at = np.arange(12, dtype="int32") * 7, (np.arange(12) * 5 % 12 + 1).astype(dtype)
    (got,) = run(f, x, at)
    np.testing.assert_array_equal(got, x[at % 5 + 1] + x[at - 1])


def test_a_let_of_another_dtype_is_refused() -> None:
    c = Buffer("c", (1,), "float32")
    body = Let(x := Var("x", "float32"), const(1, "int32"), Store(c, (const(0, "int32"),), x))
    f = Func("f", (c,), (True,), body)
    with pytest.raises(LowerError, match="'x' is float32; it cannot be bound to a value of int32"):
        interpret(f, [np.zeros(1, "float32")])
    with pytest.raises(CodegenError, match="'x' is float32, its value is of int32"):
        compile_func(f, Target("llvm"))


# ---------------------------------------------------------------- what is known when writing


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!="])
def test_comparisons_of_indices_are_decided_where_all_values_agree(op: str) -> None:
    """Against every value that the loop takes."""
    w, i = function_writer(), Var("%i", "int64")
    w.ranges[i] = (0, 3)
    seen = set()
    for factor, start, other in itertools.product((-2, 0, 1, 3), (-4, 0, 2), (-6, 0, 2, 5)):
        form = Affine(start, {i: factor} if factor else {})
        values = [factor * v + start for v in range(4)]
        results = {COMPARISONS[op](v, other) for v in values}
        # Bounds do not tell that a multiple steps over a number.
        between = op in ("==", "!=") and min(values) < other < max(values)
        known = w.decided(op, form, Affine(other))
        want = str(results.pop()).lower() if len(results) == 1 and not between else None
        assert (known and known.ref) == want
        seen.add(want)
    assert seen == {None, "true", "false"}


def test_a_guard_that_always_holds_leaves_no_mask() -> None:
    """Only the first and the last piece of a padded row are masked, by their lanes."""
    a, c, i = Buffer("a", (62,), "float32"), Buffer("c", (64,), "float32"), Var("i")
    inside = binary("and", binary(">=", i, 1), binary("<", i, 63))
    inner, zero = Load(a, (binary("-", i, 1),), "float32"), const(0.0, "float32")
    value = IfThenElse(inside, inner, zero, "float32")
    f = Func("main", (a, c), (False, True), For(i, 64, "vectorized", Store(c, (i,), value)))
    x = random(62, "float32")
    np.testing.assert_array_equal(run(f, x)[0], np.pad(x, 1))
    text = compile_func(f, Target("llvm -num-threads=1 -mcpu=x86-64")).source("ll-unoptimised")
    assert text.count("= call <4 x float> @llvm.masked.load") == 2
    assert text.count("= load <4 x float>") == 14


def test_what_operands_determine_is_written_once_a_scope() -> None:
    w = function_writer()
    first = w.pure("add i64 %a, 1")
    assert w.pure("add i64 %a, 1") == first
    w.scopes.append({})
    assert w.pure("add i64 %a, 1") == first
    inside = w.pure("add i64 %a, 2")
    w.scopes.pop()
    assert w.pure("add i64 %a, 2") != inside
    assert w.emit("load i64, ptr %p") != w.emit("load i64, ptr %p")


def function_writer() -> FunctionWriter:
    return FunctionWriter(ModuleWriter("main", Target("llvm -num-threads=1")), "main", False)
