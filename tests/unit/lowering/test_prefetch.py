"""What loops prefetch: golden nests, run by the interpreter, and what passes keep of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Var, as_expr, binary
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Allocate, For, Func, Prefetch, Seq, Store
from loopwright.lowering import lower
from loopwright.lowering.context import PassContext
from loopwright.lowering.passes.simplify import remove_no_op
from loopwright.lowering.passes.storage_rewrite import storage_rewrite
from loopwright.schedule import Schedule, create_schedule


def product(m: int = 6, n: int = 40, k: int = 10) -> tuple[Schedule, list[te.Tensor]]:
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return create_schedule(c), [a, b, c]


def checked(s: Schedule, args: list[te.Tensor]) -> str:
    with PassContext(3, config={"verify": True}):
        f = lower(s, args)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, t.shape).astype("float32") for t in args[:2])
    c = np.full(args[2].shape, np.nan, "float32")
    interpret(f, [a, b, c])
    np.testing.assert_array_equal(c, a @ b)
    return str(f)


def test_rows_of_an_operand(golden: Any) -> None:
    """Both copies of the nest prefetch rows that later iterations of the loop around read."""
    s, args = product()
    i, j = s[args[2]].op.axis
    ko, ki = s[args[2]].split(s[args[2]].op.reduce_axis[0], factor=4)
    jo, ji = s[args[2]].split(j, factor=32)
    s[args[2]].reorder(i, jo, ko, ki, ji)
    s[args[2]].vectorize(ji)
    s[args[2]].prefetch(args[1], ki, 3)
    golden(checked(s, args))


def test_what_stages_inside_the_loop_read(golden: Any) -> None:
    """A copy of B made at the loop reads a tile of B; loops are fused, so the tile has parts."""
    s, (a, b, c) = product(4, 36, 3)
    jo, ji = s[c].split(c.op.axis[1], factor=12)
    f = s[c].fuse(c.op.axis[0], jo)
    s[c].reorder(f, ji)
    packed = s.cache_read(b, "local", [c])
    s[packed].compute_at(s[c], f)
    s[c].prefetch(b, f, 2)
    golden(checked(s, [a, b, c]))


def test_a_buffer_of_another_layout_with_two_halves(golden: Any) -> None:
    """The prefetch names elements of the buffer as it is: its layout, and the half in use."""
    s, (a, b, c) = product(3, 64, 4)
    packed = s.cache_read(b, "local", [c])
    s[packed].transform_layout(lambda k, j: (j // 16, k, j % 16))
    s[packed].compute_at(s[c], c.op.axis[0])
    s[packed].double_buffer()
    jo, ji = s[c].split(c.op.axis[1], factor=16)
    s[c].reorder(jo, c.op.reduce_axis[0], ji)
    s[c].prefetch(packed, jo, 1)
    golden(checked(s, [a, b, c]))


def test_reads_apart_are_prefetched_apart() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((16,), lambda i: a[i] + a[i + 1] + a[i * 2 + 20], name="B")
    s = create_schedule(b)
    s[b].prefetch(a, b.op.axis[0], 4)
    found = [x.strip() for x in str(lower(s, [a, b])).splitlines() if "prefetch" in x]
    assert found == ["prefetch A[i + 4]", "prefetch A[i * 2 + 28]"]


@pytest.mark.parametrize(("dtype", "lines"), [("int8", 1), ("float32", 4), ("float64", 8)])
def test_a_line_is_64_bytes(dtype: str, lines: int) -> None:
    a = te.placeholder((8, 64), dtype, name="A")
    b = te.compute((8, 64), lambda i, j: a[i, j] + a[i, j], name="B")
    s = create_schedule(b)
    s[b].prefetch(a, b.op.axis[0], 1)
    f = lower(s, [a, b])
    text = str(f)
    assert "prefetch A[i + 1, 0]" in text if lines == 1 else f"unrolled({lines})" in text
    x = np.arange(512).reshape(8, 64).astype(dtype)
    out = np.zeros_like(x)
    interpret(f, [x, out])
    np.testing.assert_array_equal(out, x + x)


def test_a_scalar_and_an_only_iteration() -> None:
    """A scalar has one line; where a loop runs once there is nothing ahead."""
    a = te.placeholder((), name="A")
    b = te.compute((4, 1), lambda i, j: a() * 2.0, name="B")
    s = create_schedule(b)
    s[b].prefetch(a, b.op.axis[0], 1)
    s[b].prefetch(a, b.op.axis[1], 1)
    text = str(lower(s, [a, b], simple_mode=True))
    assert text.count("prefetch A[]") == 1


def test_symbolic_sizes_prefetch_rows_of_any_length() -> None:
    n = te.var("n")
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[i, j] + 1.0, name="B")
    s = create_schedule(b)
    s[b].prefetch(a, b.op.axis[0], 1)
    f = lower(s, [a, b])
    assert "prefetch A[i + 1, p1 * 16]" in str(f)
    x = np.random.default_rng(0).random((19, 19)).astype("float32")
    out = np.zeros_like(x)
    interpret(f, [x, out])
    np.testing.assert_array_equal(out, x + np.float32(1))


def test_passes_keep_prefetches_and_their_buffers() -> None:
    """A buffer that is only prefetched stays; one prefetched first is in use from then on."""
    i, j = Var("i"), Var("j")
    a, out = Buffer("A", (2048,), "float32"), Buffer("B", (2048,), "float32")
    t, u = Buffer("T", (2048,), "float32"), Buffer("U", (2048,), "float32")
    ahead = For(j, 4, "serial", Prefetch(t, (binary("*", j, 16),)))
    f = Func("main", (a,), (True,), Allocate(t, Seq((ahead,))))
    text = str(remove_no_op(f))
    assert "prefetch T[j * 16]" in text
    assert "alloc" in text

    def copy(to: Buffer, source: Buffer) -> For:
        k = Var("k")
        return For(k, 2048, "serial", Store(to, (k,), Load(source, (k,), "float32")))

    fill = For(i, 2048, "serial", Store(t, (i,), as_expr(1.0)))
    line = (Prefetch(u, (as_expr(0),)), fill, copy(out, t), copy(u, out), copy(a, u))
    f = Func("main", (a, out), (True, True), Allocate(t, Allocate(u, Seq(line))))
    assert "view" not in str(storage_rewrite(f)), "U is in use before T's last use"
