"""JSON of expressions, of operations, and of the statements of a tensor intrinsic.

Axes are written by position: ``a0`` of the output, ``r1`` of the reduction, sizes ``s0`` in the
order of first use. In statements buffers are numbers, the operands first, and variables ``v0``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.ir import expr as ir
from loopwright.ir import stmt
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.instructions import call_instruction
from loopwright.ir.reduction import Combiner, Reduce, Tuple
from loopwright.ir.sizes import SizeVar
from loopwright.ir.visitor import map_nodes
from loopwright.te.op_node import OpNode
from loopwright.te.tensor import shape_of

#: A value of JSON.
Json: TypeAlias = Any
#: Axes and variables by written name.
Scope = Mapping[str, ir.Var | ir.IterVar]
#: Entries of an operation that its hash leaves out.
_LABELS = ("name", "axes", "reduce", "tag", "reducer")
#: Expressions that are written as a word and these fields.
_FIELDS: Mapping[type[ir.Expr], tuple[str, ...]] = {
    ir.Cast: ("cast", "value", "dtype"),
    ir.Unary: ("un", "op", "a"),
    ir.Binary: ("bin", "op", "a", "b", "dtype"),
    ir.Select: ("select", "cond", "a", "b"),
    ir.IfThenElse: ("if", "cond", "a", "b"),
    ir.Call: ("call", "fn", "args", "dtype"),
    Tuple: ("tuple", "values"),
}
#: Functions of more than one operand.
_OPERANDS = {"pow": 2, "fmod": 2, "fma": 3}


def op_to_json(op: OpNode, sizes: Mapping[ir.Var, str]) -> dict[str, Json]:
    """One operation of a DAG; ``sizes`` gives the written names of size variables."""
    shape = [_dim_to_json(n, sizes) for n in op.shape]
    out: dict[str, Json] = {"name": op.name, "shape": shape, "dtype": op.dtype}
    if op.body is None:
        return out | {"constant": True} if op.constant else out
    names: dict[ir.Var, str] = {**sizes, **{a.var: f"a{i}" for i, a in enumerate(op.axes)}}
    names |= {a.var: f"r{i}" for i, a in enumerate(op.reduce_axes)}
    out["axes"] = [a.name for a in op.axes]
    out["reduce"] = [a.name for a in op.reduce_axes]
    out["reduce_extents"] = [_dim_to_json(a.extent, sizes) for a in op.reduce_axes]
    out["body"] = expr_to_json(op.body, names)
    if op.tag:
        out["tag"] = op.tag
    return out


def _dim_to_json(n: ir.Dim, sizes: Mapping[ir.Var, str]) -> Json:
    return expr_to_json(n, sizes) if isinstance(n, ir.Expr) else n


def _dim_from_json(x: Json, sizes: Mapping[str, SizeVar]) -> ir.Dim:
    return expr_from_json(x, sizes) if isinstance(x, list) else integer(x)


def integer(x: Json) -> int:
    """A whole number of JSON, which true and false are not; else a TypeError."""
    if not isinstance(x, int) or isinstance(x, bool):
        raise TypeError(f"a whole number was expected, not {str(x)[:40]!r}")
    return x


def _name(x: Json) -> str:
    if not isinstance(x, str):
        raise TypeError(f"a name was expected, not {str(x)[:40]!r}")
    return x


def sizes_to_json(sizes: Sequence[SizeVar]) -> list[list[Json]]:
    """Size variables as ``[name, dtype, nonnegative]``."""
    return [[v.name, v.dtype, v.nonnegative] for v in sizes]


def sizes_from_json(data: Sequence[Json]) -> dict[str, SizeVar]:
    """Inverse of `sizes_to_json`, by written name."""
    out = {
        f"s{k}": SizeVar(_name(n), dtypes.check(_name(d)), p is True)
        for k, (n, d, p) in enumerate(data)
    }
    for v in out.values():
        if not dtypes.is_int(v.dtype):
            raise ValueError(f"the size {v.name!r} is {v.dtype}")
    return out


def op_from_json(d: dict[str, Json], sizes: Mapping[str, SizeVar]) -> OpNode:
    """Inverse of `op_to_json`; ``sizes`` holds the size variables by written name."""
    shape = tuple(_dim_from_json(x, sizes) for x in d["shape"])
    if "body" not in d:
        constant = d.get("constant", False)
        if not isinstance(constant, bool):
            raise TypeError(f"constant is true or false, not {str(constant)[:40]!r}")
        return OpNode(_name(d["name"]), shape, _name(d["dtype"]), constant=constant)
    axes = tuple(
        ir.IterVar.named(_name(n), e, "spatial") for n, e in zip(d["axes"], shape, strict=True)
    )
    reduce = tuple(
        ir.IterVar.named(_name(n), _dim_from_json(e, sizes), "reduce")
        for n, e in zip(d["reduce"], d["reduce_extents"], strict=True)
    )
    scope: dict[str, ir.Var | ir.IterVar] = {**sizes, **{f"a{i}": a for i, a in enumerate(axes)}}
    scope |= {f"r{i}": a for i, a in enumerate(reduce)}
    body = expr_from_json(d["body"], scope)
    tag = _name(d.get("tag", ""))
    return OpNode(_name(d["name"]), shape, _name(d["dtype"]), axes, reduce, body, tag)


def without_names(dag: dict[str, Json]) -> dict[str, Json]:
    """The JSON of a DAG without labels: what its hash covers."""
    ops = [{k: v for k, v in op.items() if k not in _LABELS} for op in dag["ops"]]
    out = {"v": dag["v"], "ops": _drop_reducer_names(ops), "outputs": dag["outputs"]}
    return out | {"sizes": [x[1:] for x in dag["sizes"]]} if "sizes" in dag else out


def _drop_reducer_names(x: Json) -> Json:
    if isinstance(x, list):
        if x and x[0] == "reduce":
            return ["reduce", *[_drop_reducer_names(v) for v in x[2:]]]
        return [_drop_reducer_names(v) for v in x]
    return {k: _drop_reducer_names(v) for k, v in x.items()} if isinstance(x, dict) else x


def expr_to_json(e: ir.Expr, names: Mapping[ir.Var, str]) -> list[Json]:
    """An expression as nested lists; ``names`` gives the written name of each variable."""

    def go(n: ir.Expr) -> list[Json]:
        if (fields := _FIELDS.get(type(n))) is not None:
            return [fields[0], *[value(getattr(n, name)) for name in fields[1:]]]
        match n:
            case ir.Var():
                return ["var", names[n]]
            case ir.Const(value=v, dtype=d):
                # JSON has no syntax for infinities and NaN.
                return ["const", repr(v) if isinstance(v, float) and not math.isfinite(v) else v, d]
            case ir.Read(source=s, indices=idx, dtype=d, value_index=k):
                return ["read", s, [go(i) for i in idx], d, *([k] if k else [])]
            case Reduce():
                return _reduce_to_json(n, go, names)
        raise TensorError(f"{type(n).__name__} has no JSON form")

    def value(x: Json) -> Json:
        if isinstance(x, ir.Expr):
            return go(x)
        return [go(e) for e in x] if isinstance(x, tuple) else x

    return go(e)


def _reduce_to_json(
    n: Reduce, go: Callable[[ir.Expr], Json], names: Mapping[ir.Var, str]
) -> list[Json]:
    c = n.combiner
    many = len(n.source) > 1
    inner = {v: f"x{k}" if many else "x" for k, v in enumerate(c.lhs)}
    inner |= {v: f"y{k}" if many else "y" for k, v in enumerate(c.rhs)}

    def each(items: Iterable[Json]) -> Json:
        """The entries of a reducer of tuples as a list; of others the one entry itself."""
        return list(items) if many else next(iter(items))

    return [
        "reduce",
        c.name,
        [each(expr_to_json(e, inner) for e in part) for part in (c.result, c.identity)],
        each(go(e) for e in n.source),
        [names[a.var] for a in n.axes],
        None if n.where is None else go(n.where),
        None if n.init is None else each(go(e) for e in n.init),
        each(e.dtype for e in n.source),
    ]


def combiner_to_json(c: Combiner) -> list[Json]:
    """The result and identity of a combiner, equal for two that differ in names only."""
    names = {v: f"x{k}" for k, v in enumerate(c.lhs)} | {v: f"y{k}" for k, v in enumerate(c.rhs)}
    return [expr_to_json(e, names) for e in (*c.result, *c.identity)]


def _reduce_from_json(t: list[Json], go: Callable[[Json], ir.Expr], scope: Scope) -> Reduce:
    _, name, [result, identity], source, axes, where, init, d = t
    many = isinstance(d, list)
    types = [dtypes.check(_name(x)) for x in (d if many else [d])]
    marks = [str(k) for k in range(len(types))] if many else [""]
    lhs = tuple(ir.Var(f"x{m}", t) for m, t in zip(marks, types, strict=True))
    rhs = tuple(ir.Var(f"y{m}", t) for m, t in zip(marks, types, strict=True))
    inner = {v.name: v for v in (*lhs, *rhs)}

    def each(items: Json, f: Callable[[Json], ir.Expr]) -> tuple[ir.Expr, ...]:
        parts = tuple(f(e) for e in (items if many else [items]))
        if len(parts) != len(types):
            raise ValueError(f"a reduction of {len(types)} values has {len(parts)} of a kind")
        for e, dtype in zip(parts, types, strict=True):
            _same("a part of a reduction", dtype, e.dtype)
        return parts

    def inside(e: Json) -> ir.Expr:
        return expr_from_json(e, inner)

    def axis(name: str) -> ir.IterVar:
        a = scope[name]
        if not isinstance(a, ir.IterVar) or a.kind != "reduce":
            raise ValueError(f"{name} is no axis of a reduction")
        return a

    condition = None if where is None else go(where)
    if condition is not None:
        _same("the condition of a reduction", "bool", condition.dtype)
    return Reduce(
        Combiner(_name(name), lhs, rhs, each(result, inside), each(identity, inside)),
        each(source, go),
        tuple(axis(a) for a in axes),
        condition,
        None if init is None else each(init, go),
        types[0],
    )


def expr_from_json(x: Json, scope: Scope) -> ir.Expr:
    """Inverse of `expr_to_json`; ``scope`` maps written names to axes or variables.

    The JSON may come from a log, and its texts end up in the source of programs: only known
    operations, functions and dtypes are read. Else TensorError, KeyError, TypeError or ValueError.
    """

    def var(name: str) -> ir.Var:
        v = scope[name]
        return v.var if isinstance(v, ir.IterVar) else v

    def go(t: Json) -> ir.Expr:
        match t:
            case ["var", name]:
                return var(name)
            case ["const", v, d]:
                return _const_from_json(v, dtypes.check(d))
            case ["cast", v, d]:
                return ir.Cast(go(v), dtypes.check(d))
            case ["un", op, a]:
                e = go(a)
                if op not in ("-", "~", "not") or (op == "not") != (e.dtype == "bool"):
                    raise TensorError(f"unknown operation {op!r} of {e.dtype} in the JSON of a DAG")
                return ir.Unary(op, e, e.dtype)
            case ["bin", op, a, b, d]:
                if op not in ir.OPERATIONS:
                    raise TensorError(f"unknown operation {op!r} in the JSON of a DAG")
                x, y = go(a), go(b)
                _same(f"the operands of {op!r}", x.dtype, y.dtype)
                _same(f"the result of {op!r}", "bool" if op in ir.COMPARE else x.dtype, d)
                return ir.Binary(op, x, y, d)
            case ["select" | "if" as kind, c, a, b]:
                cond, x, y = go(c), go(a), go(b)
                _same("the condition of a choice", "bool", cond.dtype)
                _same("the two sides of a choice", x.dtype, y.dtype)
                return (ir.Select if kind == "select" else ir.IfThenElse)(cond, x, y, x.dtype)
            case ["call", fn, args, d]:
                return _call_from_json(fn, [go(a) for a in args], dtypes.check(d))
            case ["read", s, idx, d, *rest] if len(rest) <= 1:
                indices = tuple(go(i) for i in idx)
                return ir.Read(integer(s), indices, dtypes.check(d), *map(integer, rest))
            case ["tuple", values] if len(values) > 1:
                entries = tuple(go(v) for v in values)
                return Tuple(entries, entries[0].dtype)
            case ["reduce", _, _, _, _, _, _, _]:
                return _reduce_from_json(t, go, scope)
        raise TensorError(f"unknown expression in JSON: {str(t)[:60]}")

    return go(x)


def _same(what: str, a: str, b: str) -> None:
    if a != b:
        raise TensorError(f"malformed JSON of a DAG: {what}: {a} and {str(b)[:40]}")


def _const_from_json(v: Json, dtype: str) -> ir.Const:
    """A literal, whose value is of the Python type that its dtype has."""
    if isinstance(v, str):
        v = float(v)
    if not isinstance(v, bool | int | float):
        raise TypeError(f"a number was expected, not {str(v)[:40]!r}")
    if dtypes.is_float(dtype):
        return ir.Const(float(v), dtype)
    lo, hi = dtypes.limits(dtype)
    if not lo <= v <= hi or v != int(v):
        raise ValueError(f"the literal {v!r} is no {dtype}")
    return ir.Const(v, dtype)


def _call_from_json(fn: Json, args: Sequence[ir.Expr], dtype: str) -> ir.Call:
    if fn not in ir.FUNCTIONS:
        raise TensorError(f"unknown intrinsic {str(fn)[:40]!r} in the JSON of a DAG")
    if len(args) != _OPERANDS.get(fn, 1):
        raise TensorError(f"{fn} in the JSON of a DAG has {len(args)} operands")
    for a in args:
        if fn == "reinterpret":
            _same(fn, str(dtypes.bits(a.dtype)), str(dtypes.bits(dtype)))
        else:
            _same(f"an operand and the result of {fn}", a.dtype, dtype)
    return ir.Call(fn, tuple(args), dtype)


#: Statements that the body of an intrinsic may hold, as a word and these fields. Before them, a
#: loop has its variable and extent, a definition its variable and value, an allocation its buffer.
_STATEMENTS: Mapping[type[stmt.Stmt], tuple[str, ...]] = {
    stmt.Seq: ("seq", "stmts"),
    stmt.For: ("for", "kind", "body"),
    stmt.Let: ("let", "body"),
    stmt.If: ("when", "cond", "then", "orelse"),
    stmt.Store: ("store", "buffer", "indices", "value"),
    stmt.Allocate: ("alloc", "body"),
    stmt.IntrinsicCall: ("intrin", "name", "operands"),
}


def stmt_to_json(s: stmt.Stmt, params: Sequence[Buffer]) -> list[Json]:
    """A statement over ``params`` as nested lists; other buffers and variables are refused."""
    return _JsonWriter(params).stmt(s)


class _JsonWriter:
    def __init__(self, params: Sequence[Buffer]) -> None:
        self.buffers = {b: k for k, b in enumerate(params)}
        self.names: dict[ir.Var, str] = {}

    def buffer(self, b: Buffer) -> int:
        if b not in self.buffers:
            raise TensorError(f"the body touches {b.name!r}, which is no operand")
        return self.buffers[b]

    def expr(self, e: ir.Expr) -> list[Json]:
        def numbered(x: Load) -> ir.Read:
            return ir.Read(self.buffer(x.buffer), x.indices, x.dtype)

        try:
            return expr_to_json(map_nodes(e, Load, numbered), self.names)
        except KeyError as v:
            raise TensorError(f"the body uses the variable {v}, which no loop of it makes") from v

    def stmt(self, s: stmt.Stmt) -> list[Json]:
        if type(s) not in _STATEMENTS:
            why = ": a trace is data, and runs no function of a process" * isinstance(
                s, stmt.CallPacked
            )
            raise TensorError(f"the body of an intrinsic cannot hold a {type(s).__name__}{why}")
        word, *fields = _STATEMENTS[type(s)]
        defined: list[Json] = []
        if isinstance(s, stmt.For | stmt.Let):
            # Written before the variable has a name, since it is not in scope there.
            first = _count_of(s) if isinstance(s, stmt.For) else self.expr(s.value)
            defined = [self.names.setdefault(s.var, f"v{len(self.names)}"), s.var.name, first]
        elif isinstance(s, stmt.Allocate):
            b, k = s.buffer, len(self.buffers)
            self.buffers[b] = k
            defined = [k, b.name, list(b.shape), b.dtype]
        return [word, *defined, *(self.field(getattr(s, name)) for name in fields)]

    def field(self, x: Json) -> Json:
        match x:
            case stmt.Stmt():
                return self.stmt(x)
            case ir.Expr():
                return self.expr(x)
            case Buffer():
                return self.buffer(x)
            case tuple():
                return [self.field(y) for y in x]
        return x


def _count_of(loop: stmt.For) -> int:
    n = loop.extent.value if isinstance(loop.extent, ir.Const) else loop.extent
    if type(n) is not int:
        raise TensorError(
            f"the extent of a loop in the body of an intrinsic is a number, not {str(n)[:40]}"
        )
    return n


def stmt_from_json(data: Json, params: Sequence[Buffer]) -> stmt.Stmt:
    try:
        return _JsonReader(params).stmt(data)
    except (KeyError, TypeError, ValueError, OverflowError) as e:
        raise TensorError(f"malformed JSON of a body: {type(e).__name__}: {e}") from e
    except RecursionError:
        raise TensorError("the JSON of a body nests too deeply") from None


class _JsonReader:
    def __init__(self, params: Sequence[Buffer]) -> None:
        self.buffers = dict(enumerate(params))
        self.scope: dict[str, ir.Var] = {}

    def define(self, key: str, name: str, dtype: str = "int32") -> ir.Var:
        self.scope[key] = v = ir.Var(str(name), dtype)
        return v

    # Any: the operands of instructions, which are loads, are read as expressions, too.
    def expr(self, data: Json) -> Any:
        def loaded(e: ir.Read) -> Load:
            b = self.buffers[e.source]
            self.check_dimensions(b, e.indices)
            return Load(b, e.indices, b.dtype)

        return map_nodes(expr_from_json(data, self.scope), ir.Read, loaded)

    def check_dimensions(self, b: Buffer, indices: Sequence[ir.Expr]) -> None:
        if len(indices) != len(b.shape):
            raise ValueError(f"{b.name} has {len(b.shape)} dimensions, not {len(indices)}")

    def stmt(self, data: Json) -> stmt.Stmt:
        match data:
            case ["seq", stmts]:
                return stmt.Seq(tuple(self.stmt(x) for x in stmts))
            case ["for", key, name, int(n), "serial" | "vectorized" | "unrolled" as kind, body]:
                (extent,) = shape_of((n,), "the extent of a loop")
                return stmt.For(self.define(key, name), extent, kind, self.stmt(body))
            case ["let", key, name, value, body]:
                e = self.expr(value)
                return stmt.Let(self.define(key, name, e.dtype), e, self.stmt(body))
            case ["when", cond, then, other]:
                orelse = None if other is None else self.stmt(other)
                return stmt.If(self.expr(cond), self.stmt(then), orelse)
            case ["store", k, at, value]:
                b, indices = self.buffers[k], tuple(self.expr(i) for i in at)
                self.check_dimensions(b, indices)
                return stmt.Store(b, indices, self.expr(value))
            case ["alloc", k, name, shape, dtype, body]:
                extents = shape_of(shape, "the shape of a buffer")
                if k != len(self.buffers):
                    raise ValueError(f"a new buffer has the number {len(self.buffers)}, not {k}")
                self.buffers[k] = b = Buffer(str(name), extents, dtypes.check(dtype), "local")
                return stmt.Allocate(b, self.stmt(body))
            case ["intrin", name, operands]:
                return call_instruction(name, [self.expr(x) for x in operands])
        raise TensorError(f"unknown statement in JSON: {str(data)[:60]}")
