"""A program as the Python source that writes it with ``te``; see `Dag.as_python`."""

from __future__ import annotations

import json
import keyword
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from loopwright.errors import TensorError
from loopwright.ir import expr as ir
from loopwright.ir.printer import unique
from loopwright.ir.reduction import AnyTensorExpr, Combiner, Reduce, Tuple, outputs_of
from loopwright.te import reducer as reducers
from loopwright.te.op_node import OpNode, sizes_of
from loopwright.te.serial import combiner_to_json

#: Precedence of operators in Python; everything else is a call, a name or a literal.
_BINDS = {
    "<": 1, "<=": 1, ">": 1, ">=": 1, "|": 2, "^": 3, "&": 4, "<<": 5, ">>": 5, "+": 6, "-": 6,
    "*": 7, "/": 7, "//": 7, "%": 7,
}  # fmt: skip
_UNARY, _ATOM = 8, 9
#: Operations that Python has no operator for, or another one for bool.
_CALLS = {
    "==": "te.equal", "!=": "te.not_equal", "and": "te.all", "or": "te.any", "min": "te.min",
    "max": "te.max", "tdiv": "te.truncdiv", "tmod": "te.truncmod",
}  # fmt: skip
#: Names that the source, or a program that holds it, uses itself.
_TAKEN = ("te", "np", "s", "schedule", "outputs", "x", "y", "float")
_REDUCERS = ("sum", "prod", "min", "max", "argmin", "argmax")


class PythonIdentifiers:
    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = {*keyword.kwlist, *taken}

    def fresh(self, text: str) -> str:
        # Python takes names that differ in compatibility forms only, such as "ﬁ" and "fi", for one.
        letters = unicodedata.normalize("NFKC", text)
        base = "".join(c if f"x{c}".isidentifier() else "_" for c in letters) or "x"
        return unique(base if base.isidentifier() else f"_{base}", self.taken)


def program_source(ops: Sequence[OpNode], outputs: Sequence[int]) -> str:
    program = _Program(ops)
    results = ", ".join(program.tensors[i][0] for i in outputs)
    return "\n".join([*program.lines(), f"outputs = [{results}]"]) + "\n"


def tensor_names(ops: Sequence[OpNode]) -> list[list[str]]:
    """The names that `program_source` gives tensors: for each operation one for each output."""
    return _Program(ops).tensors


class _Program:
    def __init__(self, ops: Sequence[OpNode]) -> None:
        self.ops = ops
        self.ids = PythonIdentifiers(_TAKEN)
        self.tensors = [
            [self.ids.fresh(op.output_name(k)) for k in range(op.num_outputs)] for op in ops
        ]
        self.sizes: dict[ir.Var, str] = {v: self.ids.fresh(v.name) for v in sizes_of(ops)}

    def lines(self) -> list[str]:
        lines = ["from loopwright import te", ""]
        for v in sizes_of(self.ops):
            make = "te.size_var" if v.nonnegative else "te.var"
            lines.append(f"{self.sizes[v]} = {make}({quoted(v.name)}, {quoted(v.dtype)})")
        for op, names in zip(self.ops, self.tensors, strict=True):
            lines += self.operation(op, names)
        return lines

    def operation(self, op: OpNode, names: Sequence[str]) -> list[str]:
        dims = [self.dim(n) for n in op.shape]
        shape = f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"
        if op.body is None:
            mark = ", constant=True" if op.constant else ""
            call = f"te.placeholder({shape}, {quoted(op.dtype)}, name={quoted(op.name)}{mark})"
            return [f"{names[0]} = {call}"]
        lines = []
        inner = dict(self.sizes)
        for a in op.reduce_axes:
            inner[a.var] = self.ids.fresh(a.name)
            extent = self.dim(a.extent)
            lines.append(f"{inner[a.var]} = te.reduce_axis((0, {extent}), name={quoted(a.name)})")
        local = PythonIdentifiers(self.ids.taken)
        axes = [local.fresh(a.name) for a in op.axes]
        inner |= {a.var: name for a, name in zip(op.axes, axes, strict=True)}
        writer = _Expressions(inner, op.reduce_axes, self.tensors)
        head = f"lambda {', '.join(axes)}: " if axes else "lambda: "
        body, defined = writer.body(op.body, self.ids)
        args = [shape, head + body, f"name={quoted(op.name)}"]
        args += [f"tag={quoted(op.tag)}"] if op.tag else []
        return [*lines, *defined, *called(f"{', '.join(names)} = te.compute", args)]

    def dim(self, n: ir.Dim) -> str:
        return _Expressions(self.sizes, (), ()).text(n) if isinstance(n, ir.Expr) else repr(n)


def called(head: str, args: Sequence[str]) -> list[str]:
    """A call on one line, or with each argument on its own line where that is too long."""
    line = f"{head}({', '.join(args)})"
    return [line] if len(line) <= 100 else [f"{head}(", *(f"    {a}," for a in args), ")"]


