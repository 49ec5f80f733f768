"""Loops, regions and touched elements against bound inference and against counting them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from loopwright.cost.cpu.footprint import Touches
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.symbolic.loop_nest import nests_of
from loopwright.ir.affine import Affine
from loopwright.ir.expr import Binary, Cast, Const, Expr, Unary, Var
from loopwright.ir.node import distinct
from loopwright.schedule import Schedule
from loopwright.schedule.bounds.results import Bounds, StageBounds
from loopwright.target.hardware import Caches
from tests.unit.cost import workloads

MACHINE = Machine(2, Caches(1 << 15, 1 << 20, 1 << 24, 64), 64, 32, 64)


def schedules(name: str, n: int, seed: int) -> list[Schedule]:
    """Schedules of random candidates that lowering accepts."""
    task = workloads.task_of(name)
    found = []
    for digits in workloads.digits_of(task, 10 * n, seed):
        index = task.config_space.knob2point([int(d) for d in digits])
        if task.config_space.is_valid(index):
            found.append(task.instantiate(index)[0])
    return found[:n]


@pytest.mark.parametrize("name", workloads.by_kind())
def test_loops_and_regions_are_those_of_bound_inference(name: str) -> None:
    for s in schedules(name, 6, 1):
        bounds = s.bounds()
        nests = {n.stage.id: n for n in nests_of(s.state)}
        assert list(nests) == [i for i in s.state.order if i in bounds.stages]
        for sid, sb in bounds.stages.items():
            nest = nests[sid]
            own = nest.loops[len(nest.loops) - nest.own :]
            assert [x.extent for x in own] == [x.extent for x in sb.loops]
            assert nest.shape == sb.shape
            outside = list(nest.loops[: len(nest.loops) - nest.own])
            assert [x.extent for x in outside] == _outside(sb, bounds)


def _outside(sb: StageBounds, bounds: Bounds) -> list[Any]:
    at = sb.stage.attach
    if at.kind != "at":
        return []
    host = bounds.stages[at.stage]
    pos = host.stage.leaves.index(at.loop)
    return [*_outside(host, bounds), *(x.extent for x in host.loops[: pos + 1])]


def number(e: Expr, at: dict[Var, int]) -> int:
    """Value of an index expression, by its definition."""
    match e:
        case Var():
            return at[e]
        case Const(value=v):
            return int(v)
        case Cast(value=v):
            return number(v, at)
        case Unary(op="-", a=a):
            return -number(a, at)
        case Binary(op="+", a=a, b=b):
            return number(a, at) + number(b, at)
        case Binary(op="-", a=a, b=b):
            return number(a, at) - number(b, at)
        case Binary(op="*", a=a, b=b):
            return number(a, at) * number(b, at)
        case Binary(op="//", a=a, b=b):
            return number(a, at) // number(b, at)
        case Binary(op="%", a=a, b=b):
            return number(a, at) % number(b, at)
    raise AssertionError(f"no index: {e!r}")


def chain_of(sb: StageBounds, bounds: Bounds) -> list[tuple[StageBounds, int]]:
    """The stages around a statement, with how many of their loops are around it."""
    at = sb.stage.attach
    own = [(sb, len(sb.loops))]
    if at.kind != "at":
        return own
    host = bounds.stages[at.stage]
    *before, _ = chain_of(host, bounds)
    return [*before, (host, host.stage.leaves.index(at.loop) + 1), *own]


def counted(sb: StageBounds, bounds: Bounds, depth: int) -> tuple[list[int], list[int]]:
    """Different elements that each access reaches while the loops from ``depth`` on run.

    The outer loops stand at 0. All loops run, and every index is computed as bound inference has
    it; the accesses are the store, then each different load. Returns all, and those that exist.
    """
    chain = chain_of(sb, bounds)
    loops = [(x, host) for host, n in chain for x in host.loops[:n]]
    ranges = [range(x.count if k >= depth else 1) for k, (x, _) in enumerate(loops)]
    reads = distinct(sb.op.reads())
    seen: list[set[tuple[int, ...]]] = [set() for _ in range(len(reads) + 1)]
    for values in product(*ranges):
        at = {x.var: v for (x, _), v in zip(loops, values, strict=True)}
        for host, n in chain:
            for group in host.lets[: n + 1]:
                for var, value in group:
                    at[var] = number(value, at)
        axes = {v: value_of(a, at) for v, a in sb.values.items()}
        # Addresses: a buffer begins at the first element that its stage covers.
        own = [axes[a.var] for a in sb.op.axes]
        seen[0].add(tuple(np.subtract(own, [value_of(b, at) for b in sb.base]).tolist()))
        for k, read in enumerate(reads):
            index = [number(i, axes) for i in read.indices]
            source = bounds.stages.get(read.source)
            base = [0] * len(index) if source is None else [value_of(b, at) for b in source.base]
            seen[k + 1].add(tuple(np.subtract(index, base).tolist()))
    inside = [len(seen[0])]
    for read, found in zip(reads, seen[1:], strict=True):
        source = bounds.stages.get(read.source)
        shape = bounds.ops[read.source].shape if source is None else source.shape
        inside.append(sum(all(0 <= i < n for i, n in zip(x, shape, strict=True)) for x in found))
    return [len(x) for x in seen], inside


def value_of(a: Affine, at: dict[Var, int]) -> int:
    return a.const + sum(c * at[v] for v, c in a.terms.items())


def whole(sb: StageBounds, bounds: Bounds) -> bool:
    """Whether every iteration of a stage and of those around it does something new."""
    hosts = [host for host, _ in chain_of(sb, bounds)]
    return not any(h.guards or h.domain for h in hosts)


TINY = {
    "matmul": ("matmul", (8, 32, 6)),
    "transposed": ("matmul", (8, 64, 16, True, True)),
    "batch": ("batch_matmul", (2, 4, 32, 4)),
    "conv2d": ("conv2d", (1, 2, 8, 8, 16, 3, 3, 1, 1)),
    "strided": ("conv2d", (1, 2, 9, 9, 16, 3, 3, 2, 1)),
    "nhwc": ("conv2d", (1, 2, 6, 6, 16, 3, 3, 1, 0, "float32", 1, 1, "NHWC")),
    "depthwise": ("depthwise_conv2d", (1, 2, 6, 16, 3, 3, 1, 1)),
    "pool": ("pool2d", (1, 2, 8, 32, 2, 2, 2, 0)),
    "softmax": ("softmax", (4, 64)),
    "layer_norm": ("layer_norm", (4, 64)),
    "reduce": ("reduce", (8, 64)),
    "columns": ("reduce", (8, 64, "sum", 0)),
    "elementwise": ("elementwise", (8, 64)),
    "transpose": ("transpose", (32, 32)),
}


#: Of a kind each; what the others add to these is a layout, or another kernel of the same loops.
DISTINCT = ("matmul", "conv2d", "depthwise", "layer_norm", "elementwise")


@pytest.mark.parametrize(
    "name",
    [n if n in DISTINCT else pytest.param(n, marks=pytest.mark.slow) for n in TINY],
)
def test_touched_elements_are_those_that_are_counted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(workloads.OPERATORS, name, TINY[name])
    compared = 0
    for s in schedules(name, 6, 2):
        bounds = s.bounds()
        for nest in nests_of(s.state):
            sb = bounds.stages[nest.stage.id]
            if not whole(sb, bounds):
                continue
            t = Touches(nest, MACHINE)
            for depth in range(len(nest.loops) + 1):
                if t.inner[depth] > 1200:
                    continue
                mine = [a.elements[depth] for a in t.accesses]
                for n, every, inside in zip(mine, *counted(sb, bounds, depth), strict=True):
                    # A load under a condition may not happen: which ones is not looked at.
                    assert inside <= n <= every, (nest.op.name, depth, s.trace_json())
                compared += 1
    assert compared > 0
