"""One small task of every operator, with arguments that leave tails, and templates that branch.

An operator whose space is derived stands here with the template by hand that it had.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from benchmarks.templates import BASELINES
from loopwright import ops, te
from loopwright.task import Task, create_task

OPERATORS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "matmul": ("matmul", (64, 48, 32)),
    "matmul tails": ("matmul", (50, 41, 30, True, True)),
    "matmul int8": ("matmul_int8", (24, 48, 32)),
    "batch_matmul": ("batch_matmul", (3, 32, 48, 16)),
    "dense": ("dense", (32, 48, 64)),
    "conv2d": ("conv2d", (1, 4, 14, 14, 32, 3, 3, 1, 1)),
    "conv2d groups": ("conv2d", (1, 16, 14, 14, 32, 3, 3, 2, 1, "float32", 1, 4)),
    "conv2d nhwc": ("conv2d", (2, 14, 12, 10, 32, 3, 3, 1, 1, "float32", 1, 1, "NHWC")),
    "depthwise": ("depthwise_conv2d", (1, 8, 14, 14, 3, 3, 1, 1)),
    "pool2d": ("pool2d", (1, 8, 14, 14, 3, 3, 2, 1)),
    "softmax": ("softmax", (32, 200)),
    "layer_norm": ("layer_norm", (32, 200)),
    "reduce": ("reduce", (64, 100)),
    "reduce rows": ("reduce", (64, 100, "sum", 0)),
    "elementwise": ("elementwise", (32, 128)),
    "transpose": ("transpose", (60, 44)),
}


#: Operators of which each has loops, reads or instructions of its own kind.
DISTINCT = (
    *("matmul tails", "matmul int8", "conv2d", "conv2d nhwc", "depthwise"),
    *("softmax", "reduce", "elementwise"),
)


def by_kind(values: Sequence[Any] = ()) -> list[Any]:
    """Parameters of all operators; those whose kind another one has are of the slow tier.

    With ``values`` of a second parameter each has one of them in the fast tier, in turns.
    """
    cases = []
    for name, value in product(OPERATORS, values or [None]):
        turn = DISTINCT.index(name) if name in DISTINCT else None
        kept = turn is not None and (not values or value == values[turn % len(values)])
        parameters = (name, value) if values else (name,)
        cases.append(pytest.param(*parameters, marks=() if kept else pytest.mark.slow))
    return cases


def task_of(name: str) -> Task:
    """The task of an entry of `OPERATORS`."""
    operator, args = OPERATORS[name]
    template = BASELINES.get(operator, ops.WORKLOADS[operator].template)
    return create_task(template, args=args, target="llvm")


def digits_of(task: Task, n: int, seed: int = 0) -> np.ndarray:
    """Random candidates, valid or not."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, d, n) for d in task.config_space.dims], axis=1)


@lw.template("features/branching")
def branching(n: int, m: int) -> Any:
    """Branches on a size, refuses some points, and lets one size shape the DAG."""
    cfg = lw.get_config()
    cfg.define_split("x", n, num_outputs=3)
    cfg.define_split("y", m)
    cfg.define_knob("block", [1, 2, 4])
    cfg.define_knob("free", [1, 2, 4, 8])
    block = cfg["block"].val
    A = te.placeholder((n, m // block, block), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j // block, j % block] * 2.0, name="B")
    C = te.compute((n, m), lambda i, j: B[i, j] + 1.0, name="C")
    s = te.create_schedule(C.op)
    x0, x1, x2 = cfg["x"].apply(s, C, s[C].op.axis[0])
    y0, y1 = cfg["y"].apply(s, C, s[C].op.axis[1])
    if cfg["y"].size[-1] > 8:
        s[C].reorder(x0, y0, x1, x2, y1)
        s[C].vectorize(y1)
    else:
        s[C].reorder(x0, x1, y0, x2, y1)
    if cfg["x"].size[1] * cfg["x"].size[2] > 16:
        cfg.raise_error("too large")
    s[B].compute_at(s[C], x1)
    s[B].split(s[B].op.axis[1], factor=cfg["free"].val)
    return s, [A, C]
