"""A fused module as a program of kernels: which values there are, and where they lie in memory.

Memory is shared out by liveness: a value gets the smallest gap that holds it among the values that
are alive while it is, the largest values first (greedy by size; Pisarchyk and Lee, 2020).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    HostFunction,
    Let,
    Tuple,
    TupleGetItem,
    Var,
)
from loopwright.graph.ir.module import MAIN, OUTPUT_NAMES, IRModule
from loopwright.graph.ir.structural import structural_hash
from loopwright.graph.ir.types import TensorType, TupleType, Type
from loopwright.graph.ir.visitor import post_order
from loopwright.runtime.executors.program import ALIGNMENT, Kind, Program, Step, Value


@dataclass(frozen=True)
class KernelKey:
    """Calls with equal keys are calls of one kernel.

    Attributes:
        hash: of the function.
        constants: places of its parameters that are constant.
    """

    hash: str
    constants: tuple[int, ...]


@dataclass
class Planned:
    """A module as a program.

    Attributes:
        program: its values and steps.
        kernels: the function of each kernel by its name, with the places of constants.
        constants: the arrays of constants by name.
        calls: how often each kernel is called in a run.
        hosts: the Python functions among its steps by their names there.
    """

    program: Program
    kernels: dict[str, tuple[Function, tuple[int, ...]]]
    constants: dict[str, np.ndarray[Any, Any]]
    calls: dict[str, int]
    hosts: dict[str, HostFunction] = field(default_factory=dict)


def plan(module: IRModule) -> Planned:
    """The program of a module whose calls are all of functions of one kernel.

    Args:
        module: after `FuseOps`; its ``main`` is a straight program.

    Raises:
        GraphError: ``main`` has branches, calls functions by name, or sizes are not known.
    """
    planner = _Planner(infer_types(module))
    return planner.plan(module[MAIN])


@dataclass
class _Planner:
    types: Mapping[Expr, Type]
    values: list[Value] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    names: dict[KernelKey, str] = field(default_factory=dict)
    kernels: dict[str, tuple[Function, tuple[int, ...]]] = field(default_factory=dict)
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    hosts: dict[str, HostFunction] = field(default_factory=dict)

    def plan(self, main: Function) -> Planned:
        where: dict[Expr, list[int]] = {}
        used: set[str] = set()
        for p in main.params:
            where[p] = [self._add(_unique(p.name, used), self.types[p], "input")]
        body = post_order(main.body)
        inner = {e for f in body if isinstance(f, Function) for e in post_order(f)}
        bound = {e.var: e.value for e in body if isinstance(e, Let)}
        for e in body:
            if e not in inner and e not in where:
                where[e] = self._numbers(e, where, bound, used)
        inputs = [where[p][0] for p in main.params]
        program = self._placed(inputs, where[main.body], main.attrs.get(OUTPUT_NAMES, ()))
        return Planned(program, self.kernels, self.constants, self.calls, self.hosts)

    def _numbers(
        self, e: Expr, where: dict[Expr, list[int]], bound: Mapping[Var, Expr], used: set[str]
    ) -> list[int]:
        match e:
            case Constant():
                name = _unique(e.name or "constant", used)
                self.constants[name] = e.data
                return [self._add(name, e.type, "constant")]
            case Var():
                return where[bound[e]]
            case Let():
                return where[e.body]
            case Tuple():
                if any(len(where[f]) != 1 for f in e.fields):
                    raise GraphError("tuples of tuples have no place in a program; flatten them")
                return [where[f][0] for f in e.fields]
            case TupleGetItem():
                return [where[e.tuple_value][e.index]]
            case Call(op=Function() as f) if f.primitive:
                return self._step(e, f, [where[a][0] for a in e.args])
            case HostFunction():
                return []
            case Call(op=HostFunction() as host):
                name = f"{_plain(host.name)}_by_{_plain(host.by)}_{len(self.hosts)}"
                self.hosts[name] = host
                return self._add_step(e, name, [where[a][0] for a in e.args])
        where_from = f" ({e.span})" if e.span else ""
        raise GraphError(
            f"a {type(e).__name__}{where_from} has no place in a program of kernels: the graph "
            "executor runs calls one after the other; run FuseOps before"
        )

    def _step(self, call: Call, function: Function, args: list[int]) -> list[int]:
        constant = tuple(i for i, n in enumerate(args) if self.values[n].kind == "constant")
        key = KernelKey(structural_hash(function), constant)
        if key not in self.names:
            self.names[key] = f"{_label(function)}_{len(self.names)}"
            self.kernels[self.names[key]] = (function, constant)
        name = self.names[key]
        self.calls[name] = self.calls.get(name, 0) + 1
        return self._add_step(call, name, args)

    def _add_step(self, call: Call, name: str, args: list[int]) -> list[int]:
        result = self.types[call]
        parts = result.fields if isinstance(result, TupleType) else (result,)
        outputs = [self._add(name, t, "stored") for t in parts]
        self.steps.append(Step(name, (*args, *outputs), len(outputs)))
        return outputs

    def _add(self, name: str, t: Type, kind: Kind) -> int:
        if not isinstance(t, TensorType):
            raise GraphError(f"{name!r} is {t}; a program's values are tensors")
        shape = tuple(n for n in t.shape if isinstance(n, int))
        if len(shape) < len(t.shape):
            raise GraphError(f"{name!r} is {t}; the graph executor runs sizes that are known")
        self.values.append(Value(name, shape, t.dtype, kind))
        return len(self.values) - 1

    def _placed(self, inputs: list[int], outputs: list[int], names: Sequence[str]) -> Program:
        lives = _lives(self.values, self.steps, outputs)
        offsets, size = share_out({n: self.values[n].nbytes for n in lives}, lives)
        values = [replace(v, offset=offsets.get(n, 0)) for n, v in enumerate(self.values)]
        used: set[str] = set()
        named = tuple(_unique(name, used) for name in names)
        return Program(tuple(values), tuple(self.steps), tuple(inputs), tuple(outputs), size, named)


def _lives(
    values: list[Value], steps: list[Step], outputs: list[int]
) -> dict[int, tuple[int, int]]:
    """For what is stored the step that makes it, and the last one that reads it."""
    lives: dict[int, tuple[int, int]] = {}
    for at, step in enumerate(steps):
        for n in step.args:
            if values[n].kind == "stored":
                lives[n] = (lives.get(n, (at, at))[0], at)
    return {n: (a, len(steps) if n in outputs else b) for n, (a, b) in lives.items()}


def share_out(
    sizes: Mapping[int, int], lives: Mapping[int, tuple[int, int]]
) -> tuple[dict[int, int], int]:
    """Offsets in a pool of memory for values that live for some steps, both ends included.

    Args:
        sizes: bytes of each value.
        lives: its first and its last step.

    Returns:
        Offsets, multiples of 64; values that live at one time do not overlap. And the pool's bytes.
    """
    offsets: dict[int, int] = {}
    rounded = {n: -(-max(size, 1) // ALIGNMENT) * ALIGNMENT for n, size in sizes.items()}
    for n in sorted(rounded, key=lambda n: (-rounded[n], lives[n])):
        begin, end = lives[n]
        beside = [m for m in offsets if lives[m][0] <= end and begin <= lives[m][1]]
        offsets[n] = _gap(rounded[n], sorted((offsets[m], rounded[m]) for m in beside))
    return offsets, max((offsets[n] + rounded[n] for n in offsets), default=0)


def _gap(size: int, taken: list[tuple[int, int]]) -> int:
    """The beginning of the smallest gap between places that are taken; else their end."""
    best, end = None, 0
    for offset, taken_size in taken:
        gap = offset - end
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, offset + taken_size)
    return end if best is None else best[1]


def _label(function: Function) -> str:
    """A name from the operators of a kernel."""
    calls = [e for e in post_order(function.body) if isinstance(e, Call)]
    names = [getattr(e.op, "name", "call").rpartition(".")[2] for e in calls]
    return "_".join(names[:4]) + (f"_and_{len(names) - 4}" if len(names) > 4 else "")


def _plain(name: str) -> str:
    """A name of letters, digits and underscores."""
    return re.sub("[^0-9A-Za-z]+", "_", name).strip("_").lower()


def _unique(name: str, used: set[str]) -> str:
    found, n = name, 0
    while found in used:
        n += 1
        found = f"{name}_{n}"
    used.add(found)
    return found
