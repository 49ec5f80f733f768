"""Planning: a fused module as a program of kernels, its values, and their memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from loopwright.errors import GraphError, shown
from loopwright.executors import Kind, Program, SizedProgram, SizedValue, Step
from loopwright.graph.infer import infer_types
from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.module import MAIN, OUTPUT_NAMES, IRModule
from loopwright.graph.ir.structural import structural_hash
from loopwright.graph.ir.visitor import post_order
from loopwright.ir.expr import Var as IndexVar
from loopwright.ir.printer import unique
from loopwright.ir.sizes import SizeVar, size_json, size_vars

P = TypeVar("P", Program, SizedProgram)


@dataclass
class ProgramPlan(Generic[P]):
    program: P
    #: function of each kernel by name, with the indices of constant parameters
    kernels: dict[str, tuple[ir.Function, tuple[int, ...]]]
    constants: dict[str, np.ndarray[Any, Any]]
    calls: dict[str, int]  # number of calls of each kernel in a run
    #: Python functions among its steps, by name
    hosts: dict[str, ir.HostFunction] = field(default_factory=dict)


Planned: TypeAlias = ProgramPlan[Program]
#: A module as a program with one size known only at run time.
SizedPlan: TypeAlias = ProgramPlan[SizedProgram]


def plan(module: IRModule) -> Planned:
    """The program of a straight module of known sizes after `FuseOps`."""
    sized = _Planner(infer_types(module), None).plan(module[MAIN])
    program = sized.program.at(0)  # no extent depends on it
    return Planned(program, sized.kernels, sized.constants, sized.calls, sized.hosts)


def plan_sized(module: IRModule, size: SizeVar) -> SizedPlan:
    """As `plan`, for a module whose extents depend on one size."""
    return _Planner(infer_types(module), size).plan(module[MAIN])


_NO_FUNCTIONS = "its values are tensors; call the function, or leave it out"


class _Places(dict[ir.Expr, list[int]]):
    """Indices of the values of each expression; functions have none."""

    def __missing__(self, e: ir.Expr) -> list[int]:
        raise _no_place(e, _NO_FUNCTIONS)


def _no_place(e: ir.Expr, why: str) -> GraphError:
    origin = f" ({e.span})" if e.span else ""
    return GraphError(f"a {type(e).__name__}{origin} has no place in a program of kernels: {why}")


@dataclass
class _Planner:
    types: Mapping[ir.Expr, ir.Type]
    size: SizeVar | None
    values: list[SizedValue] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    #: names of kernels by the hash of their function and the indices of constant parameters
    names: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)
    kernels: dict[str, tuple[ir.Function, tuple[int, ...]]] = field(default_factory=dict)
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    hosts: dict[str, ir.HostFunction] = field(default_factory=dict)

    def plan(self, main: ir.Function) -> SizedPlan:
        where = _Places()
        used: set[str] = set()
        for p in main.params:
            where[p] = [self._add(unique(p.name, used), self.types[p], "input")]
        body = post_order(main.body)
        inner = {e for f in body if isinstance(f, ir.Function) for e in post_order(f)}
        # A constant of a kernel's function may be an argument outside of it, too.
        inner -= {
            c for e in body if e not in inner for c in e.children if isinstance(c, ir.Constant)
        }
        bound = {e.var: e.value for e in body if isinstance(e, ir.Let)}
        for e in body:
            if e not in inner and e not in where:
                where[e] = self._numbers(e, where, bound, used)
        inputs = [where[p][0] for p in main.params]
        names = main.attrs.get(OUTPUT_NAMES, ())
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise GraphError(f"the attribute {OUTPUT_NAMES} of main is {shown(names)}, no names")
        program = self._program(inputs, where[main.body], names)
        return SizedPlan(program, self.kernels, self.constants, self.calls, self.hosts)

    def _numbers(
        self,
        e: ir.Expr,
        where: _Places,
        bound: Mapping[ir.Var, ir.Expr],
        used: set[str],
    ) -> list[int]:
        match e:
            case ir.Constant():
                name = unique(e.name or "constant", used)
                self.constants[name] = e.data
                return [self._add(name, e.type, "constant")]
            case ir.Var():
                return where[bound[e]]
            case ir.Let():
                return where[e.body]
            case ir.Tuple():
                if any(len(where[f]) != 1 for f in e.fields):
                    raise GraphError("tuples of tuples have no place in a program; flatten them")
                return [where[f][0] for f in e.fields]
            case ir.TupleGetItem():
                return [where[e.tuple_value][e.index]]
            case ir.Call(op=ir.Function() as f) if f.primitive:
                return self._step(e, f, [where[a][0] for a in e.args])
            case ir.HostFunction():
                return []
            case ir.Call(op=ir.HostFunction() as host):
                name = f"{_plain(host.name)}_by_{_plain(host.by)}_{len(self.hosts)}"
                self.hosts[name] = host
                return self._add_step(e, name, [where[a][0] for a in e.args])
            case ir.GlobalVar():
                raise _no_place(e, _NO_FUNCTIONS)
        advice = "run FuseOps before"
        if isinstance(e, ir.If):
            advice = "build its branches as two models, and choose in Python"
        raise _no_place(e, f"the graph executor runs calls one after the other; {advice}")

    def _step(self, call: ir.Call, function: ir.Function, args: list[int]) -> list[int]:
        constant = tuple(i for i, n in enumerate(args) if self.values[n].kind == "constant")
        key = structural_hash(function), constant
        if key not in self.names:
            calls = [e for e in post_order(function.body) if isinstance(e, ir.Call)]
            label = joined_names([getattr(e.op, "name", "call") for e in calls])
            self.names[key] = f"{label}_{len(self.names)}"
            self.kernels[self.names[key]] = (function, constant)
        name = self.names[key]
        self.calls[name] = self.calls.get(name, 0) + 1
        return self._add_step(call, name, args)

    def _add_step(self, call: ir.Call, name: str, args: list[int]) -> list[int]:
        result = self.types[call]
        parts = result.fields if isinstance(result, ir.TupleType) else (result,)
        outputs = [self._add(name, t, "stored") for t in parts]
        self.steps.append(Step(name, (*args, *outputs), len(outputs)))
        return outputs

    def _add(self, name: str, t: ir.Type, kind: Kind) -> int:
        if not isinstance(t, ir.TensorType):
            raise GraphError(f"{name!r} is {t}; a program's values are tensors")
        names: dict[IndexVar, str] = {} if self.size is None else {self.size: self.size.name}
        if any(v not in names for n in t.shape for v in size_vars([n])):
            raise GraphError(f"{name!r} is {t}; the graph executor runs sizes that are known")
        shape = tuple(size_json(n, names) for n in t.shape)
        self.values.append(SizedValue(name, shape, t.dtype, kind))
        return len(self.values) - 1

    def _program(self, inputs: list[int], outputs: list[int], names: Sequence[str]) -> SizedProgram:
        used: set[str] = set()
        named = tuple(unique(name, used) for name in names)
        size = "" if self.size is None else self.size.name
        return SizedProgram(
            size, tuple(self.values), tuple(self.steps), tuple(inputs), tuple(outputs), named
        )


def joined_names(operators: Sequence[str]) -> str:
    """Up to four operators, without their namespaces, and the number of others."""
    names = [name.rpartition(".")[2] for name in operators]
    return "_".join(names[:4]) + (f"_and_{len(names) - 4}" if len(names) > 4 else "")


def _plain(name: str) -> str:
    """A name of letters, digits and underscores."""
    return re.sub("[^0-9A-Za-z]+", "_", name).strip("_").lower()
