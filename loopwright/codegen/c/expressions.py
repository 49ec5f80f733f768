"""Expressions of the loop IR as text, for all languages of the C family."""

# As in the interpreter, arithmetic on axes is done in int64_t, all else in the dtype of the
# expression; narrow integers are cut after every operation, since C computes them as int.

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

import numpy as np

from loopwright import dtypes
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

# ---------------------------------------------------------------- helpers
#
# Small C functions for what an operator of C does not say. Types stand as ``f32``, ``i64``, ``u8``
# in their names. All agree with the interpreter: division by zero gives zero, floats that become
# integers are cut to the limits, NaN wins in max and min.

#: Values of 16-bit floats are kept as the float that equals them.
_FLOATS = {
    "float16": "float", "bfloat16": "float", "float32": "float", "float64": "double",
    "bool": "bool",
}  # fmt: skip
#: Types that memory keeps as others: a bool is a byte, a 16-bit float its bits.
_STORED = {"bool": "uint8", "float16": "uint16", "bfloat16": "uint16"}
#: Intrinsics that go by another name in the C library.
_C_NAMES = {"round": "rint", "abs": "fabs"}


@dataclass(frozen=True)
class Dialect:
    name: str  #: for messages
    #: Names of integer types by dtype; others are spelt ``int32_t``.
    integers: Mapping[str, str] = field(default_factory=dict)
    helper: str = "static inline"  #: before a small function
    inlined: str = "static inline __attribute__((always_inline))"  #: before a math function
    #: Before a math function that is seldom called.
    rare: str = "static __attribute__((noinline, cold, const))"
    #: Literals by dtype, ``{}`` being the digits; others are digits.
    literals: Mapping[str, str] = field(default_factory=dict)
    #: Infinity by dtype of float, as ``nan``.
    infinity: Mapping[str, str] = field(default_factory=dict)
    nan: Mapping[str, str] = field(default_factory=dict)
    #: End of the names of functions of float32.
    float_suffix: str = "f"
    #: A condition that seldom holds, ``{}`` being its text.
    unlikely: str = "__builtin_expect({}, 0)"
    #: Whether ``INT32_MAX`` and the like are known.
    limits_by_name: bool = True
    #: Whether signed integers wrap; else they are computed as unsigned ones.
    wraps: bool = True

    def type(self, dtype: str) -> str:
        return _FLOATS.get(dtype) or self.integers.get(dtype) or f"{dtype}_t"

    def memory_type(self, dtype: str) -> str:
        return self.type(_STORED.get(dtype, dtype))

    def lowest(self, dtype: str) -> str:
        if self.limits_by_name:
            return f"INT{dtypes.bits(dtype)}_MIN"
        lowest = int(dtypes.limits(dtype)[0])
        return f"(-{self.integer(-(lowest + 1), dtype)} - 1)"

    def highest(self, dtype: str) -> str:
        if self.limits_by_name:
            return f"{'UINT' if dtypes.is_unsigned(dtype) else 'INT'}{dtypes.bits(dtype)}_MAX"
        return self.integer(int(dtypes.limits(dtype)[1]), dtype)

    def integer(self, value: int, dtype: str) -> str:
        return self.literals.get(dtype, "{}").format(value)

    def function(self, fn: str, dtype: str) -> str:
        return _C_NAMES.get(fn, fn) + (self.float_suffix if dtype == "float32" else "")

    def negated(self, text: str, dtype: str) -> str:
        """A signed integer with the other sign; the smallest one stays itself."""
        ty = self.type(dtype)
        if self.wraps or dtypes.bits(dtype) < 32:
            return f"({ty})-{text}"
        return f"({ty})(0 - ({self.type(f'u{dtype}')}){text})"


C = Dialect(
    "c",
    literals={"int64": "INT64_C({})", "uint32": "UINT32_C({})", "uint64": "UINT64_C({})"},
    infinity={"float32": "INFINITY", "float64": "INFINITY"},
    nan={"float32": "NAN", "float64": "NAN"},
)


_SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "bool": "b"}


def short(dtype: str) -> str:
    if dtype in _SHORT:
        return _SHORT[dtype]
    return ("u" if dtypes.is_unsigned(dtype) else "i") + str(dtypes.bits(dtype))


