"""Programs of symbolic sizes: the nests that they become, and what the interpreter makes of them.

One lowered function is run on many sizes, tails and sizes below a tile included, and compared with
NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.errors import RunError, ScheduleError
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Func
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule

Array = np.ndarray[Any, Any]
SIZES = (1, 2, 3, 4, 7, 8, 9, 16, 17)


def product() -> tuple[Schedule, te.Tensor, te.Tensor, te.Tensor]:
    n, m, k = te.var("n"), te.size_var("m"), te.var("k")
    A = te.placeholder((n, k), name="A")
    B = te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return create_schedule(C.op), A, B, C


def plain(s: Schedule, B: te.Tensor, C: te.Tensor) -> None:
    pass


def flat(s: Schedule, B: te.Tensor, C: te.Tensor) -> None:
    outer, inner = s[C].split(s[C].fuse(*C.op.axis), 8)
    s[C].parallel(outer)
    s[C].vectorize(inner)


def parts(s: Schedule, B: te.Tensor, C: te.Tensor) -> None:
    outer, inner = s[C].split(C.op.axis[0], nparts=3)
    s[C].parallel(outer)
    s[C].split(inner, factor=2)


def packed(s: Schedule, B: te.Tensor, C: te.Tensor) -> None:
    """The register tile and the packed panels of ops/matmul.py."""
    i, j = C.op.axis
    CL = s.cache_write(C, "local")
    BL = s.cache_read(B, "local", [CL])
    i0, i2 = s[C].split(i, 4)
    i0, i1 = s[C].split(i0, 2)
    j0, j2 = s[C].split(j, 8)
    s[C].reorder(j0, i0, i1, i2, j2)
    task = s[C].fuse(j0, i0)
    s[C].parallel(task)
    s[C].unroll(i2)
    s[C].vectorize(j2)
    s[CL].compute_at(s[C], i1)
    ci, cj = s[CL].op.axis
    ko, ki = s[CL].split(s[CL].op.reduce_axis[0], factor=2)
    s[CL].reorder(ko, ki, ci, cj)
    s[CL].unroll(ci)
    s[CL].vectorize(cj)
    s[CL].unroll(ki)
    s[BL].compute_at(s[C], task)
    s[BL].transform_layout(lambda k, n: (n // 8, k, n % 8))
    rows, columns = s[BL].op.axis
    outer, inner = s[BL].split(columns, 8)
    s[BL].reorder(outer, rows, inner)
    s[BL].vectorize(inner)


def panel_at_root(s: Schedule, B: te.Tensor, C: te.Tensor) -> None:
    """A copy of all of B, in blocks of four columns."""
    BL = s.cache_read(B, "global", [C])
    s[BL].transform_layout(lambda k, n: (n // 4, k, n % 4))
    s[C].tile(*C.op.axis, 2, 4)


def run(f: Func, *inputs: Array, out: tuple[int, ...], **sizes: int) -> Array:
    result = np.full(out, np.nan, "float32")
    interpret(f, [*inputs, result], sizes)
    return result


@pytest.mark.parametrize("schedule", [plain, flat, parts, packed, panel_at_root])
def test_matmul_of_any_size(schedule: Callable[..., None]) -> None:
    s, A, B, C = product()
    schedule(s, B, C)
    f = lower(s, [A, B, C])
    rng = np.random.default_rng(0)
    for trial in range(12):
        n, m, k = rng.choice(SIZES, 3) if trial else (1, 1, 1)
        a, b = rng.integers(-4, 4, (n, k)), rng.integers(-4, 4, (k, m))
        got = run(f, a.astype("float32"), b.astype("float32"), out=(n, m))
        np.testing.assert_array_equal(got, a @ b, err_msg=f"{n} {m} {k}")


@pytest.mark.parametrize("schedule", [plain, flat, parts, packed], ids=lambda s: s.__name__)
def test_golden_nests(schedule: Callable[..., None], golden: Callable[[str], None]) -> None:
    s, A, B, C = product()
    schedule(s, B, C)
    golden(str(lower(s, [A, B, C])))


@pytest.mark.parametrize("tile", [1, 3, 4, None])
def test_windows_with_padding(tile: int | None) -> None:
    """A padded row of symbolic length, its producer computed in tiles of the consumer."""
    w = te.size_var("w")
    A = te.placeholder((w,), name="A")
    P = te.compute(
        (w + 2,),
        lambda x: te.if_then_else(te.all(x >= 1, x < w + 1), A[x - 1], 0.0),
        name="P",
    )
    r = te.reduce_axis((0, 3), name="r")
    C = te.compute((w,), lambda x: te.sum(P[x + r] * (r + 1), axis=r), name="C")
    s = create_schedule(C.op)
    if tile:
        outer, _ = s[C].split(C.op.axis[0], tile)
        s[P].compute_at(s[C], outer)
        assert s.bounds().stages[s[P].id].shape == [tile + 2]
    f = lower(s, [A, C])
    for n in SIZES:
        a = np.arange(1, n + 1, dtype="float32")
        p = np.pad(a, 1)
        want = p[:-2] + 2 * p[1:-1] + 3 * p[2:]
        np.testing.assert_array_equal(run(f, a, out=(n,)), want)


def test_a_row_is_computed_where_it_is_needed() -> None:
    """A producer at the row loop has one row of symbolic length."""
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, m), name="k")
    C = te.compute((n,), lambda i: te.sum(B[i, k], axis=k), name="C")
    s = create_schedule(C.op)
    s[B].compute_at(s[C], C.op.axis[0])
    f = lower(s, [A, C])
    assert "B = alloc(float32[1, m], global)" in str(f)
    for rows, columns in ((1, 1), (3, 5), (4, 17)):
        a = np.arange(rows * columns, dtype="float32").reshape(rows, columns)
        np.testing.assert_array_equal(run(f, a, out=(rows,)), 2 * a.sum(1))


@pytest.mark.parametrize(
    ("extent", "index", "at"),
    [
        (lambda n: n * 2, lambda i, n: i // 2, lambda x, n: x // 2),
        (lambda n: n + 3, lambda i, n: te.max(i - 3, 0), lambda x, n: np.maximum(x - 3, 0)),
        (
            lambda n: (n + 1) // 2,
            lambda i, n: te.min(i * 2, n - 1),
            lambda x, n: np.minimum(x * 2, n - 1),
        ),
        (lambda n: n * n, lambda i, n: i // n, lambda x, n: x // n),
        (lambda n: n * n, lambda i, n: i % n, lambda x, n: x % n),
    ],
    ids=["twice", "more", "half", "quotient", "rest"],
)
def test_extents_that_are_expressions(extent: Any, index: Any, at: Any) -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((extent(n),), lambda i: A[index(i, n)], name="B")
    C = te.compute((extent(n),), lambda i: B[i] + 1.0, name="C")
    s = create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], 4)
    s[B].compute_at(s[C], outer)
    s[C].vectorize(inner)
    f = lower(s, [A, C])
    for size in (1, 2, 5, 8):
        a = np.arange(size, dtype="float32")
        want = a[at(np.arange(extent(size)), size)] + 1
        np.testing.assert_array_equal(run(f, a, out=want.shape), want)


def test_a_size_that_no_array_tells() -> None:
    n, shift = te.var("n"), te.size_var("shift")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[te.min(i + shift, n - 1)], name="B")
    f = lower(create_schedule(B.op), [A, B])
    assert [v.name for v in f.sizes] == ["n", "shift"]
    a = np.arange(5, dtype="float32")
    np.testing.assert_array_equal(run(f, a, out=(5,), shift=2), [2, 3, 4, 4, 4])
    with pytest.raises(RunError, match="main: no array tells the size 'shift'; give it in sizes"):
        run(f, a, out=(5,))


@pytest.mark.parametrize("threads", [1, 2])
def test_accumulators_of_threads_have_symbolic_extents(threads: int) -> None:
    """A reduction bound to threads keeps an element for each spatial iteration inside it."""
    n = te.var("n")
    A = te.placeholder((n + 2, threads), name="A")
    r = te.reduce_axis((0, threads), name="r")
    B = te.compute((n + 2,), lambda i: te.sum(A[i, r], axis=r), name="B")
    s = create_schedule(B.op)
    s[B].bind(r, "threadIdx.x")
    outer, inner = s[B].split(B.op.axis[0], nparts=4)
    s[B].reorder(r, inner, outer)
    f = lower(s, [A, B])
    assert "B.acc = alloc(float32[n.4 + 1, 4], local)" in str(f)
    for size in SIZES:
        a = np.arange((size + 2) * threads, dtype="float32").reshape(size + 2, threads)
        np.testing.assert_array_equal(run(f, a, out=(size + 2,)), a.sum(axis=1))


def test_the_interpreter_checks_shapes() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n * 2,), lambda i: A[i // 2], name="B")
    f = lower(create_schedule(B.op), [A, B])
    with pytest.raises(RunError, match=r"main: B is float32\[10\], got float32\[9\]"):
        run(f, np.zeros(5, "float32"), out=(9,))


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (
            lambda s, C: s[C].vectorize(C.op.axis[1]),
            "vectorize (step 0): loop 'C.j' has m iterations, which is known only when the program "
            "runs; split it by a constant factor and vectorize the inner part",
        ),
        (
            lambda s, C: s[C].unroll(s[C].split(C.op.axis[0], nparts=4)[1]),
            "unroll (step 1): loop 'C.i.1' has n.4 iterations, which is known only",
        ),
    ],
)
def test_loops_that_are_written_out_have_constant_extents(mark: Any, text: str) -> None:
    s, _, _, C = product()
    mark(s, C)
    with pytest.raises(ScheduleError) as e:
        s.validate()
    assert text in str(e.value)


def test_aligned_strides_need_a_known_shape() -> None:
    s, _, B, C = product()
    BL = s.cache_read(B, "global", [C])
    s[BL].storage_align(BL.op.axis[0], 16, 0)
    with pytest.raises(ScheduleError, match=r"the shape of .B.global. is known only wh"):
        s.validate()
