"""Schedules for GPU threads, with their NumPy references."""

from __future__ import annotations

import numpy as np

from loopwright import te
from loopwright.ir.kinds import Scope
from loopwright.schedule import create_schedule
from tests.unit.lowering.programs import Array, Case


def thread(tag: str) -> te.IterVar:
    return te.thread_axis(tag)


def tiled_matmul(
    m: int = 32,
    n: int = 48,
    k: int = 20,
    vthreads: int = 2,
    scope: Scope = "shared",
    stages: int = 1,
) -> Case:
    """Shared tiles of both operands, virtual threads, accumulators and operands in registers."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = create_schedule(c)
    shared = [s.cache_read(x, scope, [c]) for x in (a, b)]
    registers = [s.cache_read(x, "local", [c]) for x in shared]
    acc = s.cache_write(c, "local")
    i, j = s[c].op.axis
    by, yi = s[c].split(i, factor=16)
    bx, xi = s[c].split(j, factor=16)
    vy, yi = s[c].split(yi, nparts=vthreads)
    vx, xi = s[c].split(xi, nparts=vthreads)
    ty, yi = s[c].split(yi, nparts=4)
    tx, xi = s[c].split(xi, nparts=4)
    s[c].reorder(by, bx, vy, vx, ty, tx, yi, xi)
    for loop, tag in (
        (by, "blockIdx.y"), (bx, "blockIdx.x"), (vy, "vthread"), (vx, "vthread"),
        (ty, "threadIdx.y"), (tx, "threadIdx.x"),
    ):  # fmt: skip
        s[c].bind(loop, thread(tag))
    s[acc].compute_at(s[c], tx)
    yo, xo = s[acc].op.axis
    ko, ki = s[acc].split(s[acc].op.reduce_axis[0], factor=8)
    s[acc].reorder(ko, ki, yo, xo)
    for t in shared:
        s[t].compute_at(s[acc], ko)
        f = s[t].fuse(*s[t].op.axis)
        f, fx = s[t].split(f, factor=4)
        f, fy = s[t].split(f, factor=4)
        s[t].bind(fy, thread("threadIdx.y"))
        s[t].bind(fx, thread("threadIdx.x"))
        if stages > 1:
            s[t].double_buffer(stages)
    for t in registers:
        s[t].compute_at(s[acc], ki)
    return Case(s, [a, b, c], lambda x, y: x @ y)


def shared_stage(n: int = 64, m: int = 64) -> Case:
    """The classic shared-memory stage: fused, split four times, bound to z, y, x, vectorized."""
    a, b = te.placeholder((n, m), name="A"), te.placeholder((m, n), name="B")
    r = te.reduce_axis((0, m), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = create_schedule(c)
    tile = s.cache_read(a, "shared", [c])
    i, j = c.op.axis
    io, ii = s[c].split(i, factor=16)
    jo, ji = s[c].split(j, factor=32)
    iz, iy = s[c].split(ii, factor=8)
    ji, jx = s[c].split(ji, factor=8)
    ko, ki = s[c].split(r, factor=16)
    s[c].reorder(io, jo, iz, iy, jx, ko, ki, ji)
    for loop, tag in (
        (io, "blockIdx.y"), (jo, "blockIdx.x"), (iz, "threadIdx.z"), (iy, "threadIdx.y"),
        (jx, "threadIdx.x"),
    ):  # fmt: skip
        s[c].bind(loop, thread(tag))
    s[tile].compute_at(s[c], ko)
    s[tile].storage_align(s[tile].op.axis[0], 16, 4)
    fused = s[tile].fuse(*s[tile].op.axis)
    fused, lanes = s[tile].split(fused, factor=2)
    fused, tx = s[tile].split(fused, factor=8)
    fused, ty = s[tile].split(fused, factor=8)
    fused, tz = s[tile].split(fused, factor=2)
    s[tile].bind(tz, thread("threadIdx.z"))
    s[tile].bind(ty, thread("threadIdx.y"))
    s[tile].bind(tx, thread("threadIdx.x"))
    s[tile].vectorize(lanes)
    return Case(s, [a, b, c], lambda x, y: x @ y)


def row_sum(n: int = 5, m: int = 100, threads: int = 16) -> Case:
    """One block a row; its threads reduce together."""
    a = te.placeholder((n, m), name="A")
    r = te.reduce_axis((0, m), "k")
    b = te.compute((n,), lambda i: te.sum(a[i, r], axis=r), name="B")
    s = create_schedule(b)
    tx = te.thread_axis("threadIdx.x", name="tx")
    _, ki = s[b].split(r, factor=threads)
    s[b].bind(b.op.axis[0], thread("blockIdx.x"))
    s[b].bind(ki, tx)
    s[b].set_store_predicate(tx.var.equal(3))
    return Case(s, [a, b], lambda x: x.sum(axis=1))


def softmax(n: int = 6, m: int = 50, threads: int = 8) -> Case:
    """One block a row: maximum and sum by its threads, kept for all of them in registers."""
    a = te.placeholder((n, m), name="A")
    k1, k2 = te.reduce_axis((0, m), "k1"), te.reduce_axis((0, m), "k2")
    top = te.compute((n,), lambda i: te.max(a[i, k1], axis=k1), name="top")
    power = te.compute((n, m), lambda i, j: te.exp(a[i, j] - top[i]), name="power")
    total = te.compute((n,), lambda i: te.sum(power[i, k2], axis=k2), name="total")
    out = te.compute((n, m), lambda i, j: power[i, j] / total[i], name="out")
    s = create_schedule(out)
    s[power].compute_inline()
    i, j = out.op.axis
    _, jt = s[out].split(j, factor=threads)
    s[out].bind(i, thread("blockIdx.x"))
    s[out].bind(jt, thread("threadIdx.x"))
    for stage, k, scope in ((top, k1, "local"), (total, k2, "shared")):
        _, kt = s[stage].split(k, factor=threads)
        s[stage].bind(kt, thread("threadIdx.x"))
        s[stage].compute_at(s[out], i)
        s[stage].set_scope(scope)

    def reference(x: Array) -> Array:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    return Case(s, [a, out], reference)


def argmax(n: int = 5, m: int = 37, threads: int = 8) -> Case:
    """A reduction of tuples across threads."""
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    at, top = te.compute((n,), lambda i: te.argmax((k.var, a[i, k]), axis=k), name="T")
    s = create_schedule(at.op)
    _, ki = s[at].split(k, factor=threads)
    i = s[at].op.axis[0]
    io, ii = s[at].split(i, factor=2)
    s[at].bind(io, thread("blockIdx.x"))
    s[at].bind(ii, thread("threadIdx.y"))
    s[at].bind(ki, thread("threadIdx.x"))
    return Case(s, [a, at, top], lambda x: x.argmax(axis=1).astype("int32"))
