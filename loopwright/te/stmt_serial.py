"""JSON of the statements of a tensor intrinsic: loops, stores, branches, buffers, instructions.

Buffers are written as numbers, those of the operands first; variables as ``v0``, ``v1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Read, Var
from loopwright.ir.instructions import call_instruction
from loopwright.ir.stmt import (
    Allocate,
    AllReduce,
    AnyStmt,
    AsyncGroup,
    AsyncWait,
    Barrier,
    CallPacked,
    Check,
    For,
    If,
    IntrinsicCall,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    View,
)
from loopwright.te.serial import Json, expr_from_json, expr_to_json
from loopwright.te.tensor import shape_of

#: Statements that the body of an intrinsic cannot hold.
_Refused = Check | View | Prefetch | Barrier | AllReduce | CallPacked | AsyncGroup | AsyncWait


def stmt_to_json(s: Stmt, params: Sequence[Buffer]) -> list[Json]:
    """A statement over ``params`` as nested lists; other buffers and variables are refused."""
    return _JsonWriter(params).stmt(s)


class _JsonWriter:
    def __init__(self, params: Sequence[Buffer]) -> None:
        self.buffers = {b: k for k, b in enumerate(params)}
        self.names: dict[Var, str] = {}

    def buffer(self, b: Buffer) -> int:
        if b not in self.buffers:
            raise TensorError(f"the body touches {b.name!r}, which is no operand")
        return self.buffers[b]

    def define(self, v: Var) -> str:
        return self.names.setdefault(v, f"v{len(self.names)}")

    def expr(self, e: Expr) -> list[Json]:
        try:
            return expr_to_json(self.reads(e), self.names)
        except KeyError as v:
            raise TensorError(f"the body uses the variable {v}, which no loop of it makes") from v

    # Any: an expression gives an expression.
    def reads(self, e: Any) -> Any:
        """An expression with reads of a buffer's number in place of loads."""
        e = e.map_children(self.reads)
        if isinstance(e, Load):
            return Read(self.buffer(e.buffer), e.indices, e.dtype)
        return e

    def stmt(self, s: Stmt) -> list[Json]:
        if not isinstance(s, AnyStmt) or isinstance(s, _Refused):
            why = ": a trace is data, and runs no function of a process" * isinstance(s, CallPacked)
            raise TensorError(f"the body of an intrinsic cannot hold a {type(s).__name__}{why}")
        match s:
            case Seq(stmts=stmts):
                return ["seq", [self.stmt(x) for x in stmts]]
            case For(var=v, extent=n, kind=kind, body=body):
                return ["for", self.define(v), v.name, n, kind, self.stmt(body)]
            case Let(var=v, value=e, body=body):
                value = self.expr(e)
                return ["let", self.define(v), v.name, value, self.stmt(body)]
            case If(cond=c, then=then, orelse=other):
                return ["when", self.expr(c), self.stmt(then), other and self.stmt(other)]
            case Store(buffer=b, indices=indices, value=e):
                at = [self.expr(i) for i in indices]
                return ["store", self.buffer(b), at, self.expr(e)]
            case Allocate(buffer=b, body=body):
                self.buffers[b] = k = len(self.buffers)
                return ["alloc", k, b.name, list(b.shape), b.dtype, self.stmt(body)]
            case IntrinsicCall(name=name, operands=operands):
                return ["intrin", name, [self.expr(x) for x in operands]]
            case _:
                assert_never(s)


def stmt_from_json(data: Json, params: Sequence[Buffer]) -> Stmt:
    try:
        return _JsonReader(params).stmt(data)
    except (KeyError, TypeError, ValueError, OverflowError) as e:
        raise TensorError(f"malformed JSON of a body: {type(e).__name__}: {e}") from e
    except RecursionError:
        raise TensorError("the JSON of a body nests too deeply") from None


class _JsonReader:
    def __init__(self, params: Sequence[Buffer]) -> None:
        self.buffers = dict(enumerate(params))
        self.scope: dict[str, Var] = {}

    def define(self, key: str, name: str, dtype: str = "int32") -> Var:
        self.scope[key] = v = Var(str(name), dtype)
        return v

    # Any: the operands of instructions, which are loads, are read as expressions, too.
    def expr(self, data: Json) -> Any:
        return self.loads(expr_from_json(data, self.scope))

    def loads(self, e: Any) -> Any:
        """Inverse of `_JsonWriter.reads`."""
        e = e.map_children(self.loads)
        if isinstance(e, Read):
            b = self.buffers[e.source]
            self.check_dimensions(b, e.indices)
            return Load(b, e.indices, b.dtype)
        return e

    def check_dimensions(self, b: Buffer, indices: Sequence[Expr]) -> None:
        if len(indices) != len(b.shape):
            raise ValueError(f"{b.name} has {len(b.shape)} dimensions, not {len(indices)}")

    def stmt(self, data: Json) -> Stmt:
        match data:
            case ["seq", stmts]:
                return Seq(tuple(self.stmt(x) for x in stmts))
            case ["for", key, name, int(n), "serial" | "vectorized" | "unrolled" as kind, body]:
                (extent,) = shape_of((n,), "the extent of a loop")
                return For(self.define(key, name), extent, kind, self.stmt(body))
            case ["let", key, name, value, body]:
                e = self.expr(value)
                return Let(self.define(key, name, e.dtype), e, self.stmt(body))
            case ["when", cond, then, other]:
                orelse = None if other is None else self.stmt(other)
                return If(self.expr(cond), self.stmt(then), orelse)
            case ["store", k, at, value]:
                b, indices = self.buffers[k], tuple(self.expr(i) for i in at)
                self.check_dimensions(b, indices)
                return Store(b, indices, self.expr(value))
            case ["alloc", k, name, shape, dtype, body]:
                extents = shape_of(shape, "the shape of a buffer")
                if k != len(self.buffers):
                    raise ValueError(f"a new buffer has the number {len(self.buffers)}, not {k}")
                self.buffers[k] = b = Buffer(str(name), extents, dtypes.check(dtype), "local")
                return Allocate(b, self.stmt(body))
            case ["intrin", name, operands]:
                return call_instruction(name, [self.expr(x) for x in operands])
        raise TensorError(f"unknown statement in JSON: {str(data)[:60]}")
