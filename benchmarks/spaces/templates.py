"""The templates of the measured spaces. Frozen: a change of one makes its measurements worthless.

They are written as a user writes templates, with tiles on two levels, orders of loops, widths of
vectors, unrolling, packing and places of stages as knobs; the operators of `loopwright.ops` have
spaces of their own, which may change. Each has between five and ten thousand valid points, of which
few are near the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import loopwright as lw
from loopwright import te
from loopwright.schedule import Schedule
from loopwright.task import get_config, template

Made = tuple[Schedule, list[te.Tensor]]


@dataclass(frozen=True)
class Space:
    """A template with the arguments that it was measured with."""

    name: str
    template: str
    args: tuple[int, ...]

    def task(self, target: Any) -> lw.Task:
        """The task on a target: text, or the canonical form that a measured space names."""
        return lw.create_task(self.template, args=self.args, target=target)


def _matmul_reference(M: int, N: int, K: int) -> Any:
    return lambda a, b: a @ b


@template("spaces/matmul", make_reference=_matmul_reference)
def matmul(M: int, N: int, K: int) -> Made:
    """C (M, N) = A (M, K) @ B (K, N), with a tile of accumulators and packed panels of B."""
    A = te.placeholder((M, K), "float32", name="A")
    B = te.placeholder((K, N), "float32", name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)

    cfg = get_config()
    i, j = s[C].op.axis
    rows = [[-1, block, tile] for tile in (1, 2, 4, 6, 8, 12, 16, 24) for block in (1, 8, 16)]
    columns = [[-1, tile] for tile in (16, 32, 64, 96, 192)]
    cfg.define_split("tile_i", i, policy="candidate", candidate=rows)
    cfg.define_split("tile_j", j, policy="candidate", candidate=columns)
    cfg.define_knob("lanes", [4, 8, 16], default=16)
    cfg.define_knob("order", ["kij", "ikj"])
    cfg.define_annotate("unroll", [i, j], policy="try_unroll")
    cfg.define_knob("pack", ["none", "panel"])
    cfg.multi_filter(_matmul_code_fits)

    acc = s.cache_write(C, "local")
    i0, i1, i2 = cfg["tile_i"].apply(s, C, i)
    j0, j1 = cfg["tile_j"].apply(s, C, j)
    s[C].reorder(j0, i0, i1, i2, j1)
    _, jv = s[C].split(j1, factor=cfg["lanes"].val)
    s[C].vectorize(jv)

    s[acc].compute_at(s[C], i1)
    ci, cj = s[acc].op.axis
    (ck,) = s[acc].op.reduce_axis
    jo, jv = s[acc].split(cj, factor=cfg["lanes"].val)
    s[acc].reorder(*((ck, ci) if cfg["order"].val == "kij" else (ci, ck)), jo, jv)
    cfg["unroll"].apply(s, acc, [ci, jo])
    s[acc].vectorize(jv)

    if cfg["pack"].val != "none":
        panel = s.cache_read(B, "local", [acc])
        s[panel].compute_at(s[C], i0)
        _, pj = s[panel].op.axis
        width = cfg["tile_j"].size[1]
        s[panel].transform_layout(lambda k, j: (j // width, k, j % width))
        _, pv = s[panel].split(pj, factor=cfg["lanes"].val)
        s[panel].vectorize(pv)
    return s, [A, B, C]


def _matmul_code_fits(c: Any) -> bool:
    """Unrolled code is bounded: beyond 384 multiplications LLVM needs seconds."""
    rows, wide = c["tile_i"].size[2], c["tile_j"].size[1]
    if c["unroll"].anns[0] == "unroll":
        return rows * wide <= 384 * c["lanes"].val
    return True


def _conv2d_reference(H: int, W: int, C: int, F: int, K: int) -> Any:
    def reference(x: Any, w: Any) -> Any:
        pad = K // 2
        padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        taps = np.lib.stride_tricks.sliding_window_view(padded, (K, K), axis=(1, 2))
        return np.einsum("nyxcrs,rsco->nyxo", taps, w, optimize=True)

    return reference


@template("spaces/conv2d", make_reference=_conv2d_reference)
def conv2d(H: int, W: int, C: int, F: int, K: int) -> Made:
    """One image in NHWC, stride 1, as many rows and columns out as in; weights (K, K, C, F)."""
    pad = K // 2
    X = te.placeholder((1, H, W, C), "float32", name="X")
    weight = te.placeholder((K, K, C, F), "float32", name="W")
    P = te.compute(
        (1, H + 2 * pad, W + 2 * pad, C),
        lambda n, y, x, c: te.if_then_else(
            te.all(y >= pad, y < H + pad, x >= pad, x < W + pad), X[n, y - pad, x - pad, c], 0.0
        ),
        name="P",
    )
    r, q = te.reduce_axis((0, K), name="r"), te.reduce_axis((0, K), name="q")
    c = te.reduce_axis((0, C), name="c")
    Y = te.compute(
        (1, H, W, F),
        lambda n, y, x, o: te.sum(P[n, y + r, x + q, c] * weight[r, q, c, o], axis=[r, q, c]),
        name="Y",
    )
    s = te.create_schedule(Y.op)

    cfg = get_config()
    n, y, x, o = s[Y].op.axis
    cfg.define_split("tile_y", y, num_outputs=2, filter=lambda e: e.size[1] in (1, 13))
    cfg.define_split("tile_x", x, policy="candidate", candidate=[[-1, n] for n in (2, 4, 7, 13)])
    cfg.define_split("tile_o", o, num_outputs=2, filter=lambda e: e.size[1] >= 8)
    cfg.define_knob("lanes", [4, 8, 16], default=16)
    cfg.define_knob("pixels", ["outside", "between", "inside"])
    cfg.define_annotate("unroll", [x, o], policy="try_unroll")
    cfg.define_knob("pad_at", ["root", "inline"])
    cfg.define_knob("cache", [False, True])
    cfg.multi_filter(_conv2d_code_fits)

    acc = s.cache_write(Y, "local") if cfg["cache"].val else Y
    n, y, x, o = s[Y].op.axis
    y0, y1 = cfg["tile_y"].apply(s, Y, y)
    x0, x1 = cfg["tile_x"].apply(s, Y, x)
    o0, o1 = cfg["tile_o"].apply(s, Y, o)
    oo, ov = s[Y].split(o1, factor=cfg["lanes"].val)
    s[Y].reorder(n, y0, o0, y1, x0, x1, oo, ov)
    s[Y].vectorize(ov)
    if cfg["cache"].val:
        s[acc].compute_at(s[Y], x0)
        x1 = s[acc].op.axis[2]
        oo, ov = s[acc].split(s[acc].op.axis[3], factor=cfg["lanes"].val)
        s[acc].vectorize(ov)

    r, q, c = s[acc].op.reduce_axis
    orders = {"outside": (x1, c, r, q), "between": (c, x1, r, q), "inside": (c, r, q, x1)}
    s[acc].reorder(*orders[cfg["pixels"].val], oo, ov)
    cfg["unroll"].apply(s, acc, [x1, oo])

    if cfg["pad_at"].val == "inline":
        s[P].compute_inline()
        return s, [X, weight, Y]
    _, pv = s[P].split(s[P].op.axis[3], factor=16)
    s[P].vectorize(pv)
    return s, [X, weight, Y]


def _conv2d_code_fits(c: Any) -> bool:
    """Vectors have whole lanes, and unrolled code is bounded as in `matmul`."""
    wide, lanes = c["tile_o"].size[1], c["lanes"].val
    pixels = c["tile_x"].size[1] if c["unroll"].anns[0] == "unroll" else 1
    return wide % lanes == 0 and pixels * wide <= 384 * lanes


def _depthwise_reference(C: int, H: int, W: int, K: int) -> Any:
    def reference(x: Any, w: Any, b: Any) -> Any:
        pad = K // 2
        padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
        taps = np.lib.stride_tricks.sliding_window_view(padded, (K, K), axis=(1, 2))
        y = np.einsum("cyxrs,crs->cyx", taps, w, optimize=True)
        return np.maximum(y + b[:, None, None], 0)

    return reference


@template("spaces/depthwise", make_reference=_depthwise_reference)
def depthwise(C: int, H: int, W: int, K: int) -> Made:
    """Each of C channels with a kernel of its own, then a bias and a rectifier."""
    pad = K // 2
    X = te.placeholder((C, H, W), "float32", name="X")
    weight = te.placeholder((C, K, K), "float32", name="W")
    bias = te.placeholder((C,), "float32", name="bias")
    P = te.compute(
        (C, H + 2 * pad, W + 2 * pad),
        lambda c, y, x: te.if_then_else(
            te.all(y >= pad, y < H + pad, x >= pad, x < W + pad), X[c, y - pad, x - pad], 0.0
        ),
        name="P",
    )
    r, q = te.reduce_axis((0, K), name="r"), te.reduce_axis((0, K), name="q")
    D = te.compute(
        (C, H, W),
        lambda c, y, x: te.sum(P[c, y + r, x + q] * weight[c, r, q], axis=[r, q]),
        name="D",
    )
    Y = te.compute((C, H, W), lambda c, y, x: te.max(D[c, y, x] + bias[c], 0.0), name="Y")
    s = te.create_schedule(Y.op)

    cfg = get_config()
    c, y, x = s[Y].op.axis
    cfg.define_split(
        "tile_y", y, num_outputs=3, filter=lambda e: e.size[2] in (1, 2, 4) and e.size[1] in (1, 7)
    )
    cfg.define_split("tile_x", x, num_outputs=2, filter=lambda e: e.size[1] >= 4)
    cfg.define_knob("lanes", [4, 8])
    cfg.define_knob("taps", ["outside", "inside", "rows_outside"])
    cfg.define_annotate("unroll", [r, q, y], policy="try_unroll")
    cfg.define_knob("pad_at", ["root", "rows", "inline"])
    cfg.define_knob("sum_at", ["rows", "tile"])
    cfg.multi_filter(_depthwise_code_fits)

    y0, y1, y2 = cfg["tile_y"].apply(s, Y, y)
    x0, x1 = cfg["tile_x"].apply(s, Y, x)
    s[Y].reorder(c, y0, y1, x0, y2, x1)
    _, xv = s[Y].split(x1, factor=cfg["lanes"].val)
    s[Y].vectorize(xv)

    s[D].compute_at(s[Y], x0 if cfg["sum_at"].val == "tile" else y1)
    _, dy, dx = s[D].op.axis
    dr, dq = s[D].op.reduce_axis
    do, dv = s[D].split(dx, factor=cfg["lanes"].val)
    orders = {
        "outside": (dr, dq, dy, do),
        "inside": (dy, do, dr, dq),
        "rows_outside": (dr, dy, do, dq),
    }
    s[D].reorder(*orders[cfg["taps"].val], dv)
    for axis, how in zip((dr, dq, dy), cfg["unroll"].anns, strict=True):
        if how == "unroll":
            s[D].unroll(axis)
    s[D].vectorize(dv)
    if cfg["pad_at"].val == "inline":
        s[P].compute_inline()
        return s, [X, weight, bias, Y]
    if cfg["pad_at"].val == "rows":
        s[P].compute_at(s[Y], y0)
    _, pv = s[P].split(s[P].op.axis[2], factor=8)
    s[P].vectorize(pv)
    return s, [X, weight, bias, Y]


def _depthwise_code_fits(c: Any) -> bool:
    """Vectors have whole lanes."""
    return c["tile_x"].size[1] % c["lanes"].val == 0


#: The measured spaces by name.
SPACES = {
    space.name: space
    for space in (
        Space("matmul", "spaces/matmul", (197, 192, 192)),
        Space("conv2d", "spaces/conv2d", (13, 13, 64, 128, 3)),
        Space("depthwise", "spaces/depthwise", (8, 56, 56, 3)),
    )
}
