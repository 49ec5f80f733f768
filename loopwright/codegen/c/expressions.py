"""Expressions of the loop IR as text, for all languages of the C family. As in the interpreter,
arithmetic on axes is done in int64_t, all else in the dtype of the expression; narrow integers are
cut after every operation, since C computes them as int."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple, assert_never

import numpy as np

from loopwright import dtypes
from loopwright.codegen.c.prelude import Dialect, Prelude, short
from loopwright.errors import CodegenError
from loopwright.ir.affine import Interval, exact, fits, interval
from loopwright.ir.buffer import AnyExpr, Buffer, Load
from loopwright.ir.expr import (
    COMPARE,
    DIVISIONS,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Select,
    Unary,
    Var,
    as_expr,
)
from loopwright.ir.math.definition import Definition, without_fma
from loopwright.ir.math.vector_math import conversion, definition

#: Binding strengths of text: a name or a call, a prefix operator, a condition of ``?:``.
ATOM, UNARY, _TERNARY = 15, 14, 2
_PRECEDENCE = {
    "*": 12, "/": 12, "%": 12, "+": 11, "-": 11, "<": 9, "<=": 9, ">": 9, ">=": 9,
    "==": 8, "!=": 8, "&": 7, "^": 6, "|": 5, "&&": 4, "||": 3,
}  # fmt: skip
_LOGIC = {"and": "&&", "or": "||"}
#: Functions whose result is of the format that their argument is of.
_EXACT = ("abs", "floor", "ceil", "trunc", "round")


class Text(NamedTuple):
    """C text and its binding strength."""

    text: str
    level: int = ATOM

    def inside(self, level: int) -> str:
        """The text as an operand that must bind at least as tightly as this."""
        return self.text if self.level >= level else f"({self.text})"


class ExpressionWriter(ABC):
    """Writes expressions; the owner names variables and buffers, and knows ranges of axes."""

    #: Whether ``a * b + c`` is rounded once.
    contracts = False
    #: Whether this is inside a loop that the compiler is to vectorise.
    in_vector = False

    def __init__(self, prelude: Prelude) -> None:
        #: Collects helpers.
        self.prelude = prelude
        #: Bounds of the variables that are kept in int64_t.
        self.ranges: dict[Var, Interval] = {}

    @abstractmethod
    def name(self, x: Var | Buffer) -> str: ...

    def element(self, b: Buffer, indices: tuple[Expr, ...]) -> str:
        if b.strides is not None:
            return f"{self.name(b)}[{self.flat(b, indices).text}]"
        at = "".join(f"[{self.index(i).text}]" for i in indices)
        return self.name(b) + (at or "[0]")

    def flat(self, b: Buffer, indices: tuple[Expr, ...]) -> Text:
        """The offset in elements of an element of a buffer."""
        small = self.is_small(b)
        out: Text | None = None
        for d, i in enumerate(indices):
            x = self.place(i, small)
            if b.strides is not None:
                x = x if b.strides[d] == 1 else join("*", x, Text(str(b.strides[d])))
            elif out is not None:
                out = join("*", out, self.index(as_expr(b.shape[d])))
            out = x if out is None else join("+", out, x)
        return out or Text("0")

    def is_small(self, b: Buffer) -> bool:
        """Whether offsets in a buffer may be computed in 32 bits."""
        return False

    def place(self, i: Expr, small: bool) -> Text:
        """An index, in a type for the whole offset; ``small`` tells `is_small` of the buffer."""
        return self.index(i) if self.is_plain(i) else self.convert(self.index(i), "int64")

    def is_plain(self, e: Expr) -> bool:
        """Whether an integer is arithmetic on axes whose exact value fits its dtype."""
        return exact(e, {}, self.ranges) and fits(e, {}, self.ranges)

    def index(self, e: Expr) -> Text:
        """An integer in any type that holds it."""
        return self.plain(e) if self.is_plain(e) else self.expr(e)

    def plain(self, e: Expr) -> Text:
        """Arithmetic on axes, in int64_t."""
        match e:
            case Var():
                return Text(self.name(e))
            case Const(value=v):
                return Text(str(v), ATOM if v >= 0 else UNARY)
            case Cast(value=v):
                return self.plain(v)
            case Unary(op="-", a=a):
                return Text(f"-{self.plain(a).inside(ATOM)}", UNARY)
            case Binary(op=op, a=a, b=b) if op in DIVISIONS:
                return self.division(e, self.plain(a), self.plain(b), "int64")
            case Binary(op=op, a=a, b=b):
                return self.operation(op, self.plain(a), self.plain(b), "int64")
        raise CodegenError(
            f"{self.prelude.dialect.name}: {type(e).__name__} is not arithmetic on axes"
        )

    def division(self, e: Binary, x: Text, y: Text, dtype: str) -> Text:
        """A division of axes, by C's own operator where that agrees."""
        p, q = interval(e.a, {}, self.ranges), interval(e.b, {}, self.ranges)
        if p is not None and q is not None and p[0] >= 0 and q[0] > 0:
            return join("/" if e.op in ("//", "tdiv") else "%", x, y)
        return call(self.prelude.divide(e.op, dtype), x, y)

    def expr(self, e: Expr) -> Text:
        if not isinstance(e, AnyExpr):
            raise CodegenError(f"{self.prelude.dialect.name}: no code for {type(e).__name__}")
        match e:
            case Var():
                variable = Text(self.name(e))
                return self.convert(variable, e.dtype) if e in self.ranges else variable
            case Const(value=v, dtype=d):
                return literal(v, d, self.prelude.dialect)
            case Load(buffer=b, indices=idx):
                x = Text(self.element(b, idx))
                if b.dtype in dtypes.HALVES:
                    return self._half("unpack", x, b.dtype)
                return join("!=", x, Text("0")) if b.dtype == "bool" else x
            case Binary(op=op, a=a, b=b) if op in COMPARE and self.is_plain(a) and self.is_plain(b):
                return join(op, self.plain(a), self.plain(b))
            case Binary(dtype=d) if dtypes.is_int(d) and self.is_plain(e):
                return self.convert(self.plain(e), d)
            case Binary(op="+" | "-", dtype="float32" | "float64") if (
                self.contracts and (terms := product_and_rest(e)) is not None
            ):
                return self._call("fma", [self.expr(x) for x in terms], e.dtype)
            case Binary(op=op, a=a, b=b):
                return self.operation(op, self.expr(a), self.expr(b), a.dtype)
            case Cast(value=v, dtype=d):
                return self._cast(self.expr(v), v.dtype, d)
            case Select(cond=c, a=a, b=b) | IfThenElse(cond=c, a=a, b=b):
                parts = self.expr(c).inside(3), self.expr(a).inside(3), self.expr(b).inside(3)
                return Text("{} ? {} : {}".format(*parts), _TERNARY)
            case Unary(op=op, a=a, dtype=d):
                if op == "-" and dtypes.is_int(d) and not self.prelude.dialect.wraps:
                    negated = self.prelude.dialect.negated(self.expr(a).inside(UNARY), d)
                    return Text(negated, UNARY)
                sign = {"not": "!", "~": "~", "-": "-"}[op]
                return self._narrow(Text(f"{sign}{self.expr(a).inside(ATOM)}", UNARY), d)
            case Call(fn="reinterpret", args=(a,), dtype=d):
                x, source = self.expr(a), a.dtype
                if source in dtypes.HALVES:
                    x, source = self.convert(self._half("pack", x, source), "int16"), "int16"
                if d in dtypes.HALVES:
                    return self._half("unpack", self.convert(x, "uint16"), d)
                return call(self.prelude.reinterpret(source, d), x)
            case Call(fn=fn, args=args):
                return self._call(fn, [self.expr(a) for a in args], args[0].dtype)
            case _:
                assert_never(e)

    def operation(self, op: str, x: Text, y: Text, dtype: str) -> Text:
        if op in ("min", "max"):
            return call(self.prelude.min_max(op, dtype), x, y)
        if op in DIVISIONS:
            return call(self.prelude.divide(op, dtype), x, y)
        if op in ("<<", ">>"):
            return call(self.prelude.shift(op, dtype), x, y)
        if op in ("+", "-", "*") and dtype in ("int32", "int64") and not self.prelude.dialect.wraps:
            unsigned = f"u{dtype}"
            result = join(op, self.convert(x, unsigned), self.convert(y, unsigned))
            return self.convert(result, dtype)
        result = join(_LOGIC.get(op, op), x, y)
        if op in COMPARE or op in _LOGIC:
            return result
        # C has computed it in a wider type.
        if dtype in dtypes.HALVES:
            return self._half("narrow", result, dtype)
        return self._narrow(result, dtype)

    def _own(self, fn: str, dtype: str, *args: Text) -> Text | None:
        name = self.prelude.define(fn, dtype, self.in_vector)
        return None if name is None else call(name, *args)

    def _half(self, what: str, x: Text, dtype: str) -> Text:
        call = self._own(what, dtype, x)
        if call is None:
            raise CodegenError(f"{self.prelude.dialect.name}: no conversion of {dtype}")
        return call

    def stored(self, e: Expr) -> Text:
        x = self.expr(e)
        return self._half("pack", x, e.dtype) if e.dtype in dtypes.HALVES else x

    def _cast(self, x: Text, source: str, to: str) -> Text:
        if source == to:
            return x
        if to in dtypes.HALVES:
            return self._half("narrow", self._cast(x, source, "float32"), to)
        if source in dtypes.HALVES:
            return self._cast(x, "float32", to)
        if to == "bool":
            return join("!=", x, Text("0"))
        if dtypes.is_float(source) and not dtypes.is_float(to):
            return call(self.prelude.to_integer(source, to), x)
        if dtypes.is_float(to) and not dtypes.is_float(source) and self.prelude.truncates:
            return call(self.prelude.to_float(source, to), x)
        return self.convert(x, to)

    def _call(self, fn: str, args: list[Text], dtype: str) -> Text:
        if dtype in dtypes.HALVES:
            y = self._call(fn, args, "float32")
            return y if fn in _EXACT else self._half("narrow", y, dtype)
        if fn == "abs" and not dtypes.is_float(dtype):
            return (
                args[0] if dtypes.is_unsigned(dtype) else call(self.prelude.absolute(dtype), *args)
            )
        own = self._own(fn, dtype, *args)
        if own is not None:
            return own
        return call(self.prelude.dialect.function(fn, dtype), *args)

    def convert(self, x: Text, to: str) -> Text:
        return Text(f"({self.prelude.dialect.type(to)}){x.inside(UNARY)}", UNARY)

    def _narrow(self, x: Text, dtype: str) -> Text:
        """Cut the int that C made of two narrow integers."""
        narrow = dtypes.is_int(dtype) and dtypes.bits(dtype) < 32
        return self.convert(x, dtype) if narrow else x


