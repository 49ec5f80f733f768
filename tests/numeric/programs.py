"""Programs and checks that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from fuzzing.differential import Checker, check_schedule
from loopwright import te
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule
from loopwright.testing.target_contract import runs_here
from tests.kernels import build

Array = np.ndarray[Any, Any]

TARGETS = (
    "llvm -num-threads=1",
    "llvm -num-threads=2",
    "llvm -num-threads=1 -prefer-vector-width=256",
    "llvm -num-threads=1 -mcpu=x86-64",
)
#: Most lanes of vector code over arrays; where the length is a prime, the last vector is cut off.
LANES = 16
#: Targets of functions of elements; as scalar code those of LLVM alone.
ELEMENTWISE = [
    t
    for t in ("llvm -num-threads=1", "llvm -num-threads=1 -mcpu=x86-64", "c -num-threads=1")
    if runs_here(t)
]


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


def check(*cases: tuple[Any, ...]) -> None:
    """Compare functions of elements with what they give: bits, by all ways to run them.

    A case is a function, what it gives, and the arrays that it takes.
    """

    def equal(got: Array, want: Any) -> None:
        np.testing.assert_array_equal(got, np.asarray(want, got.dtype))

    compare(equal, {f"case {n}": case for n, case in enumerate(cases)})


def compare(equal: Callable[[Array, Any], None], cases: Mapping[str, tuple[Any, ...]]) -> None:
    """As `check`, with ``equal`` in place of equal bits, and with names for the cases.

    All cases are one kernel: by the interpreter, as scalar code and as vector code.
    """
    args, outs = [], []
    for f, _, *arrays in cases.values():
        own = [te.placeholder(x.shape, x.dtype.name, name=f"A{n}") for n, x in enumerate(arrays)]
        args += own
        outs.append(te.compute(own[0].shape, lambda i, f=f, own=own: f(*(a[i] for a in own))))
    inputs = [x for _, _, *arrays in cases.values() for x in arrays]
    wrong = []
    for vector in (False, True):
        s = create_schedule([t.op for t in outs])
        for t in outs if vector else ():
            (n,) = t.static_shape
            lanes = max((d for d in range(2, LANES + 1) if n % d == 0), default=LANES)
            s[t].vectorize(s[t].split(t.op.axis[0], min(lanes, n))[1])
        for target in ("interpreter", *(t for t in ELEMENTWISE if vector or t[:4] == "llvm")):
            found = [np.zeros(t.static_shape, t.dtype) for t in outs]
            if target == "interpreter":
                interpret(lower(s, [*args, *outs]), [*inputs, *found])
            else:
                build(s, [*args, *outs], target=target)(*inputs, *found)
            for got, (name, (_, want, *_)) in zip(found, cases.items(), strict=True):
                try:
                    equal(got, want)
                except AssertionError as error:
                    code = "vector" if vector else "scalar"
                    wrong.append(f"{name}, {target}, {code} code: {error}")
    if wrong:
        pytest.fail("\n".join(wrong))
