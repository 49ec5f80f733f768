"""Weights that executors of two builds of a program share."""

from __future__ import annotations

import numpy as np

from loopwright.executors import GraphExecutor, HostStep, Program, Step, Value
from loopwright.executors.program import placed


def _program() -> Program:
    """x + w, and behind it a step that reads no constant."""
    values = [
        Value(name, (2,), "float32", kind)
        for name, kind in (("x", "input"), ("w", "constant"), ("s", "stored"), ("y", "stored"))
    ]
    return placed(values, [Step("add", (0, 1, 2)), Step("scale", (2, 3))], [0], [3])


def _executor(w: float, factor: float) -> GraphExecutor:
    kernels = {
        "add": HostStep("add", lambda x, w: [x + w], 1, "NumPy"),
        "scale": HostStep("scale", lambda s: [s * np.float32(factor)], 1, "NumPy"),
    }
    return GraphExecutor(_program(), kernels, {"w": np.full(2, w, "float32")})


def test_with_the_weights_come_all_kernels_of_the_other() -> None:
    """Programs are equal whose kernels have equal names; calls and callees stay those of one."""
    one, other = _executor(1, 10), _executor(2, 100)
    one.share_params(other)
    for executor in (one, one.another(), other):
        executor.run(x=np.ones(2, "float32"))
        np.testing.assert_array_equal(executor.get_output(0).numpy(), [300, 300])