def product_and_rest(e: Binary) -> tuple[Expr, Expr, Expr] | None:
    """``(a, b, c)`` of a sum or difference that is ``a * b + c``, the left product first as in
    LLVM; else None."""
    minus = e.op == "-"
    match e.a, e.b:
        case Binary(op="*", a=x, b=y), z:
            return x, y, Unary("-", z, z.dtype) if minus else z
        case z, Binary(op="*", a=x, b=y):
            return (Unary("-", x, x.dtype) if minus else x), y, z
    return None


def literal(value: float, dtype: str, dialect: Dialect) -> Text:
    """A literal; the text of a float is the shortest that is read back as the same number."""
    if dtype == "bool":
        return Text("true" if value else "false")
    if dtypes.is_float(dtype):
        return _float(float(value), dtype, dialect)
    lowest = dtypes.limits(dtype)[0]
    if value == lowest and dtypes.bits(dtype) >= 32 and not dtypes.is_unsigned(dtype):
        return Text(dialect.lowest(dtype))
    text = dialect.integer(int(value), dtype)
    return Text(text, ATOM if value >= 0 or text.endswith(")") else UNARY)


def _float(value: float, dtype: str, dialect: Dialect) -> Text:
    dtype = "float64" if dtype == "float64" else "float32"
    suffix = "f" if dtype == "float32" else ""
    level = UNARY if math.copysign(1.0, value) < 0 else ATOM
    if math.isnan(value):
        return Text(dialect.nan[dtype])
    if math.isinf(value):
        return Text(f"{'-' if value < 0 else ''}{dialect.infinity[dtype]}", level)
    text = np.format_float_scientific(np.dtype(dtype).type(value), unique=True, trim="0")
    if 1e-4 <= abs(value) < 1e16 or value == 0.0:
        text = np.format_float_positional(np.dtype(dtype).type(value), unique=True, trim="0")
    return Text(text + suffix, level)


