"""tensorize: what it refuses when it is applied, and every difference of a nest by its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.schedule import Schedule, primitives
from loopwright.schedule.steps import Step

HEAD = "tensorize (step {}): the nest inside loop {!r} is not intrinsic 'dot': "
DECLARE = "; declare an intrinsic that does what the nest does"
LOOPS = "; split and reorder so that these loops, and no others, stand from this one inwards"


def dot(rows: int = 4, k: int = 8, dtype: str = "float32", update: bool = True) -> te.TensorIntrin:
    a = te.placeholder((rows, k), dtype, name="a")
    x = te.placeholder((k,), dtype, name="x")
    r = te.reduce_axis((0, k), name="r")
    y = te.compute((rows,), lambda i: te.sum(a[i, r] * x[r], axis=r), name="y")

    def statements(ins: Any, outs: Any) -> Any:
        s = outs[0].store(0, ins[0][0, 0])
        return (s, s, s) if update else s

    return te.decl_tensor_intrin(y.op, statements, name="dot", approximate=True)


def program(
    element: Callable[..., Any] | None = None, n: int = 4, k: int = 8, dtype: str = "float32"
) -> tuple[Schedule, te.Tensor, te.IterVar]:
    A = te.placeholder((n, k), dtype, name="A")
    X = te.placeholder((k,), dtype, name="X")
    r = te.reduce_axis((0, k), name="k")
    body = element or (lambda A, X, r, i: te.sum(A[i, r] * X[r], axis=r))
    Y = te.compute((n,), lambda i: body(A, X, r, i), name="Y")
    return te.create_schedule(Y.op), Y, Y.op.axis[0]


def refused(s: Schedule) -> str:
    with pytest.raises(ScheduleError) as e:
        s.validate()
    return str(e.value)


def test_a_nest_that_matches_is_accepted() -> None:
    s, Y, i = program()
    s[Y].tensorize(i, dot())
    s.validate()
    assert s.trace[-1] == primitives.Tensorize(2, "a0", dot())


def test_a_product_the_other_way_round_matches() -> None:
    s, Y, i = program(lambda A, X, r, i: te.sum(X[r] * A[i, r], axis=r))
    s[Y].tensorize(i, dot())
    s.validate()


def test_tensorize_takes_an_intrinsic() -> None:
    s, Y, i = program()
    with pytest.raises(ScheduleError) as e:
        s[Y].tensorize(i, "dot")
    assert str(e.value) == (
        "tensorize (step 0): expected an intrinsic of te.decl_tensor_intrin, got 'dot'"
    )


def test_one_intrinsic_a_stage() -> None:
    s, Y, i = program()
    s[Y].tensorize(i, dot())
    with pytest.raises(ScheduleError) as e:
        s[Y].tensorize(i, dot())
    assert str(e.value) == (
        "tensorize (step 1): 'Y' is already tensorized at loop 'Y.i' (step 0); a stage has one "
        "intrinsic"
    )


def test_several_outputs() -> None:
    A = te.placeholder((4,), name="A")
    B, _ = te.compute((4,), lambda i: (A[i], -A[i]), name="B")
    s = te.create_schedule([B.op])
    with pytest.raises(ScheduleError) as e:
        s[B].tensorize(B.op.axis[0], dot())
    assert str(e.value) == "tensorize (step 0): 'B' has 2 outputs; an intrinsic makes one"


def test_a_tensorized_loop_is_not_taken_apart() -> None:
    s, Y, i = program()
    s[Y].tensorize(i, dot())
    with pytest.raises(ScheduleError) as e:
        s[Y].split(i, factor=2)
    assert str(e.value) == (
        "split (step 1): loop 'Y.i' is tensorized (step 0); split it before that"
    )
    with pytest.raises(ScheduleError) as e:
        s.rfactor(Y, Y.op.reduce_axis[0])
    assert str(e.value) == (
        "rfactor (step 1): 'Y' is tensorized (step 0); call rfactor before that and tensorize the "
        "stage of partial results"
    )
    with pytest.raises(ScheduleError, match="cache_write"):
        s.cache_write(Y, "local")


def test_extents_that_differ() -> None:
    s, Y, i = program(n=6)
    s[Y].tensorize(i, dot())
    assert refused(s) == HEAD.format(0, "Y.i") + (
        "the intrinsic wants axes i = 4; the nest has i = 6; extent 0: 4 and 6" + LOOPS
    )


def test_reduction_extents_that_differ() -> None:
    s, Y, i = program(k=16)
    s[Y].tensorize(i, dot())
    assert refused(s) == HEAD.format(0, "Y.i") + (
        "the intrinsic wants reduction axes r = 8; the nest has k = 16; extent 0: 8 and 16" + LOOPS
    )


def test_axes_that_are_missing() -> None:
    s, Y, i = program(n=1)
    s[Y].tensorize(i, dot())
    assert refused(s).endswith("the intrinsic wants axes i = 4; the nest has none" + LOOPS)


def test_dtypes_that_differ() -> None:
    s, Y, i = program(dtype="float64")
    s[Y].tensorize(i, dot())
    assert refused(s) == HEAD.format(0, "Y.i") + (
        "the result of the intrinsic is float32, that of the nest float64" + DECLARE
    )


def test_operands_of_another_dtype() -> None:
    A = te.placeholder((4, 8), "int8", name="A")
    X = te.placeholder((8,), "uint8", name="X")
    r = te.reduce_axis((0, 8), name="k")
    Y = te.compute(
        (4,), lambda i: te.sum(A[i, r].astype("int32") * X[r].astype("int32"), axis=r), name="Y"
    )
    s = te.create_schedule(Y.op)
    s[Y].tensorize(Y.op.axis[0], wide("int8", "int8"))
    assert refused(s) == HEAD.format(0, "Y.i") + (
        "operand 'x' is int8; the nest reads 'X', which is uint8" + DECLARE
    )


def wide(left: str, right: str) -> te.TensorIntrin:
    a, x = te.placeholder((4, 8), left, name="a"), te.placeholder((8,), right, name="x")
    r = te.reduce_axis((0, 8), name="r")
    y = te.compute(
        (4,), lambda i: te.sum(a[i, r].astype("int32") * x[r].astype("int32"), axis=r), name="y"
    )
    return te.decl_tensor_intrin(
        y.op, lambda ins, outs: outs[0].store(0, 0), name="dot", approximate=True
    )


def test_operands_in_the_other_order_are_told_apart_by_dtype() -> None:
    A = te.placeholder((4, 8), "int8", name="A")
    X = te.placeholder((8,), "uint8", name="X")
    r = te.reduce_axis((0, 8), name="k")
    Y = te.compute(
        (4,), lambda i: te.sum(X[r].astype("int32") * A[i, r].astype("int32"), axis=r), name="Y"
    )
    s = te.create_schedule(Y.op)
    s[Y].tensorize(Y.op.axis[0], wide("int8", "uint8"))
    s.validate()


@pytest.mark.parametrize(
    ("element", "text"),
    [
        (
            lambda A, X, r, i: te.sum(A[i, r] + X[r], axis=r),
            "the intrinsic computes a[i, r] * x[r], the nest A[i, k] + X[k]" + DECLARE,
        ),
        (
            lambda A, X, r, i: te.max(A[i, r] * X[r], axis=r),
            "the intrinsic reduces with 'sum', the nest with 'max'" + DECLARE,
        ),
        (
            lambda A, X, r, i: te.sum(A[i, r] * X[r], axis=r, where=r > 2),
            "the reduction of the nest has a condition (where=), which no intrinsic has; put it "
            "into a stage that the reduction reads",
        ),
        (
            lambda A, X, r, i: te.sum(A[i, r] * X[r], axis=r, init=2.0),
            "the reduction starts from init=, and the body of the intrinsic from 0.0; add that "
            "value in a stage of its own",
        ),
        (
            lambda A, X, r, i: te.sum(A[i, r] * 2.0, axis=r),
            "the intrinsic computes x[r] (float32), the nest 2.0 (float32)" + DECLARE,
        ),
        (
            lambda A, X, r, i: te.sum((A[i, r] + 1.0) * 2.0, axis=r),
            "the intrinsic computes a[i, r] (float32), the nest A[i, k] + 1.0" + DECLARE,
        ),
    ],
)
def test_expressions_that_differ(element: Any, text: str) -> None:
    s, Y, i = program(element)
    s[Y].tensorize(i, dot())
    assert refused(s) == HEAD.format(0, "Y.i") + text


def test_a_reduction_on_one_side_only() -> None:
    A = te.placeholder((4, 8), name="A")
    Y = te.compute((4,), lambda i: A[i, 0], name="Y")
    s = te.create_schedule(Y.op)
    s[Y].tensorize(Y.op.axis[0], dot())
    assert refused(s) == HEAD.format(0, "Y.i") + "a reduction is on one side only" + DECLARE


def test_one_operand_that_would_be_two() -> None:
    a = te.placeholder((4,), name="a")
    y = te.compute((4,), lambda i: a[i] * a[i], name="y")
    square = te.decl_tensor_intrin(
        y.op, lambda ins, outs: outs[0].store(0, 0), name="dot", approximate=True
    )
    A, B = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
    Y = te.compute((4,), lambda i: A[i] * B[i], name="Y")
    s = te.create_schedule(Y.op)
    s[Y].tensorize(Y.op.axis[0], square)
    assert refused(s).endswith(
        "operand 'a' would be two elements: A[i] (float32) and B[i] (float32)" + DECLARE
    )


def test_a_reduction_outside_needs_an_update() -> None:
    s, Y, i = program(k=16)
    ro, ri = s[Y].split(Y.op.reduce_axis[0], factor=8)
    s[Y].reorder(ro, i, ri)
    s[Y].tensorize(i, dot(update=False))
    assert refused(s) == HEAD.format(2, "Y.i") + (
        "loop 'Y.k.0' of the reduction stands outside, and the intrinsic has no update that adds "
        "to the result; declare it, or tensorize a loop outside of this one"
    )


def test_loops_inside_that_are_marked() -> None:
    s, Y, i = program()
    s[Y].unroll(Y.op.reduce_axis[0])
    s[Y].tensorize(i, dot())
    assert refused(s) == HEAD.format(1, "Y.i") + (
        "loop 'Y.k' is unrolled (step 0); the intrinsic says how its loops run, take the mark away"
    )


def test_a_vector_around_it() -> None:
    s, Y, i = program(n=8)
    io, ii = s[Y].split(i, factor=4)
    s[Y].vectorize(io)
    s[Y].tensorize(ii, dot())
    assert refused(s) == HEAD.format(2, "Y.i.1") + (
        "it lies inside loop 'Y.i.0', which is vectorized; an intrinsic runs in serial, unrolled "
        "and parallel loops"
    )


def test_threads_around_it() -> None:
    s, Y, i = program(n=8)
    io, ii = s[Y].split(i, factor=4)
    s[Y].bind(io, te.thread_axis("threadIdx.x"))
    s[Y].tensorize(ii, dot())
    assert refused(s) == HEAD.format(2, "Y.i.1") + (
        "the stage runs in a kernel of thread axes, and this intrinsic is for CPUs; those of "
        "tensor cores are te.intrinsics.mma_m16n8k16, mma_m16n8k8 and ldmatrix_x4"
    )


def test_a_stage_computed_inside() -> None:
    A = te.placeholder((4, 8), name="A")
    X = te.placeholder((8,), name="X")
    B = te.compute((4, 8), lambda i, j: A[i, j] * 2.0, name="B")
    r = te.reduce_axis((0, 8), name="k")
    Y = te.compute((4,), lambda i: te.sum(B[i, r] * X[r], axis=r), name="Y")
    s = te.create_schedule(Y.op)
    s[B].compute_at(s[Y], Y.op.axis[0])
    s[Y].tensorize(Y.op.axis[0], dot())
    assert refused(s) == HEAD.format(1, "Y.i") + (
        "stage 'B' is computed or stored at loop 'Y.i'; use a loop outside"
    )


def test_axes_fused_inside() -> None:
    A = te.placeholder((4, 8), name="A")
    C = te.compute((4, 8), lambda i, j: A[i, j] + 1.0, name="C")
    s = te.create_schedule(C.op)
    f = s[C].fuse(*C.op.axis)
    a = te.placeholder((4, 8), name="a")
    c = te.compute((4, 8), lambda i, j: a[i, j] + 1.0, name="c")
    s[C].tensorize(
        f,
        te.decl_tensor_intrin(
            c.op, lambda ins, outs: outs[0].store((0, 0), 0), "dot", approximate=True
        ),
    )
    assert refused(s) == HEAD.format(1, "C.i.j") + (
        "axis 'i' is fused with another inside; fuse outside only"
    )


def test_loops_inside_that_leave_a_gap() -> None:
    s, Y, i = program(n=8)
    io, ii = s[Y].split(i, factor=2)
    s[Y].reorder(ii, io)
    s[Y].tensorize(io, dot())
    assert refused(s) == HEAD.format(2, "Y.i.0") + (
        "the loops inside do not run through one range of axis 'i' (steps of 2 where 1 would go on)"
    )


def test_a_loop_whose_extent_is_not_known() -> None:
    n = te.size_var("n")
    A = te.placeholder((n,), name="A")
    C = te.compute((n,), lambda i: A[i] + 1.0, name="C")
    s = te.create_schedule(C.op)
    s[C].tensorize(C.op.axis[0], dot())
    assert (
        refused(s)
        == HEAD.format(0, "C.i") + "loop 'C.i' has no constant extent; split it by a constant"
    )


def test_json_of_a_step() -> None:
    step = primitives.Tensorize(2, "a0", dot())
    again = Step.from_json(step.to_json())
    assert again == step
    bad = step.to_json()
    bad[3] = {**bad[3], "extra": 1}
    with pytest.raises(ScheduleError, match="trace: tensorize: the JSON of an intrinsic has the"):
        Step.from_json(bad)
    with pytest.raises(ScheduleError, match="which is no TensorIntrin"):
        Step.from_json(["tensorize", 2, "a0", "dot"])
