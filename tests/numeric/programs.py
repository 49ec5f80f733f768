"""Programs and checks that the tests of this folder share."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzzing.differential import Checker, check_schedule
from loopwright import te
from loopwright.schedule import Schedule, create_schedule

TARGETS = (
    "llvm -num-threads=1",
    "llvm -num-threads=2",
    "llvm -num-threads=1 -prefer-vector-width=256",
    "llvm -num-threads=1 -mcpu=x86-64",
)


def small(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray[Any, Any]:
    """Integers in [-4, 4]: their sums and products are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


class Matmul:
    """C = A B, unscheduled, and a check against NumPy's own product."""

    def __init__(self, m: int, n: int, k: int) -> None:
        self.A = te.placeholder((m, k), name="A")
        self.B = te.placeholder((k, n), name="B")
        r = te.reduce_axis((0, k), name="k")
        self.C = te.compute(
            (m, n), lambda i, j: te.sum(self.A[i, r] * self.B[r, j], axis=r), name="C"
        )
        self.k = r
        self.s = create_schedule(self.C)
        self.inputs = [small(m, k), small(k, n, seed=1)]

    def check(self, checker: Checker) -> str:
        args = [self.A, self.B, self.C]
        return str(check_schedule(self.s, args, self.inputs, targets=TARGETS, checker=checker))


def chain(n: int = 37, m: int = 11) -> tuple[Schedule, list[Any], list[Any]]:
    """D = (A + 1) * 2 - A over two stages; the schedule, the tensors, the inputs."""
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((n, m), lambda i, j: B[i, j] * 2, name="C")
    D = te.compute((n, m), lambda i, j: C[i, j] - A[i, j], name="D")
    return create_schedule(D), [A, B, C, D], [small(n, m)]


def run(s: Schedule, args: list[Any], inputs: list[Any], checker: Checker) -> str:
    return str(check_schedule(s, args, inputs, targets=TARGETS, checker=checker))