def join(op: str, x: Text, y: Text) -> Text:
    """An operation, with parentheses also where people mix up what C does not."""
    level = _PRECEDENCE[op]
    if op in ("&&", "||"):
        left = x.text if x.level == level or x.level > _PRECEDENCE["&&"] else f"({x.text})"
        return Text(f"{left} {op} {y.inside(_PRECEDENCE['&&'] + 1)}", level)
    if level >= _PRECEDENCE["+"]:
        return Text(f"{x.inside(level)} {op} {y.inside(level + 1)}", level)
    inner = _PRECEDENCE["+"] if op in COMPARE else UNARY
    return Text(f"{x.inside(inner)} {op} {y.inside(inner)}", level)


def call(name: str, *args: Text) -> Text:
    return Text(f"{name}({', '.join(a.text for a in args)})")


# ---------------------------------------------------------------- math functions
#
# Math functions and conversions of 16-bit floats (`loopwright.ir.math.vector_math`) as static C
# functions, inlined so that the compiler makes them part of the vector loop around. Nothing is
# contracted in C, so that results are those of every other code generator, to the bit.


def install(prelude: Prelude) -> None:
    """Let expressions of a file find its math functions."""
    prelude.define = lambda fn, dtype, lanes: math_function(prelude, fn, dtype, lanes)


