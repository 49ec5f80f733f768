"""The loop IR as readable text; importing this module gives nodes and functions their text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from loopwright.ir.buffer import AnyExpr, Buffer, Load
from loopwright.ir.expr import (
    COMPARE,
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    IfThenElse,
    Read,
    Select,
    Unary,
    Var,
)
from loopwright.ir.node import Node
from loopwright.ir.reduction import AnyTensorExpr, Reduce, Tuple
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
    Func,
    If,
    IntrinsicCall,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    View,
)

_PRECEDENCE = {
    "or": 1, "and": 2,
    "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3,
    "|": 4, "^": 5, "&": 6, "<<": 7, ">>": 7,
    "+": 8, "-": 8, "*": 9, "/": 9, "//": 9, "%": 9,
}  # fmt: skip


def unique(name: str, used: set[str]) -> str:
    """The name, with a number appended where it is among those used; it is added to them."""
    free, n = name, 1
    while free in used:
        free, n = f"{name}_{n}", n + 1
    used.add(free)
    return free


class UniqueNames:
    """Unique printed names: the first of a name keeps it, later ones get a number."""

    def __init__(self) -> None:
        self._names: dict[Var | Buffer, str] = {}
        self._taken: set[str] = set()

    def __call__(self, x: Var | Buffer) -> str:
        if x not in self._names:
            self._names[x] = unique(x.name, self._taken)
        return self._names[x]


def print_func(f: Func) -> str:
    names = UniqueNames()
    params = [
        f"{names(p)}: {'out ' if out else 'constant ' if p.constant else ''}{p.dtype}"
        f"{shape_text(p.shape, names)}"
        for p, out in zip(f.params, f.outputs, strict=True)
    ]
    params += [f"{names(v)}: {v.dtype}" for v in f.sizes]
    lines: list[str] = []
    _stmt(f.body, 1, lines, names)
    return f"def {f.name}({', '.join(params)}):\n" + "\n".join(lines)


def print_stmt(s: Stmt) -> str:
    lines: list[str] = []
    _stmt(s, 0, lines, UniqueNames())
    return "\n".join(lines)


def _stmt(s: Stmt, depth: int, out: list[str], names: UniqueNames) -> None:
    pad = "  " * depth
    if not isinstance(s, AnyStmt):  # a statement of an extension
        out.append(f"{pad}{node_text(s)}")
        return
    match s:
        case Seq(stmts=stmts):
            for x in stmts:
                _stmt(x, depth, out, names)
            if not stmts:
                out.append(f"{pad}pass")
        case For():
            out += [f"{pad}# {k} = {v}" for k, v in s.pragmas]
            head: str = "range" if s.kind == "serial" else s.kind
            if s.kind == "thread" and names(s.var) != s.tag:
                head = s.tag
            out.append(f"{pad}for {names(s.var)} in {head}({_dim(s.extent, names)}):")
            _stmt(s.body, depth + 1, out, names)
        case Let(var=v, value=e, body=b):
            out.append(f"{pad}{names(v)} = {print_expr(e, names)}")
            _stmt(b, depth, out, names)
        case If(cond=c, then=t, orelse=e):
            out.append(f"{pad}if {print_expr(c, names)}:")
            _stmt(t, depth + 1, out, names)
            if e is not None:
                out.append(f"{pad}else:")
                _stmt(e, depth + 1, out, names)
        case Store(buffer=b, indices=idx, value=v, nontemporal=past):
            head = "nontemporal " if past else ""
            out.append(f"{pad}{head}{_element(b, idx, names)} = {print_expr(v, names)}")
        case Check(cond=c):
            out.append(f"{pad}check {print_expr(c, names)}")
        case View(buffer=b, of=of, offset=k, body=body):
            shape = shape_text(b.shape, names)
            out.append(f"{pad}{names(b)} = view({names(of)}, {k}, {b.dtype}{shape})")
            _stmt(body, depth, out, names)
        case Allocate(buffer=b, body=body):
            gaps = f", strides={list(b.strides)}" if b.strides is not None else ""
            shape = shape_text(b.shape, names)
            out.append(f"{pad}{names(b)} = alloc({b.dtype}{shape}, {b.scope}{gaps})")
            _stmt(body, depth, out, names)
        case Prefetch(buffer=b, indices=idx):
            out.append(f"{pad}prefetch {_element(b, idx, names)}")
        case Barrier(scope=scope):
            out.append(f"{pad}barrier({scope})")
        case AsyncGroup(body=b):
            out.append(f"{pad}async:")
            _stmt(b, depth + 1, out, names)
        case AsyncWait(pending=n):
            out.append(f"{pad}wait(pending={n})")
        case IntrinsicCall(name=name, operands=operands):
            arguments = ", ".join(print_expr(x, names) for x in operands)
            out.append(f"{pad}{name}({arguments})")
        case CallPacked(name=name, args=args):
            arguments = "".join(f", {_packed_arg(x, names)}" for x in args)
            out.append(f"{pad}call_packed({name!r}{arguments})")
        case AllReduce(combiner=c, buffers=buffers, indices=idx, tags=tags):
            own = ", ".join(_element(b, idx, names) for b in buffers)
            out.append(f"{pad}{own} = {c.name}({own}, over {', '.join(tags)})")
        case _:
            assert_never(s)


def _packed_arg(x: Buffer | Expr | str, names: UniqueNames) -> str:
    if isinstance(x, Buffer):
        return names(x)
    return repr(x) if isinstance(x, str) else print_expr(x, names)


def _dim(x: Dim, names: UniqueNames) -> str:
    return str(x) if isinstance(x, int) else print_expr(x, names)


def shape_text(shape: Sequence[Dim], names: UniqueNames | None = None) -> str:
    names = names or UniqueNames()
    return f"[{', '.join(_dim(x, names) for x in shape)}]"


def _element(b: Buffer, idx: tuple[Expr, ...], names: UniqueNames) -> str:
    return f"{names(b)}[{', '.join(print_expr(i, names) for i in idx)}]"


def node_text(n: Node) -> str:
    """Text that ``repr`` shows: that of an expression, of other nodes the name of the class."""
    return print_expr(n) if isinstance(n, Expr) else f"<{type(n).__name__}>"


def print_expr(e: Expr, names: UniqueNames | None = None) -> str:
    return _expr(e, names or UniqueNames(), 0)


def _expr(e: Expr, names: UniqueNames, outer: int) -> str:
    if not isinstance(e, (AnyExpr, AnyTensorExpr)):
        raise TypeError(f"no text for {type(e).__name__}")
    match e:
        case Var():
            return names(e)
        case Const(value=v, dtype=d):
            return repr(v) if d in ("int32", "float32", "bool") else f"{d}({v!r})"
        case Cast(value=v, dtype=d):
            return f"{d}({_expr(v, names, 0)})"
        case Unary(op=op, a=a):
            return f"{op}{' ' if op == 'not' else ''}{_expr(a, names, 10)}"
        case Binary(op=op, a=a, b=b) if op in _PRECEDENCE:
            p = _PRECEDENCE[op]
            left = p + (op in COMPARE)  # Python would chain a < b < c
            text = f"{_expr(a, names, left)} {op} {_expr(b, names, p + 1)}"
            return f"({text})" if p < outer else text
        case Binary(op=op, a=a, b=b):
            return f"{op}({_expr(a, names, 0)}, {_expr(b, names, 0)})"
        case Select(cond=c, a=a, b=b):
            return f"select({_expr(c, names, 0)}, {_expr(a, names, 0)}, {_expr(b, names, 0)})"
        case IfThenElse(cond=c, a=a, b=b):
            return f"({_expr(a, names, 1)} if {_expr(c, names, 1)} else {_expr(b, names, 1)})"
        case Call(fn="reinterpret", args=(a,), dtype=d):
            return f"reinterpret({d}, {_expr(a, names, 0)})"
        case Call(fn=fn, args=args):
            return f"{fn}({', '.join(_expr(a, names, 0) for a in args)})"
        case Load(buffer=b, indices=idx):
            return _element(b, idx, names)
        case Read(source=s, indices=idx):
            name = getattr(s, "name", s if e.value_index == 0 else f"{s}.v{e.value_index}")
            return f"{name}[{', '.join(_expr(i, names, 0) for i in idx)}]"
        case Tuple(values=values):
            return f"({', '.join(_expr(v, names, 0) for v in values)})"
        case Reduce(combiner=c, source=s, axes=axes):
            over = ", ".join(a.name for a in axes)
            what = _expr(s[0], names, 0) if len(s) == 1 else _expr(Tuple(s, e.dtype), names, 0)
            return f"{c.name}({what}, over {over})"
        case _:
            assert_never(e)


Node._text = node_text
Stmt._source = print_stmt
Func._source = print_func
