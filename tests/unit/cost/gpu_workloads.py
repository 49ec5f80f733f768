"""A matmul for GPUs with tiles in shared memory, virtual threads and register tiles; parametric."""

from __future__ import annotations

from typing import Any

import numpy as np

import loopwright as lw
from loopwright import te
from loopwright.task import Task, create_task


@lw.template("tests/gpu_matmul")
def gpu_matmul(m: int, n: int, k: int) -> Any:
    """Blocks, virtual threads, threads and registers; both operands through shared memory."""
    cfg = lw.get_config()
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    shared = [s.cache_read(x, "shared", [c]) for x in (a, b)]
    registers = [s.cache_read(x, "local", [c]) for x in shared]
    acc = s.cache_write(c, "local")
    i, j = s[c].op.axis
    cfg.define_split("tile_i", i, num_outputs=4)
    cfg.define_split("tile_j", j, num_outputs=4)
    cfg.define_split("tile_k", s[acc].op.reduce_axis[0], num_outputs=2)
    cfg.define_knob("vector", [1, 2, 4])
    cfg.define_knob("pad", [0, 1, 4])
    cfg.define_knob("double", [False, True])
    by, vy, ty, yi = cfg["tile_i"].apply(s, c, i)
    bx, vx, tx, xi = cfg["tile_j"].apply(s, c, j)
    s[c].reorder(by, bx, vy, vx, ty, tx, yi, xi)
    for loop, tag in (
        (by, "blockIdx.y"), (bx, "blockIdx.x"), (vy, "vthread"), (vx, "vthread"),
        (ty, "threadIdx.y"), (tx, "threadIdx.x"),
    ):  # fmt: skip
        s[c].bind(loop, te.thread_axis(tag))
    s[c].unroll(yi)
    s[c].unroll(xi)
    s[acc].compute_at(s[c], tx)
    yo, xo = s[acc].op.axis
    ko, ki = cfg["tile_k"].apply(s, acc, s[acc].op.reduce_axis[0])
    s[acc].reorder(ko, ki, yo, xo)
    s[acc].unroll(yo)
    s[acc].unroll(xo)
    for t in shared:
        s[t].compute_at(s[acc], ko)
        s[t].storage_align(s[t].op.axis[0], 32, cfg["pad"].val)
        f = s[t].fuse(*s[t].op.axis)
        f, lanes = s[t].split(f, factor=cfg["vector"].val)
        f, fx = s[t].split(f, factor=cfg["tile_j"].size[2])
        f, fy = s[t].split(f, factor=cfg["tile_i"].size[2])
        s[t].bind(fy, te.thread_axis("threadIdx.y"))
        s[t].bind(fx, te.thread_axis("threadIdx.x"))
        s[t].vectorize(lanes)
        if cfg["double"].val:
            s[t].double_buffer()
    for t in registers:
        s[t].compute_at(s[acc], ki)
        for loop in s[t].op.axis:
            s[t].unroll(loop)
    return s, [a, b, c]


@lw.template("tests/gpu_rows")
def gpu_rows(n: int, m: int) -> Any:
    """Softmax, a block for a row: its threads reduce together, twice."""
    cfg = lw.get_config()
    a = te.placeholder((n, m), name="A")
    k1, k2 = te.reduce_axis((0, m), name="k1"), te.reduce_axis((0, m), name="k2")
    top = te.compute((n,), lambda i: te.max(a[i, k1], axis=k1), name="top")
    power = te.compute((n, m), lambda i, j: te.exp(a[i, j] - top[i]), name="power")
    total = te.compute((n,), lambda i: te.sum(power[i, k2], axis=k2), name="total")
    out = te.compute((n, m), lambda i, j: power[i, j] / total[i], name="out")
    s = te.create_schedule(out.op)
    s[power].compute_inline()
    cfg.define_knob("threads", [8, 16, 32, 128, 256])
    i, j = s[out].op.axis
    _, jt = s[out].split(j, factor=cfg["threads"].val)
    s[out].bind(i, te.thread_axis("blockIdx.x"))
    s[out].bind(jt, te.thread_axis("threadIdx.x"))
    for stage, k, scope in ((top, k1, "local"), (total, k2, "shared")):
        _, kt = s[stage].split(k, factor=cfg["threads"].val)
        s[stage].bind(kt, te.thread_axis("threadIdx.x"))
        s[stage].compute_at(s[out], i)
        s[stage].set_scope(scope)
    return s, [a, out]


TEMPLATES = {"matmul": (gpu_matmul, (64, 128, 96)), "rows": (gpu_rows, (12, 500))}


def task_of(name: str, target: str = "cuda -arch=sm_90") -> Task:
    """The task of an entry of `TEMPLATES`."""
    template, args = TEMPLATES[name]
    return create_task(template, args=args, target=target)


def digits_of(task: Task, n: int, seed: int = 0) -> np.ndarray:
    """Random candidates, valid or not."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, d, n) for d in task.config_space.dims], axis=1)