def math_function(prelude: Prelude, fn: str, dtype: str, lanes: bool) -> str | None:
    """The name of a function of this file, or None; with ``lanes`` for a vector loop, which has no
    branches: what is seldom needed is computed always, and chosen."""
    d = conversion(fn, dtype) or definition(fn, dtype)
    if d is None or (fn == "fma" and prelude.has_fma):
        return None
    d = d if prelude.has_fma else without_fma(d)
    many = lanes and (fn.startswith("_") or any(isinstance(e, IfThenElse) for _, e in d.steps))
    name = f"lw_{fn.lstrip('_')}_{short(dtype)}{'_lanes' if many else ''}"
    if name not in prelude:
        prelude.strict = True
        rare = fn.startswith("_") and not many
        how = prelude.dialect.rare if rare else prelude.dialect.inlined
        prelude.put(name, _DefinitionWriter(prelude, d, many).function(f"{how} ", name))
    return name


class _DefinitionWriter(ExpressionWriter):
    def __init__(self, prelude: Prelude, d: Definition, lanes: bool) -> None:
        super().__init__(prelude)
        self.d, self.in_vector = d, lanes

    def name(self, x: Var | Buffer) -> str:
        return x.name

    def function(self, how: str, name: str) -> str:
        ty = self.prelude.dialect.type
        given = ", ".join(f"{ty(v.dtype)} {v.name}" for v in self.d.params)
        lines = [f"{how}{ty(self.d.result.dtype)} {name}({given}) {{"]
        for v, e in self.d.steps:
            lines.append(f"  const {ty(v.dtype)} {v.name} = {self.expr(e).text};")
        return "\n".join([*lines, f"  return {self.expr(self.d.result).text};", "}"])

    def expr(self, e: Expr) -> Text:
        match e:
            case IfThenElse(cond=c, a=a, b=b) if not self.in_vector:
                seldom = self.prelude.dialect.unlikely.format(self.expr(c).text)
                return Text(f"{seldom} ? {self.expr(a).text} : {self.expr(b).inside(3)}", 2)
        return super().expr(e)
