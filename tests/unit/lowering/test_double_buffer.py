"""Buffers that live longer, and buffers of two halves: golden nests, run beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.lowering.context import PassContext
from loopwright.schedule import Schedule, create_schedule


def blur(n: int = 10, m: int = 9) -> tuple[Schedule, te.Tensor, te.Tensor, te.Tensor]:
    """Sums of three neighbours of doubled elements."""
    a = te.placeholder((n, m + 2), name="A")
    b = te.compute((n, m + 2), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + b[i, j + 1] + b[i, j + 2], name="C")
    return create_schedule(c), a, b, c


def checked(s: Schedule, a: te.Tensor, c: te.Tensor) -> str:
    f = lower(s, [a, c])
    x = np.random.default_rng(0).integers(-4, 5, a.shape).astype("float32")
    out = np.full(c.shape, np.nan, "float32")
    interpret(f, [x, out])
    np.testing.assert_array_equal(out, 2 * (x[:, :-2] + x[:, 1:-1] + x[:, 2:]))
    return str(f)


def test_storage_outside_of_the_loop(golden: Any) -> None:
    s, a, b, c = blur()
    s[b].compute_at(s[c], c.op.axis[1])
    s[b].store_at(s[c], c.op.axis[0])
    golden(checked(s, a, c))


def test_storage_around_a_split_that_does_not_divide(golden: Any) -> None:
    s, a, b, c = blur()
    _jo, ji = s[c].split(c.op.axis[1], factor=4)
    s[b].compute_at(s[c], ji)
    s[b].store_root()
    golden(checked(s, a, c))


def test_two_halves(golden: Any) -> None:
    s, a, b, c = blur()
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].double_buffer()
    golden(checked(s, a, c))


def test_two_halves_behind_a_guard_and_definitions(golden: Any) -> None:
    """Rows and columns are fused and split: the parts are defined, and tested, for i + 1."""
    s, a, b, c = blur(5, 3)
    f = s[c].fuse(*c.op.axis)
    fo, fi = s[c].split(f, factor=4)
    s[b].compute_at(s[c], fi)
    s[b].storage_align(0, 8, 1)
    s[b].double_buffer()
    assert fo in s[c].leaf_iter_vars
    golden(checked(s, a, c))


def test_one_iteration_needs_no_halves() -> None:
    s, a, b, c = blur(1)
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].double_buffer()
    assert "B = alloc(float32[1, 11], global)" in checked(s, a, c)


@pytest.mark.parametrize("inner_too", [False, True])
def test_chains_of_halves(inner_too: bool) -> None:
    """What fills a half may itself read halves that are filled for the same iteration."""
    s, a, b, c = blur()
    bl = s.cache_read(b, "local", [c])
    s[bl].compute_at(s[c], c.op.axis[0])
    s[b].compute_at(s[c], c.op.axis[0]) if inner_too else None
    for t in (b, bl) if inner_too else (bl,):
        s[t].double_buffer()
    text = checked(s, a, c)
    assert text.count("alloc(float32[2, 1, 11]") == (2 if inner_too else 1)


def test_the_pass_can_be_disabled() -> None:
    s, a, b, c = blur()
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].double_buffer()
    with PassContext(disabled_pass=["InjectDoubleBuffer"]):
        text = checked(s, a, c)
    assert "B = alloc(float32[1, 11], global)" in text


def test_three_places(golden: Any) -> None:
    s, a, b, c = blur()
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].double_buffer(stages=3)
    golden(checked(s, a, c))


def test_places_behind_a_guard_and_definitions() -> None:
    """Rows and columns are fused and split: the parts are defined, and tested, for i + 3."""
    s, a, b, c = blur(5, 3)
    f = s[c].fuse(*c.op.axis)
    _fo, fi = s[c].split(f, factor=4)
    s[b].compute_at(s[c], fi)
    s[b].storage_align(0, 8, 1)
    s[b].double_buffer(stages=4)
    assert "alloc(float32[4, 1, 3], global, strides=[9, 9, 1])" in checked(s, a, c)


@pytest.mark.parametrize(("rows", "stages", "places"), [(3, 8, 3), (2, 3, 2), (7, 5, 5)])
def test_never_more_places_than_iterations(rows: int, stages: int, places: int) -> None:
    s, a, b, c = blur(rows)
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].double_buffer(stages)
    assert f"alloc(float32[{places}, 1, 11], global)" in checked(s, a, c)


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_places_where_the_iterations_are_known_late(n: int) -> None:
    m = te.size_var("m")
    a = te.placeholder((m, 4), name="A")
    b = te.compute((m, 4), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((m, 4), lambda i, j: b[i, 3 - j] + 1.0, name="C")
    s = create_schedule(c)
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].double_buffer(stages=4)
    x = np.random.default_rng(0).integers(-4, 5, (n, 4)).astype("float32")
    out = np.full((n, 4), np.nan, "float32")
    interpret(lower(s, [a, c]), [x, out])
    np.testing.assert_array_equal(out, 2 * x[:, ::-1] + 1)


def test_buffers_of_different_numbers_of_places() -> None:
    a = te.placeholder((9, 4), name="A")
    b = te.compute((9, 4), lambda i, j: a[i, j] * 2.0, name="B")
    d = te.compute((9, 4), lambda i, j: a[i, j] - 3.0, name="D")
    c = te.compute((9, 4), lambda i, j: b[i, 3 - j] + d[i, 3 - j], name="C")
    s = create_schedule(c)
    for x, n in ((b, 2), (d, 4)):
        s[x].compute_at(s[c], c.op.axis[0])
        s[x].double_buffer(n)
    x = np.random.default_rng(0).integers(-4, 5, (9, 4)).astype("float32")
    out = np.full((9, 4), np.nan, "float32")
    f = lower(s, [a, c])
    interpret(f, [x, out])
    np.testing.assert_array_equal(out, 3 * x[:, ::-1] - 3)
    assert "float32[2, 1, 4]" in str(f)
    assert "float32[4, 1, 4]" in str(f)


def test_a_prefetch_where_a_buffer_is_filled_is_of_the_copy_that_is_filled_there() -> None:
    """The fill is written twice, each with a local buffer of its own (found by the fuzz)."""
    s, a, b, c = blur()
    own = s.cache_write(b, "local")
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].double_buffer()
    row, column = s[b].op.axis
    s[own].compute_at(s[b], row)
    s[b].prefetch(own, column, 1)
    with PassContext(config={"verify": True}):
        assert checked(s, a, c).count("prefetch B.local") == 2
