"""Schedules whose nests are kept as golden texts, and their NumPy references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from loopwright import te
from loopwright.schedule import Schedule, create_schedule

Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    """A schedule, its arguments (the last is the output) and what they mean."""

    s: Schedule
    args: list[te.Tensor]
    reference: Callable[..., Array]


def naive_matmul() -> Case:
    m, n, k = 8, 12, 10
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return Case(create_schedule(c), [a, b, c], lambda x, y: x @ y)


def packed_matmul(m: int, n: int, k: int, tm: int = 4, tn: int = 16) -> Case:
    """A register tile in a cache of C, a panel of B packed for it, panels in parallel."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = create_schedule(c)
    cl = s.cache_write(c, "local")
    i, j = c.op.axis
    io, jo, ii, ji = s[c].tile(i, j, tm, tn)
    s[c].reorder(jo, io, ii, ji)
    s[c].unroll(ii)
    s[c].vectorize(ji)
    s[cl].compute_at(s[c], io)
    ci, cj = s[cl].op.axis
    ko, ki = s[cl].split(s[cl].op.reduce_axis[0], factor=4)
    s[cl].reorder(ko, ki, ci, cj)
    s[cl].unroll(ci)
    s[cl].vectorize(cj)
    bp = s.cache_read(b, "local", [cl])
    s[bp].compute_at(s[c], jo)
    s[bp].vectorize(s[bp].op.axis[1])
    s[c].parallel(jo)
    return Case(s, [a, b, c], lambda x, y: x @ y)


def conv2d(h: int = 8, co: int = 8) -> Case:
    """3x3, padded by one; the padding is computed for one tile, the weights are stored packed."""
    ci = 4
    x, w = te.placeholder((1, ci, h, h), name="X"), te.placeholder((co, ci, 3, 3), name="W")
    pad = te.compute(
        (1, ci, h + 2, h + 2),
        lambda n, c, y, z: te.if_then_else(
            te.all(y >= 1, y < h + 1, z >= 1, z < h + 1), x[n, c, y - 1, z - 1], 0.0
        ),
        name="pad",
    )
    rc, ry, rx = (te.reduce_axis(e, name) for e, name in ((ci, "rc"), (3, "ry"), (3, "rx")))
    c = te.compute(
        (1, co, h, h),
        lambda n, o, y, z: te.sum(pad[n, rc, y + ry, z + rx] * w[o, rc, ry, rx], axis=[rc, ry, rx]),
        name="C",
    )
    s = create_schedule(c)
    cl = s.cache_write(c, "local")
    n, o, y, z = c.op.axis
    oo, oi = s[c].split(o, factor=4)
    yo, yi = s[c].split(y, factor=4)
    s[c].reorder(n, oo, yo, yi, z, oi)
    f = s[c].fuse(n, oo)
    s[c].parallel(f)
    s[c].vectorize(oi)
    s[cl].compute_at(s[c], yi)
    cn, c_o, cy, cz = s[cl].op.axis
    s[cl].reorder(cn, *s[cl].op.reduce_axis, cy, cz, c_o)
    s[cl].vectorize(c_o)
    s[cl].transform_layout(lambda n, o, y, z: (n, y, z, o))
    s[pad].compute_at(s[c], yo)
    wp = s.cache_read(w, "local", [cl])
    s[wp].compute_at(s[c], f)
    s[wp].transform_layout(lambda o, c, y, z: (c, y, z, o))

    def reference(a: Array, b: Array) -> Array:
        p = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
        out = np.zeros((1, co, h, h), np.float32)
        for dy in range(3):
            for dz in range(3):
                out += np.einsum(
                    "ncyz,oc->noyz", p[:, :, dy : dy + h, dz : dz + h], b[:, :, dy, dz]
                )
        return out

    return Case(s, [x, w, c], reference)