class Prelude:
    """The helpers of one translation unit, in the order of their first use."""

    def __init__(self, has_fma: bool = False, dialect: Dialect = C) -> None:
        self._texts: dict[str, str] = {}
        self.dialect = dialect
        #: Whether ``fma`` of C is an instruction, so that ``a * b + c`` becomes one.
        self.has_fma = has_fma
        #: Whether a helper depends on the rounding of every operation, or makes floats integers.
        self.strict = self.truncates = False
        #: Math functions for which the language's own are taken.
        self.foreign: frozenset[str] = frozenset()

    def text(self) -> str:
        return "\n".join(self._texts.values())

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def put(self, name: str, text: str) -> str:
        """Write a helper unless it is there; returns its name."""
        self._texts.setdefault(name, text)
        return name

    def _function(self, name: str, to: str, source: str, params: str, body: str) -> str:
        ty, parameter = self.dialect.type(to), self.dialect.type(source)
        given = ", ".join(f"{parameter} {p}" for p in params.split())
        return self.put(name, f"{self.dialect.helper} {ty} {name}({given}) {{ {body} }}")

    def _add(self, name: str, dtype: str, params: str, body: str) -> str:
        return self._function(f"lw_{name}_{short(dtype)}", dtype, dtype, params, body)

    def min_max(self, op: str, dtype: str) -> str:
        """``max(a, b)`` or ``min(a, b)``; NaN where either is NaN."""
        sign = ">" if op == "max" else "<"
        nan = "a != a || " if dtypes.is_float(dtype) else ""
        return self._add(op, dtype, "a b", f"return {nan}a {sign} b ? a : b;")

    def divide(self, op: str, dtype: str) -> str:
        """Integer division or remainder, ``// % tdiv tmod``; by zero 0, and it never traps."""
        name = {"//": "floordiv", "%": "floormod", "tdiv": "truncdiv", "tmod": "truncmod"}[op]
        signed, quotient = not dtypes.is_unsigned(dtype), op in ("//", "tdiv")
        ty = self.dialect.type(dtype)
        guard = "if (b == 0) return 0; "
        if signed:
            least = self.dialect.negated("a", dtype) if quotient else "0"
            guard += f"if (b == -1) return {least}; "
        result = "a / b" if quotient else "a % b"
        if signed and op in ("//", "%"):
            down = "(a % b != 0 && (a < 0) != (b < 0))"
            result = f"({ty})({result} {f'- {down}' if quotient else f'+ ({down} ? b : 0)'})"
        return self._add(name, dtype, "a b", f"{guard}return {result};")

    def shift(self, op: str, dtype: str) -> str:
        ty = self.dialect.type(dtype)
        unsigned = ty if dtypes.is_unsigned(dtype) else self.dialect.type(f"u{dtype}")
        left = f"({unsigned})a" if op == "<<" else "a"
        body = f"return ({ty})({left} {op} (b & {dtypes.bits(dtype) - 1}));"
        return self._add({"<<": "shl", ">>": "shr"}[op], dtype, "a b", body)

    def absolute(self, dtype: str) -> str:
        """The absolute value of an integer; of the smallest one itself."""
        body = f"return a < 0 ? {self.dialect.negated('a', dtype)} : a;"
        return self._add("abs", dtype, "a", body)

    def to_integer(self, source: str, to: str) -> str:
        """A float as an integer: rounded towards zero, cut to the limits; NaN is 0."""
        d, bits = self.dialect, dtypes.bits(to)
        suffix = "f" if source == "float32" else ""
        unsigned = dtypes.is_unsigned(to)
        top = f"0x1p{bits if unsigned else bits - 1}{suffix}"
        low, least = ("0", "0") if unsigned else (f"-{top}", d.lowest(to))
        self.truncates = True
        most, ty = d.highest(to), d.type(to)
        body = f"return x != x ? 0 : x <= {low} ? {least} : x >= {top} ? {most} : ({ty})x;"
        return self._conversion(source, to, body)

    def to_float(self, source: str, to: str) -> str:
        """An integer that may be a float's: GCC 12 makes trunc of both, and -0 of -0.5."""
        return self._conversion(source, to, f"{self.dialect.type(to)} y = x; return y + 0;")

    def _conversion(self, source: str, to: str, body: str) -> str:
        return self._function(f"lw_{short(to)}_from_{short(source)}", to, source, "x", body)

    def reinterpret(self, source: str, to: str) -> str:
        frm, ty = self.dialect.type(source), self.dialect.type(to)
        body = f"union {{ {frm} from; {ty} to; }} u = {{ x }}; return u.to;"
        return self._function(f"lw_{short(to)}_bits_of_{short(source)}", to, source, "x", body)


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
                    return Text(self.prelude.dialect.negated(self.expr(a).inside(UNARY), d), UNARY)
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
        name = math_function(self.prelude, fn, dtype, self.in_vector)
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
        if fn == "abs" and dtypes.is_unsigned(dtype):
            return args[0]
        if fn == "abs" and dtypes.is_int(dtype):
            return call(self.prelude.absolute(dtype), *args)
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


def math_function(prelude: Prelude, fn: str, dtype: str, lanes: bool) -> str | None:
    """The name of a function of this file, or None; with ``lanes`` for a vector loop, which has no
    branches: what is seldom needed is computed always, and chosen."""
    d = conversion(fn, dtype) or definition(fn, dtype)
    if d is None or (fn == "fma" and prelude.has_fma) or fn in prelude.foreign:
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
        params = ", ".join(f"{ty(v.dtype)} {v.name}" for v in self.d.params)
        lines = [f"{how}{ty(self.d.result.dtype)} {name}({params}) {{"]
        for v, e in self.d.steps:
            lines.append(f"  const {ty(v.dtype)} {v.name} = {self.expr(e).text};")
        return "\n".join([*lines, f"  return {self.expr(self.d.result).text};", "}"])

    def expr(self, e: Expr) -> Text:
        match e:
            case IfThenElse(cond=c, a=a, b=b) if not self.in_vector:
                seldom = self.prelude.dialect.unlikely.format(self.expr(c).text)
                return Text(f"{seldom} ? {self.expr(a).text} : {self.expr(b).inside(3)}", 2)
        return super().expr(e)
