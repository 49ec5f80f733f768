"""Matrix products on tensor cores: shared tiles, ldmatrix, mma, several warps."""

from __future__ import annotations

from typing import Any

import numpy as np

from loopwright import te
from loopwright.ir.kinds import Scope
from loopwright.schedule import Schedule, create_schedule
from tests.unit.lowering.programs import Case


def nearest_tf32(x: Any) -> Any:
    """Values of float32 rounded to 10 bits of mantissa, ties away from zero, by arithmetic.

    The exact quotient by the unit in the last place, which is 2**-136 for denormals, is rounded.
    """
    wide = np.abs(x.astype("float64"))
    exponent = np.maximum(np.frexp(np.where(np.isfinite(wide), wide, 1.0))[1] - 1, -126)
    unit = np.ldexp(1.0, exponent - 10)
    rounded = np.copysign(np.floor(wide / unit + 0.5) * unit, x)
    with np.errstate(over="ignore"):
        return rounded.astype("float32")


def product(
    m: int, n: int, k: int, dtype: str = "float16", transposed: bool = False
) -> tuple[Schedule, te.Tensor, te.Tensor, te.Tensor]:
    """``C = A @ B`` in float32, or ``A @ B.T``; of ``"tf32"`` with operands of float32."""
    stored = "float32" if dtype == "tf32" else dtype
    a = te.placeholder((m, k), stored, name="A")
    b = te.placeholder((n, k) if transposed else (k, n), stored, name="B")
    r = te.reduce_axis((0, k), "k")

    def factor(x: Any) -> Any:
        return te.intrinsics.round_tf32(x) if dtype == "tf32" else x.astype("float32")

    def element(i: Any, j: Any) -> Any:
        return te.sum(factor(a[i, r]) * factor(b[j, r] if transposed else b[r, j]), axis=r)

    c = te.compute((m, n), element, name="C")
    return create_schedule(c), a, b, c


def lanes_of(s: Schedule, t: te.Tensor, lane: Any, inner: list[Any]) -> None:
    """Bind two loops of extents 8 and 4 to the lanes, in front of some others."""
    s[t].reorder(*lane, *inner)
    s[t].bind(s[t].fuse(*lane), te.thread_axis("threadIdx.x"))


def store_fragments(s: Schedule, t: te.Tensor, i: Any, j: Any, outer: list[Any]) -> None:
    """Every lane stores its registers of the tiles of 16 x 8 in loops i and j."""
    it, i = s[t].split(i, factor=16)
    high, g = s[t].split(i, factor=8)
    jt, j = s[t].split(j, factor=8)
    lane, low = s[t].split(j, factor=2)
    s[t].reorder(*outer, it, jt, high, g, lane, low)
    lanes_of(s, t, (g, lane), [low])
    s[t].vectorize(low)