def fused_elementwise() -> Case:
    """Bias and relu inlined into one pass; rows and columns fused, split and vectorized."""
    n, m = 6, 10
    a, b = te.placeholder((n, m), name="A"), te.placeholder((m,), name="bias")
    added = te.compute((n, m), lambda i, j: a[i, j] + b[j], name="added")
    relu = te.compute((n, m), lambda i, j: te.max(added[i, j], 0.0), name="relu")
    out = te.compute((n, m), lambda i, j: relu[i, j] * 0.5, name="out")
    s = create_schedule(out)
    s[added].compute_inline()
    s[relu].compute_inline()
    f = s[out].fuse(*out.op.axis)
    fo, fi = s[out].split(f, factor=8)
    s[out].vectorize(fi)
    s[out].parallel(fo)
    return Case(s, [a, b, out], lambda x, y: np.maximum(x + y, 0) * np.float32(0.5))


def pragma_unroll() -> Case:
    """The pragma unrolls what fits: the loop of 4, around it the loop of 2, not the loop of 3."""
    a = te.placeholder((3, 2, 4), name="A")
    b = te.compute((3, 2, 4), lambda i, j, k: a[i, j, k] + 1.0, name="B")
    s = create_schedule(b)
    s[b].pragma(b.op.axis[0], "auto_unroll_max_step", 8)
    return Case(s, [a, b], lambda x: x + 1)


def reordered_reduction() -> Case:
    """The start of a reduction stands outside its outermost reduction loop and keeps marks."""
    n, k = 8, 7
    a = te.placeholder((n, k), name="A")
    r = te.reduce_axis(k, "k")
    c = te.compute((n,), lambda i: te.max(a[i, r], axis=r), name="C")
    s = create_schedule(c)
    io, ii = s[c].split(c.op.axis[0], factor=4)
    ko, ki = s[c].split(r, factor=3)
    s[c].reorder(io, ko, ii, ki)
    s[c].unroll(ii)
    return Case(s, [a, c], lambda x: x.max(axis=1))


def dense_in_lanes() -> Case:
    """Rows of both operands run along the reduction: a tile of accumulators, each 8 lanes wide."""
    m, n, k = 4, 6, 20
    x, w = te.placeholder((m, k), name="X"), te.placeholder((n, k), name="W")
    r = te.reduce_axis(k, "k")
    y = te.compute((m, n), lambda i, j: te.sum(x[i, r] * w[j, r], axis=r), name="Y")
    s = create_schedule(y)
    io, jo, ii, ji = s[y].tile(*y.op.axis, 2, 3)
    ko, ki = s[y].split(r, factor=8)
    s[y].reorder(io, jo, ko, ii, ji, ki)
    s[y].unroll(ii)
    s[y].unroll(ji)
    s[y].vectorize(ki)
    return Case(s, [x, w, y], lambda a, b: a @ b.T)


def sum_in_lanes_from_a_start() -> Case:
    """Twelve lanes; points that the condition leaves out keep their lane, ``init`` enters once."""
    n, k = 3, 12
    a, b = te.placeholder((n, k), name="A"), te.placeholder((n,), name="B")
    r = te.reduce_axis(k, "k")
    c = te.compute(
        (n,), lambda i: te.sum(a[i, r], axis=r, where=a[i, r] > 0.0, init=b[i]), name="C"
    )
    s = create_schedule(c)
    s[c].vectorize(r)
    return Case(s, [a, b, c], lambda x, y: np.where(x > 0, x, 0).sum(axis=1) + y)


CASES: dict[str, Callable[[], Case]] = {
    "naive_matmul": naive_matmul,
    "packed_matmul": lambda: packed_matmul(8, 32, 12),
    "packed_matmul_not_dividing": lambda: packed_matmul(11, 37, 9),
    "conv2d": conv2d,
    "conv2d_not_dividing": lambda: conv2d(7, 6),
    "fused_elementwise": fused_elementwise,
    "pragma_unroll": pragma_unroll,
    "reordered_reduction": reordered_reduction,
    "dense_in_lanes": dense_in_lanes,
    "sum_in_lanes_from_a_start": sum_in_lanes_from_a_start,
}
