"""NumPy on the shapes of the sweep: the plainest call that computes them, into a given array.

A 1x1 convolution is a product of its weights with the image as a matrix, as it is for everybody who
calls a library; other convolutions have no single call of NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from loopwright.cli.numpy_process import NumpyProcess, serve
from loopwright.cli.workload import WorkloadSubject


class NumpySide(NumpyProcess):
    """NumPy on one workload after the other; a context manager. See `NumpyProcess`."""

    module = "benchmarks.sweep_side"


def knows(workload: WorkloadSubject) -> bool:
    """Whether a single call of NumPy computes a workload."""
    operator = workload.operator
    if operator is None or operator.name != "conv2d":
        return operator is not None
    return _is_product(dict(zip(operator.params, workload.task.args, strict=True)))


def _is_product(p: dict[str, Any]) -> bool:
    """Whether a convolution is one matrix product."""
    return all(p[k] == 1 for k in ("N", "KH", "KW", "stride")) and p["pad"] == 0


def _prepare(workload: WorkloadSubject, arrays: list[Any], threads: int) -> Callable[[], object]:
    operator = workload.operator
    assert operator is not None
    given = dict(zip(operator.params, workload.task.args, strict=True))
    a, b = _operands(operator.name, given, *arrays)
    out = np.empty(np.matmul(a, b).shape, np.float32)
    return partial(np.matmul, a, b, out=out)


def _operands(op: str, p: dict[str, Any], x: Any, y: Any) -> tuple[Any, Any]:
    """The two matrices whose product the operator is."""
    match op:
        case "matmul" | "batch_matmul":
            return (
                x.swapaxes(-1, -2) if p["trans_a"] else x,
                y.swapaxes(-1, -2) if p["trans_b"] else y,
            )
        case "dense":
            return x, y.T if p["weight"] == "NK" else y
        case "conv2d" if _is_product(p):
            if p["layout"] == "NHWC":
                return x.reshape(-1, p["C"]), y.reshape(p["C"], p["O"])
            return y.reshape(p["O"], p["C"]), x.reshape(p["C"], -1)
    raise LookupError(f"no single call of NumPy computes {op} {p}")


if __name__ == "__main__":
    sys.exit(serve(_prepare))