class _Expressions:
    def __init__(
        self,
        names: Mapping[ir.Var, str],
        reduce_axes: Sequence[ir.IterVar],
        tensors: Sequence[Sequence[str]],
    ) -> None:
        self.names, self.tensors = names, tensors
        self.reduced = {a.var for a in reduce_axes}

    # ------------------------------------------------------------ bodies

    def body(self, e: ir.Expr, ids: PythonIdentifiers) -> tuple[str, list[str]]:
        """Text of a body, and lines that must come before it."""
        if not isinstance(e, Reduce):
            return self.values(outputs_of(e)), []
        name, lines = _known_reducer(e.combiner), []
        if not name:
            name = ids.fresh(e.combiner.name)
            lines = called(f"{name} = te.comm_reducer", self.combiner(e.combiner))
        args = [self.values(e.source), f"axis=[{', '.join(self.names[a.var] for a in e.axes)}]"]
        args += [f"where={self.text(e.where)}"] if e.where is not None else []
        args += [f"init={self.values(e.init)}"] if e.init is not None else []
        return f"{name}({', '.join(args)})", lines

    def values(self, items: Sequence[ir.Expr]) -> str:
        texts = [self.text(x) for x in items]
        return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"

    def combiner(self, c: Combiner) -> list[str]:
        many = len(c.result) > 1
        names = {v: f"x[{k}]" if many else "x" for k, v in enumerate(c.lhs)}
        names |= {v: f"y[{k}]" if many else "y" for k, v in enumerate(c.rhs)}
        inside = _Expressions(names, (), ())
        return [
            f"lambda x, y: {inside.values(c.result)}",
            f"lambda *_: {inside.values(c.identity)}",
            f"name={quoted(c.name)}",
        ]

    # ------------------------------------------------------------ expressions

    def text(self, e: ir.Expr) -> str:
        """An expression that stands alone; a literal keeps its dtype."""
        return self.bound(e)[0]

    def bound(self, e: ir.Expr) -> tuple[str, int]:
        """Text of an expression, and the precedence of its outermost operator."""
        if not isinstance(e, AnyTensorExpr) or isinstance(e, Reduce | Tuple):
            raise TensorError(f"{type(e).__name__} has no source form")
        match e:
            case ir.Var():
                return self.names[e], _ATOM
            case ir.Const(value=v, dtype=d):
                special = isinstance(v, float) and not math.isfinite(v)
                number = f'float("{v!r}")' if special else repr(v)
                return f"te.const({number}, {quoted(d)})", _ATOM
            case ir.Cast(value=v, dtype=d):
                return f"te.cast({self.text(v)}, {quoted(d)})", _ATOM
            case ir.Unary(op="not", a=a):
                return f"te.logical_not({self.text(a)})", _ATOM
            case ir.Unary(op=op, a=a):
                return f"{op}{self.within(a, _UNARY)}", _UNARY
            case ir.Binary():
                return self.binary(e)
            case ir.Select(cond=c, a=a, b=b):
                return f"te.select({self.text(c)}, {self.pair(a, b)})", _ATOM
            case ir.IfThenElse(cond=c, a=a, b=b):
                return f"te.if_then_else({self.text(c)}, {self.pair(a, b)})", _ATOM
            case ir.Call(fn="reinterpret", args=(a,), dtype=d):
                return f"te.reinterpret({quoted(d)}, {self.text(a)})", _ATOM
            case ir.Call(fn=fn, args=args):
                operands = ", ".join(self.text(a) for a in args)
                return f"te.{fn}({operands})", _ATOM
            case ir.Read(source=s, indices=idx, value_index=k):
                at = ", ".join(self.index(i) for i in idx)
                return f"{self.tensors[s][k]}[{at or '()'}]", _ATOM
            case _:
                assert_never(e)

    def within(self, e: ir.Expr, least: int) -> str:
        """Text of an operand, in parentheses unless it binds at least so tightly."""
        text, binds = self.bound(e)
        return text if binds >= least else f"({text})"

    def index(self, e: ir.Expr) -> str:
        return repr(e.value) if isinstance(e, ir.Const) and e.dtype == "int32" else self.text(e)

    def binary(self, e: ir.Binary) -> tuple[str, int]:
        a, b, op = e.a, e.b, e.op
        if op in _CALLS:
            return f"{_CALLS[op]}({self.pair(a, b)})", _ATOM
        binds = _BINDS[op]
        compare = binds == _BINDS["<"]
        # Python would turn a comparison round that has a number on its left.
        left = "" if compare else _number(a, b)
        left = left or self.within(a, binds + compare)
        return f"{left} {op} {_number(b, a) or self.within(b, binds + 1)}", binds

    def pair(self, a: ir.Expr, b: ir.Expr) -> str:
        """Two operands of one dtype as arguments."""
        # Over a bare reduction axis te.min and te.max would reduce.
        bare = isinstance(b, ir.Var) and b in self.reduced
        last = f"{self.text(b)}.var" if bare else self.text(b)
        return f"{_number(a, b) or self.text(a)}, {_number(b, a) or last}"


def _number(e: ir.Expr, other: ir.Expr) -> str:
    """A finite number as Python writes it, where it takes the dtype of ``other``; or ''."""
    if not isinstance(e, ir.Const) or e.dtype == "bool" or isinstance(other, ir.Const):
        return ""
    return repr(e.value) if math.isfinite(e.value) else ""


def quoted(text: str) -> str:
    """A string literal, in double quotes where all of it prints; other characters are escaped."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else ascii(text)


def _known_reducer(c: Combiner) -> str:
    """The reducer of te that makes a combiner, or ''."""
    types = [e.dtype for e in c.result]
    if c.name not in _REDUCERS or len(types) != (2 if c.name.startswith("arg") else 1):
        return ""
    standard = getattr(reducers, c.name).combiner(types, len(types) > 1)
    return f"te.{c.name}" if combiner_to_json(standard) == combiner_to_json(c) else ""
