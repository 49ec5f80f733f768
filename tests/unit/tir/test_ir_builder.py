"""The builder of statements in TVM's forms, run through tensorize and compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import loopwright as tvm
from loopwright import te, tir
from loopwright.errors import TensorError

Write = Callable[[tir.ir_builder.IRBuilder, Any, Any], None]


def run(write: Write, rows: int = 4, columns: int = 6) -> npt.NDArray[Any]:
    """What an intrinsic makes of ``arange``; its description is the sum with 1."""
    x = te.placeholder((rows, columns), "int32", name="x")
    y = te.compute((rows, columns), lambda i, j: x[i, j] + 1, name="y")

    def statements(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        write(ib, ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0]))
        return ib.get()

    intrin = te.decl_tensor_intrin(y.op, statements, name="written", approximate=True)
    s = te.create_schedule(y.op)
    s[y].tensorize(y.op.axis[0], intrin)
    out = np.zeros((rows, columns), "int32")
    tvm.build(s, [x, y], "llvm")(np.arange(rows * columns, dtype="int32").reshape(rows, -1), out)
    return out


WANTED = np.arange(24).reshape(4, 6) + 1


@pytest.mark.parametrize("kind", ["serial", "unroll", "unrolled", "vectorize", "vectorized"])
def test_loops_of_every_kind(kind: str) -> None:
    def write(ib: Any, x: Any, y: Any) -> None:
        with ib.for_range(0, 4, "i") as i, ib.for_range(0, 6, "j", kind=kind) as j:
            y[i, j] = x[i, j] + 1

    np.testing.assert_array_equal(run(write), WANTED)


def test_one_index_counts_row_by_row_and_loops_begin_where_they_are_told() -> None:
    def write(ib: Any, x: Any, y: Any) -> None:
        with ib.for_range(0, 10, name="k", dtype="int32") as k:
            y[k] = x[k] + 1
        with ib.for_range(10, 24) as k:
            y[k] = x[k] + 1
        assert (x.shape, x.dtype) == ((4, 6), "int32")
        assert repr(y) == "BufferVar(y: int32[4, 6])"

    np.testing.assert_array_equal(run(write), WANTED)


def test_bounds_are_whole_numbers_of_any_kind() -> None:
    def write(ib: Any, x: Any, y: Any) -> None:
        with ib.for_range(0, 8 / 2, "i") as i:
            with ib.for_range(np.int64(0), te.const(2), "j") as j:
                y[i, j] = x[i, j] + 1
            with ib.for_range(te.const(2), 6.0, "j") as j:
                y[i, j] = x[i, j] + 1

    np.testing.assert_array_equal(run(write), WANTED)


def test_branches_and_allocations_end_with_their_scope() -> None:
    def write(ib: Any, x: Any, y: Any) -> None:
        with ib.for_range(0, 4, "i") as i:
            row = ib.allocate("int32", (6,), name="row", scope="local")
            with ib.for_range(0, 6, "j") as j:
                with ib.if_scope(ib.likely(j % 2 < 1)):
                    row[j] = x[i, j]
                with ib.else_scope():
                    row[j] = x[i, j] + 100
            with ib.for_range(0, 6, "j") as j:
                y[i, j] = row[j] + 1

    odd = np.arange(6) % 2 * 100
    np.testing.assert_array_equal(run(write), WANTED + odd)


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (
            lambda ib, x, y: ib.for_range(0, 4, kind="parallel").__enter__(),
            "for_range 'i': unknown kind 'parallel'.*serial, vectorize or unroll",
        ),
        (lambda ib, x, y: ib.for_range(3, 3).__enter__(), "extents must be positive, got 0"),
        (lambda ib, x, y: ib.for_range(0, te.var("n")).__enter__(), "the bounds are whole numbers"),
        (lambda ib, x, y: ib.for_range(0, 2.5).__enter__(), "are whole numbers, got 0, 2.5"),
        (
            lambda ib, x, y: ib.allocate("int32", (4,), scope="shared"),
            "scope='shared' is not supported",
        ),
        (lambda ib, x, y: ib.else_scope().__enter__(), "stands directly behind an if_scope"),
        (lambda ib, x, y: ib.if_scope(False).__enter__(), "if_scope: the condition is the Python"),
        (lambda ib, x, y: ib.emit(3), "emit: expected a statement"),
        (lambda ib, x, y: ib.for_range(0, 4).__enter__(), "get: a loop is still open"),
        (lambda ib, x, y: x[0, 0, 0], "x has 2 dimension"),
    ],
)
def test_what_cannot_be_written_is_said(write: Write, text: str) -> None:
    with pytest.raises(TensorError, match=text):
        run(write)
