"""Matrix products on tensor cores: shared tiles, ldmatrix, mma, several warps."""

from __future__ import annotations

from typing import Any

from loopwright import te
from loopwright.ir.kinds import Scope
from loopwright.schedule import Schedule, create_schedule
from tests.unit.lowering.programs import Case


def product(
    m: int, n: int, k: int, dtype: str = "float16", transposed: bool = False
) -> tuple[Schedule, te.Tensor, te.Tensor, te.Tensor]:
    """``C = A @ B`` in float32, or ``A @ B.T``."""
    a = te.placeholder((m, k), dtype, name="A")
    b = te.placeholder((n, k) if transposed else (k, n), dtype, name="B")
    r = te.reduce_axis((0, k), "k")

    def element(i: Any, j: Any) -> Any:
        y = b[j, r] if transposed else b[r, j]
        return te.sum(a[i, r].astype("float32") * y.astype("float32"), axis=r)

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
    """A product whose blocks have ``warps`` times 32 threads."""
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
    s[acc].transform_layout(te.intrinsics.fragment_layout("c"))
    i, j = s[acc].op.axis
    io, ii = s[acc].split(i, factor=16)
    jo, ji = s[acc].split(j, factor=8)
    ko, ki = s[acc].split(s[acc].op.reduce_axis[0], factor=bk)
    ki, kk = s[acc].split(ki, factor=16)
    s[acc].reorder(ko, ki, io, jo, ii, ji, kk)
    s[acc].tensorize(ii, te.intrinsics.mma_m16n8k16(dtype, transposed))
    for t, kind in zip(fragments, kinds, strict=True):
        s[t].compute_at(s[acc], ki)
        s[t].transform_layout(te.intrinsics.fragment_layout(kind))  # type: ignore[arg-type]
        load_fragments(s, t, kind, dtype, ldmatrix)
    for t in shared:
        s[t].compute_at(s[acc], ko)
        if pad:
            s[t].storage_align(0, 16, pad)
        f = s[t].fuse(*s[t].op.axis)
        f, v = s[t].split(f, factor=8)
        f, x = s[t].split(f, factor=32)
        f, y = s[t].split(f, factor=wn)
        f, z = s[t].split(f, factor=wm)
        for loop, axis in ((x, "x"), (y, "y"), (z, "z")):
            s[t].bind(loop, te.thread_axis(f"threadIdx.{axis}"))
        s[t].vectorize(v)
        if stages > 1:
            s[t].double_buffer(stages)

    def reference(x: Any, y: Any) -> Any:
        return x.astype("float32") @ (y.T if transposed else y).astype("float32")

    return Case(s, [a, b, c], reference)


def load_fragments(s: Schedule, t: te.Tensor, kind: str, dtype: str, ldmatrix: bool) -> None:
    """Tiles of 16 x 16 by one instruction, or element by element in each lane."""
    i, j = s[t].op.axis
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
