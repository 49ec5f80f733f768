"""Guards of loops that over-run: none that another one implies, and what that spares in kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import te
from loopwright.codegen.gpu.opencl import write_opencl
from loopwright.codegen.gpu.split import split_host_device
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule
from loopwright.target import Target


def nested_splits(n: int, factors: Sequence[int]) -> tuple[Schedule, te.Tensor, te.Tensor]:
    """``B = A + 1``, whose loop is split, and then the outer part again and again."""
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1, name="B")
    s = create_schedule(b)
    loop = b.op.axis[0]
    for factor in factors:
        loop, _ = s[b].split(loop, factor=factor)
    return s, a, b


def count_of_guards(s: Schedule, t: te.Tensor) -> int:
    return len(s.validate().stages[s[t].id].guards)


@pytest.mark.parametrize(
    ("n", "factors", "guards"),
    [
        (1000, (4, 64), 1),  # 4 divides: below 250 of the outer part is below 1000
        (1000, (16, 40), 2),  # 16 does not: the last tile over-runs by itself
        (1024, (4, 64), 0),
        (1000, (4, 64, 3), 2),  # 250 and 4 over-run, 1000 follows
        (1000, (3, 2), 1),  # 334 = 167 * 2; 1000 over-runs
    ],
)
def test_a_guard_that_another_one_implies_is_left_out(
    n: int, factors: tuple[int, ...], guards: int
) -> None:
    s, _, b = nested_splits(n, factors)
    assert count_of_guards(s, b) == guards


@given(st.integers(1, 60), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_nested_splits_visit_every_element_once(n: int, factors: list[int]) -> None:
    a = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, n), "k")
    b = te.compute((1,), lambda i: te.sum(a[k] + i, axis=k), name="B")
    s = create_schedule(b)
    loop = k
    for factor in factors:
        loop, _ = s[b].split(loop, factor=factor)
    x, out = 2.0 ** np.arange(n) % 1021, np.zeros(1)
    x, out = x.astype("float32"), out.astype("float32")
    interpret(lower(s, [a, b]), [x, out])
    assert out[0] == x.sum()


def softmax_of_1000() -> tuple[lw.Task, int]:
    """A softmax whose rows 64 threads with vectors of 4 do not cover evenly."""
    task = lw.create_task("softmax", (3, 1000), "opencl")
    wanted = {"threads": 64, "rows": 1, "unroll": 1, "vector": True, "keep_E": True}
    return task, task.config(wanted).index


def test_rows_that_vectors_divide_are_read_and_written_as_vectors() -> None:
    task, index = softmax_of_1000()
    s, tensors = task.instantiate(index)
    with Target("opencl"):
        f = lower(s, tensors)
    assert "E = alloc(float32[1, 1000], shared)" in str(f)
    text = write_opencl(split_host_device(f, "opencl"))
    assert (
        text.count("vload4") == 3
    )  # for the largest element, for its exponentials, for the shares
    assert text.count("vstore4") == 2
    assert " ? X" not in text


def test_such_a_softmax_is_right() -> None:
    task, index = softmax_of_1000()
    s, tensors = task.instantiate(index)
    with Target("opencl"):
        f = lower(s, tensors)
    x = np.random.default_rng(0).standard_normal((3, 1000)).astype("float32")
    out = np.full_like(x, np.nan)
    interpret(f, [x, out], thread_order=1, races=True)
    assert task.reference is not None
    np.testing.assert_allclose(out, task.reference(x), rtol=1e-5)


def cooperative_copy(rows: int, columns: int) -> tuple[Schedule, list[te.Tensor], te.Tensor]:
    """A tile in shared memory that 32 threads fill together; 8 of them use it, column by column."""
    a = te.placeholder((4 * rows, 2 * columns), name="A")
    b = te.compute(a.shape, lambda i, j: a[i, j] * 3, name="B")
    s = create_schedule(b)
    copy = s.cache_read(a, "shared", [b])
    i, j = b.op.axis
    (io, ii), (jo, ji) = s[b].split(i, factor=rows), s[b].split(j, factor=columns)
    ji, thread = s[b].split(ji, factor=8)
    s[b].reorder(io, jo, ii, ji, thread)
    s[b].bind(io, te.thread_axis("blockIdx.y"))
    s[b].bind(jo, te.thread_axis("blockIdx.x"))
    s[b].bind(thread, te.thread_axis("threadIdx.x"))
    s[copy].compute_at(s[b], jo)
    _, together = s[copy].split(s[copy].fuse(*s[copy].op.axis), factor=32)
    s[copy].bind(together, te.thread_axis("threadIdx.y"))
    return s, [a, b], copy


@pytest.mark.parametrize(("rows", "columns"), [(1, 40), (1, 72), (2, 24), (3, 40)])
def test_a_fused_copy_keeps_the_size_of_its_tile(rows: int, columns: int) -> None:
    """40 elements are two rounds of 32 threads, which is no reason for a second row."""
    s, args, copy = cooperative_copy(rows, columns)
    assert s.validate().stages[s[copy].id].shape == [rows, columns]
    f = lower(s, args)
    assert ("%" in str(f)) == (rows > 1)
    x = np.random.default_rng(0).standard_normal(args[0].static_shape).astype("float32")
    out = np.full_like(x, np.nan)
    interpret(f, [x, out], thread_order=1, races=True)
    np.testing.assert_array_equal(out, x * np.float32(3))
