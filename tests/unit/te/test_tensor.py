"""Tensors, axes and `compute`: what is built, and what is refused with which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ir.expr import Const, Read
from loopwright.ir.reduction import Reduce


def vec(n: int = 4, dtype: str = "float32", name: str = "A") -> te.Tensor:
    return te.placeholder((n,), dtype, name)


def mat(n: int = 4, m: int = 4, dtype: str = "float32", name: str = "A") -> te.Tensor:
    return te.placeholder((n, m), dtype, name)


# ------------------------------------------------------------------ what is built


def test_placeholder() -> None:
    a = te.placeholder((3, 4), "float64", name="X")
    assert (a.shape, a.dtype, a.name, a.ndim) == ((3, 4), "float64", "X", 2)
    assert isinstance(a.op, te.PlaceholderOp)
    assert a.op.output(0) is a
    assert a.op.input_tensors == []
    assert (a.op.num_outputs, a.value_index) == (1, 0)


def test_placeholder_defaults() -> None:
    a = te.placeholder(7)
    assert (a.shape, a.dtype, a.name) == ((7,), "float32", "placeholder")
    assert te.placeholder((2,), None).dtype == "float32"


def test_shapes_may_be_numpy_integers_lists_and_empty() -> None:
    assert te.placeholder([np.int64(3), np.uint8(4)]).shape == (3, 4)
    assert te.placeholder(np.int32(5)).shape == (5,)
    assert te.placeholder(()).shape == ()
    assert te.placeholder((64 / 16, 3)).shape == (4, 3)
    assert te.reduce_axis((0, 64 / 16)).extent == 4
    assert all(type(d) is int for d in te.placeholder(np.array([2, 3])).shape)


def test_compute_traces_its_function_once() -> None:
    calls = []
    a = mat()

    def element(i: Any, j: Any) -> Any:
        calls.append((i, j))
        return a[j, i] * 2.0

    c = te.compute((4, 4), element, name="C", tag="twice", attrs={"x": 1})
    assert len(calls) == 1
    assert [(x.name, x.extent, x.kind) for x in c.op.axis] == [
        ("i", 4, "spatial"),
        ("j", 4, "spatial"),
    ]
    assert c.op.reduce_axis == []
    assert c.op.input_tensors == [a]
    assert (c.op.tag, c.op.attrs) == ("twice", {"x": 1})
    i, j = (x.var for x in c.op.axis)
    assert c.op.body == Read(a, (j, i), "float32") * 2.0  # type: ignore[attr-defined]


def test_compute_of_a_reduction() -> None:
    a, b = mat(name="A"), mat(name="B")
    k = te.reduce_axis((0, 4), name="k")
    c = te.compute((4, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))
    assert isinstance(c.op.body, Reduce)  # type: ignore[attr-defined]
    assert c.op.reduce_axis == [k]
    assert c.op.input_tensors == [a, b]
    assert c.name == "compute"


def test_axis_names_come_from_the_function() -> None:
    a = te.placeholder((2, 3, 4))
    star = te.compute((2, 3, 4), lambda *i: a[i])
    assert [x.name for x in star.op.axis] == ["i0", "i1", "i2"]
    mixed = te.compute((2, 3, 4), lambda n, *rest: a(n, *rest))
    assert [x.name for x in mixed.op.axis] == ["n", "i1", "i2"]
    bound = te.compute((2,), lambda i, a=a: a[i, 0, 0])
    assert [x.name for x in bound.op.axis] == ["i"]


def test_inputs_are_named_once_in_the_order_of_use() -> None:
    a, b = vec(name="A"), vec(name="B")
    c = te.compute((4,), lambda i: te.if_then_else(b[i] > 0, a[i], b[i]))
    assert c.op.input_tensors == [b, a]


def test_a_zero_dimensional_compute() -> None:
    a = mat()
    k, m = te.reduce_axis(4), te.reduce_axis((0, 4))
    c = te.compute((), lambda: te.sum(a[k, m], axis=[k, m]))
    assert (c.shape, c.op.axis) == ((), [])
    assert c[()] == Read(c, (), "float32")
    assert c() == Read(c, (), "float32")


def test_elements() -> None:
    a = mat()
    i, j = te.Var("i"), te.Var("j")
    assert a[i, j] == a[i][j] == a(i, j)
    assert a[1, j].indices == (Const(1, "int32"), j)
    assert repr(a) == "Tensor(A: float32[4, 4])"


def test_indices_of_any_integer_type_and_guarded_ones() -> None:
    a, idx = mat(), te.placeholder((4,), "int64", name="idx")
    te.compute((4,), lambda i: a[idx[i], te.cast(idx[i], "uint8")])
    te.compute((6,), lambda i: te.if_then_else(te.all(i >= 1, i < 5), a[i - 1, 0], 0.0))
    te.compute((4, 4), lambda i, j: a[(i + j) % 4, (i * 4 + j) // 4])


def test_a_where_clause_guards_reads() -> None:
    a = vec()
    k = te.reduce_axis((0, 6), "k")
    te.compute((1,), lambda i: te.sum(a[k], axis=k, where=k < 4))


def test_create_schedule_is_at_its_place_in_te() -> None:
    c = te.compute((4,), lambda i: vec()[i] + 1)
    assert te.create_schedule(c.op)[c].op is c.op


def test_a_reduction_axis_takes_no_thread_tag() -> None:
    assert te.reduce_axis(4, "k", thread_tag="").thread_tag == ""
    with pytest.raises(TensorError, match=r"reduce_axis 'k': thread_tag='threadIdx.x' binds noth"):
        te.reduce_axis(4, "k", "threadIdx.x")


def test_operations_print_what_they_make() -> None:
    a = te.placeholder((4,), name="A")
    s, d = te.compute((4,), lambda i: (a[i] + 1.0, te.cast(a[i], "int32")), name="S")
    assert repr(a.op) == "PlaceholderOp(A: float32[4])"
    assert repr(s.op) == repr(d.op) == "ComputeOp(S.v0: float32[4], S.v1: int32[4])"


def test_thread_axis() -> None:
    t = te.thread_axis("threadIdx.x")
    assert (t.kind, t.thread_tag, t.name, t.extent) == ("thread", "threadIdx.x", "threadIdx.x", 0)
    b = te.thread_axis((0, 32), "blockIdx.z", name="bz")
    assert (b.thread_tag, b.name, b.extent) == ("blockIdx.z", "bz", 32)
    assert te.thread_axis(16, "vthread").extent == 16


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((4, 0), r"placeholder 'A': extents must be positive, got 0 in \(4, 0\)"),
        ((-3,), r"placeholder 'A': extents must be positive, got -3 in \(-3,\)"),
        (
            (4, 2.5),
            r"extents are positive integers, got 2\.5 in \(4, 2\.5\); divide with //",
        ),
        ((4, float("inf")), "placeholder 'A': extents are positive integers, got inf"),
        ((True, 4), "placeholder 'A': extents are positive integers, got True"),
        ("ab", "placeholder 'A': extents are positive integers, got 'a'"),
        (5.5, r"placeholder 'A': a shape is a sequence of positive integers, got 5\.5"),
        (None, "placeholder 'A': a shape is a sequence of positive integers, got None"),
        ((None, 4), "placeholder 'A': extents are positive integers, got None"),
    ],
)
def test_shapes(shape: Any, text: str) -> None:
    with pytest.raises(TensorError, match=text):
        te.placeholder(shape, name="A")
    with pytest.raises(TensorError, match=text.replace("placeholder", "compute")):
        te.compute(shape, lambda *i: 0.0, name="A")


@pytest.mark.parametrize(
    ("dom", "text"),
    [
        ((1, 4), r"reduce_axis 'k': domains start at 0, got \(1, 4\); shift the index instead"),
        ((0, 0), "reduce_axis 'k': extents must be positive, got 0"),
        ((0, 2.5), r"reduce_axis 'k': extents are positive integers, got 2\.5"),
        ((0, 4, 2), r"reduce_axis 'k': expected \(0, extent\), got \(0, 4, 2\)"),
        ((0,), r"reduce_axis 'k': expected \(0, extent\)"),
        (None, r"reduce_axis 'k': expected \(0, extent\), got None"),
        ("ab", r"reduce_axis 'k': expected \(0, extent\), got 'ab'"),
    ],
)
def test_domains(dom: Any, text: str) -> None:
    with pytest.raises(TensorError, match=text):
        te.reduce_axis(dom, name="k")


A4 = mat()
K4 = te.reduce_axis((0, 4), "k")


@pytest.mark.parametrize(
    ("shape", "function", "text"),
    [
        ((4, 4), lambda i: A4[i, 0], r"the function takes 1 axes \(i\), the shape has 2 dimension"),
        ((4,), lambda i, j: A4[i, j], r"takes 2 axes \(i, j\), the shape has 1 dimension\(s\)"),
        ((4,), lambda: 1.0, r"takes 0 axes \(\), the shape has 1"),
        ((4,), 3, "expected a function of the axes, got 3"),
        ((4,), lambda i: None, r"cannot use None \(a NoneType\) in a tensor expression"),
        ((4,), lambda i: A4, r"cannot use Tensor\(A: float32\[4, 4\]\) .* such as A\[i, j\]"),
        ((4,), lambda i: A4[i], "cannot use A with 1 of its 2 indices"),
        ((4,), lambda i: A4[i] + 1, "cannot use A with 1 of its 2 indices"),
        ((4,), lambda i: (), "the function returned no expression"),
        ((4,), lambda i: (A4[i, 0], i in {0, 1}), "returned the Python value False"),
        (
            (4,),
            lambda i: (te.sum(A4[i, K4], axis=K4), te.max(A4[i, K4], axis=K4)),
            "several reductions in one compute must be one reducer of tuples",
        ),
        ((4,), lambda i: (te.sum(A4[i, K4], axis=K4), 1.0), "several reductions in one compute"),
        (
            (4,),
            lambda i: te.argmax((K4, A4[i, K4]), axis=K4)[0],
            "a reduction of tuples makes all of its outputs; return the whole result",
        ),
        ((4,), lambda i: te.argmax((K4, A4[i, K4]), axis=K4)[1] + 1, "must be the whole body"),
        (
            (4,),
            lambda i: te.argmax((K4, A4[i, K4]), axis=K4)[::-1],
            "a reduction of tuples makes all of its outputs",
        ),
        ((4,), lambda i: i in {0, 1}, "returned the Python value False .* te.const.False. is"),
        (
            (4,),
            lambda i: te.sum(A4[i, K4], axis=K4) + 1.0,
            "a reduction must be the whole body; give it a compute of its own",
        ),
        ((4,), lambda i: te.exp(te.sum(A4[i, K4], axis=K4)), "must be the whole body"),
        (
            (4,),
            lambda i: te.sum(te.sum(A4[i, K4], axis=K4), axis=te.reduce_axis(2)),
            "must be the whole body",
        ),
        ((4,), lambda i: A4[i, K4], "axis 'k' does not belong to it; a reduce_axis is used inside"),
        ((4,), lambda i: A4[i, K4 // 2], "axis 'k' does not belong to it"),
        ((4,), lambda i: K4 + i, "axis 'k' does not belong to it"),
        ((4,), lambda i: A4[i, te.Var("other")], "axis 'other' does not belong to it"),
        ((4,), lambda i: A4[i, i + 1], r"index 1 of A runs from 1 to 4, the dimension has 4 elem"),
        ((5,), lambda i: A4[i, 0], "index 0 of A runs from 0 to 4, the dimension has 4 elements"),
        ((4,), lambda i: A4[i - 1, 0], "index 0 of A runs from -1 to 2.*guard it with te.if_then"),
        ((4,), lambda i: A4[4, i], "index 0 of A runs from 4 to 4"),
        ((4,), lambda i: A4[i, 0, 0], r"A has 2 dimension\(s\) \[4, 4\]; it was indexed with 3"),
        ((4,), lambda i: A4[0.5, i], "A: index 0 has dtype float32; indices are integers"),
        ((4,), lambda i: A4[i, A4[i, 0]], "A: index 1 has dtype float32"),
        ((4,), lambda i: A4[i > 0, 0], "A: index 0 has dtype bool"),
        ((4,), lambda i: A4[0:2, i], "A: slices are not indices; use one index a dimension"),
        ((4,), lambda i: A4["x", i], "cannot use 'x'"),
        ((4,), lambda i: i / 2, "'/' on integers"),
        ((4,), lambda i: te.select(i in {0}, 1.0, 2.0), "te.select: the condition is the Python"),
        ((4,), lambda i: 1.0 if A4[i, 0] > 0 else 2.0, "compute 'C': A.* has no truth value"),
    ],
)
def test_bodies(shape: Any, function: Any, text: str) -> None:
    with pytest.raises(TensorError, match=text):
        te.compute(shape, function, name="C")


@pytest.mark.parametrize("make", [te.if_then_else, te.select])
def test_a_guard_covers_only_what_it_can(make: Any) -> None:
    """The condition itself is always evaluated; `te.select` evaluates both sides as well."""
    with pytest.raises(TensorError, match="index 0 of A runs from -1"):
        te.compute((4,), lambda i: make(A4[i - 1, 0] > 0, 1.0, 0.0), name="C")
    if make is te.select:
        with pytest.raises(TensorError, match="index 0 of A runs from -1"):
            te.compute((4,), lambda i: te.select(i > 0, A4[i - 1, 0], 0.0), name="C")


def test_errors_of_compute_name_it() -> None:
    with pytest.raises(TensorError, match="compute 'my_op': "):
        te.compute((4,), lambda i: A4[i, i + 1], name="my_op")


def test_errors_of_the_users_function_pass_through() -> None:
    def broken(i: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        te.compute((4,), broken)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: te.thread_axis("threadIdx.w"),
            "thread_axis: unknown tag 'threadIdx.w'; use one of",
        ),
        (lambda: te.thread_axis(), "thread_axis: unknown tag ''"),
        (lambda: A4.op.output(1), r"A has one output; there is no output\(1\)"),
        (lambda: te.placeholder((4,), "uint4"), "unknown dtype 'uint4'"),
        (lambda: te.placeholder((4,), "real"), "unknown dtype 'real'"),
    ],
)
def test_other_refusals(make: Any, text: str) -> None:
    with pytest.raises(TensorError, match=text):
        make()


def test_names_of_variable_arguments() -> None:
    def names(f: Any, given: Any) -> list[str]:
        op = te.compute((2, 3, 4), f, varargs_names=given).op
        return [a.var.name for a in op.axis]

    assert names(lambda *i: 1.0, None) == ["i0", "i1", "i2"]
    assert names(lambda *i: 1.0, ["n", "h", "w"]) == ["n", "h", "w"]
    assert names(lambda n, *i: 1.0, ("h", "w")) == ["n", "h", "w"]
    with pytest.raises(TensorError, match=r"varargs_names has 3 name\(s\), \*args gets 2 of the 3"):
        names(lambda n, *i: 1.0, ["n", "h", "w"])
    with pytest.raises(TensorError, match="varargs_names is for a function with"):
        names(lambda i, j, k: 1.0, ["n", "h", "w"])


@pytest.mark.parametrize(
    "body",
    [
        lambda A, i, k: _doubled(A[i, i]),
        lambda A, i, k: A[_doubled(i) % 8, 0],
        lambda A, i, k: te.sum(_doubled(A[i, k]), axis=k),
        lambda A, i, k: te.sum(A[i, k], axis=k, where=_doubled(A[i, k]) > 0),
        lambda A, i, k: (A[i, 0], te.if_then_else(_doubled(A[i, i]) > 0, 1.0, 0.0)),
    ],
)
def test_an_expression_that_uses_its_parts_too_often_is_refused_at_once(
    body: Callable[..., object],
) -> None:
    A, k = te.placeholder((8, 8), name="A"), te.reduce_axis((0, 8), name="k")
    with pytest.raises(TensorError, match=r"'B': the expression has \d{13} nodes, more than"):
        te.compute((8,), lambda i: body(A, i, k), name="B")


def _doubled(x: te.Expr, times: int = 40) -> te.Expr:
    for _ in range(times):
        x = x + x
    return x
