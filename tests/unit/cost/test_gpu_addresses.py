"""Where the threads of a warp are by the symbolic schedule, against the lowered program's indices.

The statements of the lowered kernel are run for the threads of the first warp of block 0, all other
loops standing at their beginning, and the elements that they touch are gone through by hand.
"""

from __future__ import annotations

from typing import Any

import pytest

import loopwright as lw
from loopwright.cost.gpu.device import device_of
from loopwright.cost.gpu.kernel import GpuKernel, ThreadAccess, kernels_of
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Const, Expr, Var
from loopwright.ir.stmt import For, If, Let, Stmt, Store, is_launch
from tests.unit.cost import gpu_workloads as workloads
from tests.unit.cost.test_gpu_kernel import candidates

CUDA = device_of(lw.Target("cuda -arch=sm_90"))
OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "<": lambda a, b: a < b,
    "and": lambda a, b: a and b,
}


def value(e: Expr, at: dict[Var, int]) -> int:
    """An index, by its definition."""
    match e:
        case Const(value=int(v)):
            return v
        case Var():
            return at[e]
        case Binary(op=op, a=a, b=b):
            return OPERATORS[op](value(a, at), value(b, at))
    raise NotImplementedError(str(e))


class FirstWarp:
    """Bytes at which the threads of the first warp begin, by buffer, kind and statement."""

    def __init__(self, f: Any) -> None:
        self.extents: dict[str, int] = {}
        self.found: list[tuple[str, bool, list[int]]] = []
        self._vectors: list[For] = []
        self._lets: dict[Var, Expr] = {}
        self._threads: dict[Var, str] = {}
        self._zero: set[Var] = set()
        self._tests: list[Expr] = []
        self._go(f.body)

    def _go(self, s: Any) -> None:
        match s:
            case For() if is_launch(s):
                self._threads[s.var] = s.tag
                self.extents[s.tag] = s.count
                self._go(s.body)
            case For():
                self._zero.add(s.var)
                self._go(s.body)
            case Let():
                self._lets[s.var] = s.value
                self._go(s.body)
            case If():
                self._tests.append(s.cond)
                self._go(s.then)
                self._tests.pop()
            case Store():
                self._note(s.buffer, True, s.indices)
                self._loads(s.value)
            case _:
                for c in s.children():
                    if isinstance(c, Stmt):
                        self._go(c)

    def _loads(self, e: Any) -> None:
        if isinstance(e, Load):
            self._note(e.buffer, False, e.indices)
        for c in e.children():
            self._loads(c)

    def _note(self, b: Buffer, write: bool, indices: tuple[Expr, ...]) -> None:
        if b.scope == "local":
            return
        found = []
        for lane in range(32):
            at = dict.fromkeys(self._zero, 0)
            left = lane
            for tag in ("threadIdx.x", "threadIdx.y", "threadIdx.z"):
                n = self.extents.get(tag, 1)
                at |= {v: left % n for v, t in self._threads.items() if t == tag}
                left //= n
            at |= {v: 0 for v, t in self._threads.items() if t.startswith("blockIdx")}
            if left:
                break
            for v, e in self._lets.items():
                at[v] = value(e, at)
            if not all(value(test, at) for test in self._tests):
                continue  # this thread has no part in the statement
            strides = b.strides or _dense(b.extents)
            found.append(4 * sum(value(i, at) * s for i, s in zip(indices, strides, strict=True)))
        self.found.append((b.name, write, found))


def _dense(shape: Any) -> list[int]:
    out = [1]
    for n in reversed(shape[1:]):
        out.insert(0, out[0] * n)
    return out


def described(k: GpuKernel, a: ThreadAccess) -> list[int]:
    """Bytes at which the threads begin, by the digits of an access."""
    lanes = range(min(int(k.threads), 32))
    return [sum(s * (x // run % n) for s, run, n in a.digits) for x in lanes]


def test_threads_are_where_the_lowered_program_has_them() -> None:
    """Exactly, but where rows of a fused tile end inside of the warp's stride."""
    equal: list[bool] = []
    for s, args in candidates("matmul", 30, 11):
        (k,) = kernels_of(s.state, CUDA)
        if k.threads > 1024 or any(x.written > 1024 for x in k.stages):
            continue
        warp = FirstWarp(lw.lower(s, args))
        for a in (a for stage in k.stages for a in stage.accesses if a.scope != "local"):
            name = s.state.label(a.access.buffer.stage)
            found = [x for n, write, x in warp.found if n == name and write == a.access.write]
            mine = from_zero(described(k, a))
            equal.append(any(mine == from_zero(theirs) for theirs in found))
            counts = [len({x // 32 for x in from_zero(theirs)}) for theirs in found]
            ours = len({x // 32 for x in mine})
            assert equal[-1] or any(n / 2 <= ours <= n * 2 for n in counts)
    assert len(equal) > 100
    assert sum(equal) > 0.9 * len(equal)


def from_zero(places: list[int]) -> set[int]:
    return {x - min(places) for x in places}


@pytest.mark.parametrize(
    ("pad", "conflicts"),
    [(0, 8), (4, 1)],
)
def test_gaps_between_rows_end_bank_conflicts(pad: int, conflicts: int) -> None:
    """Threads of a warp that read down a column of 32 floats meet in one bank; with rows of 36
    those of 8 rows do not."""
    task = workloads.task_of("matmul")
    index = task.config_space.index_of(
        {
            "tile_i": [-1, 1, 8, 1],
            "tile_j": [-1, 1, 4, 1],
            "tile_k": [-1, 8],
            "vector": 1,
            "pad": pad,
            "double": False,
        }
    )
    s, _ = task.instantiate(index)
    (k,) = kernels_of(s.state, CUDA)
    (stage,) = [x for x in k.stages if x.nest.op.name == "A.shared.local"]
    load = next(a for a in stage.accesses if a.scope == "shared")
    assert load.wavefronts == conflicts
