"""Graphs as text: one line for each call, in the manner of Relay's text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from loopwright.errors import InternalError
from loopwright.graph.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    HostFunction,
    If,
    Let,
    OpRef,
    Tuple,
    TupleGetItem,
    Var,
)
from loopwright.graph.ir.scopes import Block, blocks
from loopwright.graph.ir.types import Type

#: Nodes without a line of their own: they are written where they are read.
_WRITTEN_IN_PLACE = (Var, Constant, GlobalVar, OpRef, HostFunction, Tuple, TupleGetItem)


def function_text(
    name: str, function: Function, types: Mapping[Expr, Type] | None = None
) -> tuple[str, dict[Expr, int]]:
    """A function as text, and the line number, from 0, of each node that has a line.

    ``types`` of nodes are written after their lines.
    """
    writer = _Writer(types or {})
    writer.open(f"def @{name}", function, 0)
    writer.block(blocks(function.body), 1)
    writer.add("}", 0)
    return "\n".join(writer.lines), writer.line_of


class _Writer:
    def __init__(self, types: Mapping[Expr, Type]) -> None:
        self.lines: list[str] = []
        self.line_of: dict[Expr, int] = {}
        self._types = types
        self._names: dict[Expr, str] = {}
        self._used: set[str] = set()
        self._count = 0

    def add(self, text: str, depth: int, e: Expr | None = None) -> None:
        """Write a line, which belongs to node ``e``."""
        if e is not None:
            self.line_of[e] = len(self.lines)
            comment = f"  /* {self._types[e]} */" if e in self._types else ""
            text += comment
        self.lines.append("  " * depth + text)

    def open(self, head: str, function: Function, depth: int) -> None:
        params = ", ".join(f"{self._named(p)}: {p.type}" for p in function.params)
        result = f" -> {function.result}" if function.result is not None else ""
        attrs = f" [{_attrs(function.attrs)}]" if function.attrs else ""
        self.add(f"{head}({params}){result}{attrs} {{", depth)

    def block(self, block: Block, depth: int) -> None:
        """Write the lines of a block; its value is the last one."""
        bindings = {e.var: e for e in block.nodes if isinstance(e, Let)}
        for e in block.nodes:
            if isinstance(e, Var) and e in bindings:
                self.add(f"let {self._named(e)} = {self._text(bindings[e].value)};", depth, e)
            elif isinstance(e, Let):
                self._names[e] = self._text(e.body)
            elif not isinstance(e, _WRITTEN_IN_PLACE) and e is not block.result:
                self._statement(e, block, depth)
        self._value(block.result, block, depth)

    def _statement(self, e: Expr, block: Block, depth: int) -> None:
        name = f"%{self._count}"
        self._count += 1
        self._written(f"{name} = ", e, block, depth, ";")
        self._names[e] = name

    def _value(self, e: Expr, block: Block, depth: int) -> None:
        if e in self._names or isinstance(e, _WRITTEN_IN_PLACE):
            self.add(self._text(e), depth, e)
            return
        self._written("", e, block, depth, "")

    def _written(self, before: str, e: Expr, block: Block, depth: int, after: str) -> None:
        if isinstance(e, If):
            self.add(f"{before}if ({self._text(e.condition)}) {{", depth, e)
            then, otherwise = block.inner[e]
            self.block(then, depth + 1)
            self.add("} else {", depth)
            self.block(otherwise, depth + 1)
            self.add("}" + after, depth)
        elif isinstance(e, Function):
            self.open(f"{before}fn ", e, depth)
            self.line_of[e] = len(self.lines) - 1
            self.block(block.inner[e][0], depth + 1)
            self.add("}" + after, depth)
        elif isinstance(e, Call):
            given = [*map(self._text, e.args), *([_attrs(e.attrs)] if e.attrs else [])]
            self.add(f"{before}{self._text(e.op)}({', '.join(given)}){after}", depth, e)
        else:
            raise InternalError(f"a graph cannot be printed: {type(e).__name__} has no text")

    def _text(self, e: Expr) -> str:
        """The text of a node as an operand."""
        if e in self._names:
            return self._names[e]
        match e:
            case Var():
                return self._named(e)
            case Constant():
                return _constant(e)
            case GlobalVar():
                return f"@{e.name}"
            case OpRef():
                return e.name
            case HostFunction():
                return f"host[{e.name} by {e.by}]"
            case TupleGetItem():
                return f"{self._text(e.tuple_value)}.{e.index}"
            case Tuple(fields=(one,)):
                return f"({self._text(one)},)"
            case Tuple():
                return f"({', '.join(map(self._text, e.fields))})"
        raise InternalError(f"{type(e).__name__} is read before it was printed")

    def _named(self, v: Var) -> str:
        if v not in self._names:
            self._names[v] = f"%{_unique(v.name, self._used)}"
        return self._names[v]


def _unique(name: str, used: set[str]) -> str:
    """The name, with a number appended where another variable has it."""
    base = name if not name.isdigit() else f"v{name}"
    found, n = base, 0
    while found in used:
        n += 1
        found = f"{base}_{n}"
    used.add(found)
    return found


def _constant(e: Constant) -> str:
    if e.data.ndim == 0:
        return f"{e.data.item()!r}{'' if e.type.dtype == 'float32' else ':' + e.type.dtype}"
    return f"const[{e.name or 'unnamed'}: {e.type}]"


def _attrs(attrs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in attrs.items())


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{_joined(map(_value, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(parts)