def tensor_core_matmul(
    m: int = 32,
    n: int = 32,
    k: int = 32,
    *,
    dtype: str = "float16",
    transposed: bool = False,
    block: tuple[int, int, int] = (32, 32, 16),
    warps: tuple[int, int] = (2, 1),
    stages: int = 1,
    scope: Scope = "shared",
    ldmatrix: bool = True,
    pad: int = 8,
) -> Case:
    """A product whose blocks have ``warps`` times 32 threads; ``"tf32"`` has no ldmatrix."""
    ldmatrix = ldmatrix and dtype != "tf32"
    steps = 8 if dtype == "tf32" else 16
    s, a, b, c = product(m, n, k, dtype, transposed)
    (bm, bn, bk), (wm, wn) = block, warps
    shared = [s.cache_read(x, scope, [c]) for x in (a, b)]
    kinds = ("a", "b_nk" if transposed else "b")
    fragments = [s.cache_read(x, "warp", [c]) for x in shared]
    acc = s.cache_write(c, "warp")
    i, j = s[c].op.axis
    by, i = s[c].split(i, factor=bm)
    bx, j = s[c].split(j, factor=bn)
    wy, i = s[c].split(i, nparts=wm)
    wx, j = s[c].split(j, nparts=wn)
    s[c].reorder(by, bx, wy, wx, i, j)
    store_fragments(s, c, i, j, [by, bx, wy, wx])
    for loop, tag in (
        (by, "blockIdx.y"), (bx, "blockIdx.x"), (wy, "threadIdx.z"), (wx, "threadIdx.y"),
    ):  # fmt: skip
        s[c].bind(loop, te.thread_axis(tag))
    s[acc].compute_at(s[c], wx)
    s[acc].transform_layout(te.intrinsics.fragment_layout("c", dtype))
    i, j = s[acc].op.axis
    io, ii = s[acc].split(i, factor=16)
    jo, ji = s[acc].split(j, factor=8)
    ko, ki = s[acc].split(s[acc].op.reduce_axis[0], factor=bk)
    ki, kk = s[acc].split(ki, factor=steps)
    s[acc].reorder(ko, ki, io, jo, ii, ji, kk)
    s[acc].tensorize(ii, mma(dtype, transposed))
    for t, kind in zip(fragments, kinds, strict=True):
        s[t].compute_at(s[acc], ki)
        s[t].transform_layout(te.intrinsics.fragment_layout(kind, dtype))  # type: ignore[arg-type]
        load_fragments(s, t, kind, dtype, ldmatrix)
    for t in shared:
        s[t].compute_at(s[acc], ko)
        if pad:
            s[t].storage_align(0, 16, pad)
        f = s[t].fuse(*s[t].op.axis)
        f, v = s[t].split(f, factor=4 if dtype == "tf32" else 8)
        f, x = s[t].split(f, factor=32)
        f, y = s[t].split(f, factor=wn)
        f, z = s[t].split(f, factor=wm)
        for loop, axis in ((x, "x"), (y, "y"), (z, "z")):
            s[t].bind(loop, te.thread_axis(f"threadIdx.{axis}"))
        s[t].vectorize(v)
        if stages > 1:
            s[t].double_buffer(stages)

    def reference(x: Any, y: Any) -> Any:
        if dtype == "tf32":
            x, y = nearest_tf32(x), nearest_tf32(y)
        return x.astype("float32") @ (y.T if transposed else y).astype("float32")

    return Case(s, [a, b, c], reference)


def mma(dtype: str, transposed: bool) -> te.TensorIntrin:
    """The instruction for operands of a dtype."""
    if dtype == "tf32":
        return te.intrinsics.mma_m16n8k8(transposed)
    return te.intrinsics.mma_m16n8k16(dtype, transposed)


def load_fragments(s: Schedule, t: te.Tensor, kind: str, dtype: str, ldmatrix: bool) -> None:
    """Tiles of 16 x 16 by one instruction, or element by element in each lane."""
    i, j = s[t].op.axis
    if dtype == "tf32":
        columns, steps = (j, i) if kind == "b" else (i, j)
        tile, columns = s[t].split(columns, factor=16)
        c_high, g = s[t].split(columns, factor=8)
        k_high, lane = s[t].split(steps, factor=4)
        s[t].reorder(tile, c_high, k_high, g, lane)
        s[t].bind(s[t].fuse(g, lane), te.thread_axis("threadIdx.x"))
        return
    io, ii = s[t].split(i, factor=16)
    jo, ji = s[t].split(j, factor=16)
    s[t].reorder(io, jo, ii, ji)
    if ldmatrix:
        s[t].tensorize(ii, te.intrinsics.ldmatrix_x4(kind, dtype))
        return
    columns, steps = (ji, ii) if kind == "b" else (ii, ji)
    c_high, g = s[t].split(columns, factor=8)
    k_high, k = s[t].split(steps, factor=8)
    lane, low = s[t].split(k, factor=2)
    s[t].reorder(io, jo, c_high, k_high, g, lane, low)
    lanes_of(s, t, (g, lane), [low])
