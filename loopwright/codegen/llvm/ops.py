"""Scalar and vector operations as LLVM IR text: arithmetic, comparison, conversion, intrinsics."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from loopwright import dtypes
from loopwright.codegen.code import MATH_FUNCTIONS
from loopwright.errors import CodegenError
from loopwright.ir.expr import SHIFTS

#: Values of 16-bit floats are kept as the float32 that equals them.
_REGISTERS = {
    "float16": "float", "bfloat16": "float", "float32": "float", "float64": "double", "bool": "i1",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Value:
    """A computed value: its text (a register or a literal), element dtype and number of lanes."""

    ref: str
    dtype: str
    lanes: int = 1


def llvm_type(dtype: str, lanes: int = 1) -> str:
    base = _REGISTERS.get(dtype)
    if base is None:
        base = f"i{dtypes.bits(dtype)}"
    return base if lanes == 1 else f"<{lanes} x {base}>"


#: Conditions that are known; such a value has one lane.
TRUE, FALSE = "true", "false"


def literal(value: float, dtype: str) -> str:
    """A literal in LLVM's spelling; floats as the bits of a double."""
    if dtype == "bool":
        return TRUE if value else FALSE
    if not dtypes.is_float(dtype):
        return str(int(value))
    bits = struct.unpack("<Q", struct.pack("<d", float(value)))[0]
    return f"0x{bits:016X}"


#: Intrinsics that LLVM turns into instructions, for every vector length.
_NATIVE = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven",
}  # fmt: skip
_BITS = {"&": "and", "|": "or", "^": "xor"}
_EXACT = ("abs", "floor", "ceil", "trunc", "round")
_COMPARE = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
#: Whole numbers that an int32 has room for: vectors of floats are cut to their limits first.
_CUT_FIRST = ("int8", "uint8", "int16", "uint16", "int32")
#: ``(fn, dtype, lanes)`` -> the name of the module's own function, or None where there is none.
MathSource = Callable[[str, str, int], str | None]


class Operations:
    """Writes operations; the owner gives ``emit(text) -> register`` and ``declare(text)``."""

    def __init__(
        self,
        emit: Callable[[str], str],
        declare: Callable[[str, str], None],
        fastmath: bool,
        splat: Callable[[Value, int], Value],
        define: MathSource | None = None,
        has_float16: bool = False,
    ) -> None:
        self.emit, self.declare, self.splat, self.define = emit, declare, splat, define
        self.has_float16 = has_float16
        self.flags = "fast " if fastmath else "contract "

    def align(self, *values: Value) -> list[Value]:
        """Bring values to one number of lanes by broadcasting scalars."""
        lanes = max(v.lanes for v in values)
        return [v if v.lanes == lanes else self.splat(v, lanes) for v in values]

    def binary(self, op: str, a: Value, b: Value, dtype: str) -> Value:
        if op in ("and", "or"):
            return self._both(op, a, b)
        a, b = self.align(a, b)
        if op in _COMPARE:
            return self.compare(op, a, b)
        if op in ("min", "max"):
            return self._min_max(op, a, b)
        if dtypes.is_float(dtype):
            name = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}[op]
            return self.narrow(self._op(f"{name} {self.flags}".strip(), a, b, dtype))
        if op in SHIFTS:
            # By an amount modulo the width; LLVM's own is poison beyond it.
            if not (b.ref.isdigit() and int(b.ref) < dtypes.bits(dtype)):
                b = self._op("and", b, self.const(dtypes.bits(dtype) - 1, b), dtype)
            right = "lshr" if dtypes.is_unsigned(dtype) else "ashr"
            return self._op("shl" if op == "<<" else right, a, b, dtype)
        if op in _BITS:
            return self._op(_BITS[op], a, b, dtype)
        if op in ("+", "-", "*"):
            return self._op({"+": "add", "-": "sub", "*": "mul"}[op], a, b, dtype)
        return self._divide(op, a, b, dtype)

    def _both(self, op: str, a: Value, b: Value) -> Value:
        """Conditions joined; one that is known leaves the other, or is the result."""
        usual = TRUE if op == "and" else FALSE
        for x, other in ((a, b), (b, a)):
            if x.ref in (TRUE, FALSE):
                return other if x.ref == usual else x
        a, b = self.align(a, b)
        return self._op(op, a, b, "bool")

    def _op(self, name: str, a: Value, b: Value, dtype: str) -> Value:
        ty = llvm_type(a.dtype, a.lanes)
        return Value(self.emit(f"{name} {ty} {a.ref}, {b.ref}"), dtype, a.lanes)

    def compare(self, op: str, a: Value, b: Value) -> Value:
        """A comparison; comparisons with NaN are false, except ``!=``."""
        a, b = self.align(a, b)
        ty = llvm_type(a.dtype, a.lanes)
        if dtypes.is_float(a.dtype):
            name = "fcmp une" if op == "!=" else f"fcmp o{_COMPARE[op]}"
        else:
            signed = not (dtypes.is_unsigned(a.dtype) or a.dtype == "bool")
            sign = "" if op in ("==", "!=") else "s" if signed else "u"
            name = f"icmp {sign}{_COMPARE[op]}"
        return Value(self.emit(f"{name} {ty} {a.ref}, {b.ref}"), "bool", a.lanes)

    def select(self, c: Value, a: Value, b: Value) -> Value:
        if c.ref in (TRUE, FALSE):
            return a if c.ref == TRUE else b
        if c.lanes == 1:
            a, b = self.align(a, b)
        else:
            c, a, b = self.align(c, a, b)
        ty, cty = llvm_type(a.dtype, a.lanes), llvm_type("bool", c.lanes)
        return Value(
            self.emit(f"select {cty} {c.ref}, {ty} {a.ref}, {ty} {b.ref}"), a.dtype, a.lanes
        )

    def _min_max(self, op: str, a: Value, b: Value) -> Value:
        m = self.select(self.compare(">" if op == "max" else "<", a, b), a, b)
        if not dtypes.is_float(a.dtype):
            return m
        ty = llvm_type(a.dtype, a.lanes)
        nan = Value(self.emit(f"fcmp uno {ty} {a.ref}, {a.ref}"), "bool", a.lanes)
        return self.select(nan, a, m)

    def const(self, value: float, like: Value) -> Value:
        one = Value(literal(value, like.dtype), like.dtype)
        return one if like.lanes == 1 else self.splat(one, like.lanes)

    def _divide(self, op: str, a: Value, b: Value, dtype: str) -> Value:
        """Integer division; by zero it gives 0, and it never traps."""
        is_safe_literal = b.ref.lstrip("-").isdigit() and b.ref not in ("0", "-1")
        zero = self.const(0, b)
        bad = None
        safe = b
        if not is_safe_literal:
            bad = self.compare("==", b, zero)
            unsafe = bad
            if not dtypes.is_unsigned(dtype):
                minus = self.compare("==", b, self.const(-1, b))
                unsafe = self._op("or", bad, minus, "bool")
            safe = self.select(unsafe, self.const(1, b), b)
        out = self._safe_divide(op, a, safe, dtype)
        if bad is None:
            return out
        if not dtypes.is_unsigned(dtype) and op in ("//", "tdiv"):
            out = self.select(minus, self._op("sub", zero, a, dtype), out)
        return self.select(bad, zero, out)

    def _safe_divide(self, op: str, a: Value, b: Value, dtype: str) -> Value:
        sign = "u" if dtypes.is_unsigned(dtype) else "s"
        div = self._op(f"{sign}div", a, b, dtype)
        if op == "tdiv" or (op == "//" and sign == "u"):
            return div
        rem = self._op(f"{sign}rem", a, b, dtype)
        if op == "tmod" or sign == "u":
            return rem
        zero = self.const(0, a)
        signs = self._op("xor", rem, b, dtype)
        differ = self.compare("<", signs, zero)
        off = self._op("and", self.compare("!=", rem, zero), differ, "bool")
        if op == "//":
            return self.select(off, self._op("sub", div, self.const(1, a), dtype), div)
        return self.select(off, self._op("add", rem, b, dtype), rem)

    def cast(self, v: Value, to: str) -> Value:
        """Convert between dtypes; floats that do not fit an integer are cut to its limits."""
        frm = v.dtype
        if frm == to:
            return v
        if frm in dtypes.HALVES:
            return self.cast(Value(v.ref, "float32", v.lanes), to)
        if to in dtypes.HALVES:
            return self.narrow(Value(self.cast(v, "float32").ref, to, v.lanes))
        if to == "bool":
            return self.compare("!=", v, self.const(0, v))
        src, dst = llvm_type(frm, v.lanes), llvm_type(to, v.lanes)
        if dtypes.is_float(frm) and not dtypes.is_float(to):
            if v.lanes > 1 and to in _CUT_FIRST:
                return self._cut_first(v, to)
            many = f"v{v.lanes}" if v.lanes > 1 else ""
            sign = "u" if dtypes.is_unsigned(to) else "s"
            source = "f32" if frm == "float32" else "f64"
            name = f"llvm.fpto{sign}i.sat.{many}i{dtypes.bits(to)}.{many}{source}"
            self.declare(name, f"declare {dst} @{name}({src})")
            return Value(self.emit(f"call {dst} @{name}({src} {v.ref})"), to, v.lanes)
        return Value(self.emit(f"{_conversion(frm, to)} {src} {v.ref} to {dst}"), to, v.lanes)

    def _cut_first(self, v: Value, to: str) -> Value:
        """Whole numbers of floats: nearest towards 0, within the limits of the dtype, 0 of NaN.
        LLVM's own conversion takes such vectors apart on x86: four instructions and more for each
        element. Comparisons of whole vectors cut all of them by one instruction."""
        limits = np.iinfo(to)
        least, most = float(limits.min), _most_within(limits.max, v.dtype)
        # A comparison with NaN is false, which gives the least number.
        held = self.select(self.compare(">", v, self.const(least, v)), v, self.const(least, v))
        held = self.select(self.compare("<", held, self.const(most, v)), held, self.const(most, v))
        source, wide = llvm_type(v.dtype, v.lanes), llvm_type("int32", v.lanes)
        found = Value(self.emit(f"fptosi {source} {held.ref} to {wide}"), "int32", v.lanes)
        if most < limits.max:  # the float after this one is beyond the limit
            beyond = self.compare(">", v, self.const(most, v))
            found = self.select(beyond, self.const(limits.max, found), found)
        if least:
            nan = Value(self.emit(f"fcmp uno {source} {v.ref}, {v.ref}"), "bool", v.lanes)
            found = self.select(nan, self.const(0, found), found)
        if to == "int32":
            return found
        return Value(
            self.emit(f"trunc {wide} {found.ref} to {llvm_type(to, v.lanes)}"), to, v.lanes
        )

    def narrow(self, v: Value) -> Value:
        """Round a 16-bit float's value to the format; other dtypes stay."""
        if v.dtype not in dtypes.HALVES:
            return v
        if v.dtype == "float16" and self.has_float16:
            ty, half = llvm_type("float32", v.lanes), _half(v.lanes)
            short = self.emit(f"fptrunc {ty} {v.ref} to {half}")
            return Value(self.emit(f"fpext {half} {short} to {ty}"), v.dtype, v.lanes)
        return self._convert("narrow", v.ref, "float32", v)

    def pack(self, v: Value) -> str:
        """The bits of a 16-bit float, as i16."""
        ty, short = llvm_type("float32", v.lanes), llvm_type("int16", v.lanes)
        if v.dtype == "float16" and self.has_float16:
            half = _half(v.lanes)
            x = self.emit(f"fptrunc {ty} {v.ref} to {half}")
            return self.emit(f"bitcast {half} {x} to {short}")
        wide = self._convert("pack", v.ref, "int32", v)
        return self.emit(f"trunc {llvm_type('int32', v.lanes)} {wide.ref} to {short}")

    def unpack(self, v: Value) -> Value:
        """A 16-bit float's value from its bits, an i16."""
        ty, short = llvm_type("float32", v.lanes), llvm_type("int16", v.lanes)
        if v.dtype == "float16" and self.has_float16:
            half = _half(v.lanes)
            x = self.emit(f"bitcast {short} {v.ref} to {half}")
            return Value(self.emit(f"fpext {half} {x} to {ty}"), v.dtype, v.lanes)
        wide = self.emit(f"zext {short} {v.ref} to {llvm_type('int32', v.lanes)}")
        return self._convert("unpack", wide, "float32", v)

    def _convert(self, what: str, ref: str, to: str, v: Value) -> Value:
        """Convert a register (`loopwright.ir.math.vector_math`) to the dtype of ``v``."""
        assert self.define is not None
        name = self.define(what, v.dtype, v.lanes)
        src = llvm_type("int32" if what == "unpack" else "float32", v.lanes)
        result = self.emit(f"call {llvm_type(to, v.lanes)} @{name}({src} {ref})")
        return Value(result, v.dtype, v.lanes)

    def negate(self, v: Value) -> Value:
        if dtypes.is_float(v.dtype):
            return Value(self.emit(f"fneg {llvm_type(v.dtype, v.lanes)} {v.ref}"), v.dtype, v.lanes)
        return self._op("sub", self.const(0, v), v, v.dtype)

    def invert(self, v: Value) -> Value:
        if v.ref in (TRUE, FALSE):
            return Value(FALSE if v.ref == TRUE else TRUE, "bool")
        return self._op("xor", v, self.const(1, v), "bool")

    def flip(self, v: Value) -> Value:
        return self._op("xor", v, self.const(-1, v), v.dtype)

    def reinterpret(self, v: Value, to: str) -> Value:
        if v.dtype in dtypes.HALVES:
            v = Value(self.pack(v), "int16", v.lanes)
        if to in dtypes.HALVES:
            return self.unpack(Value(v.ref, to, v.lanes))
        src, dst = llvm_type(v.dtype, v.lanes), llvm_type(to, v.lanes)
        if src == dst:
            return Value(v.ref, to, v.lanes)
        return Value(self.emit(f"bitcast {src} {v.ref} to {dst}"), to, v.lanes)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """``a * b + c`` rounded once."""
        return self._own("fma", [a, b, c]) or self._native("fma", a, b, c)

    def call(self, fn: str, args: list[Value]) -> Value:
        """A pure function of `loopwright.ir.expr.FUNCTIONS`, but for ``reinterpret``."""
        args = self.align(*args)
        x = args[0]
        if x.dtype in dtypes.HALVES:
            y = self.call(fn, [Value(a.ref, "float32", a.lanes) for a in args])
            out = Value(y.ref, x.dtype, y.lanes)
            return out if fn in _EXACT else self.narrow(out)
        if fn == "fma":
            return self.fma(*args)
        if fn == "abs" and not dtypes.is_float(x.dtype):
            return self._min_max("max", x, self.negate(x))
        if fn == "abs":
            return self._native("fabs", x)
        if fn in _NATIVE:
            return self._native(_NATIVE[fn], x)
        own = self._own(fn, args)
        if own is None and fn not in MATH_FUNCTIONS:
            raise CodegenError(f"llvm: no code for the intrinsic {fn!r}")
        return own or self._libm(fn, args)

    def _own(self, fn: str, args: list[Value]) -> Value | None:
        """A call of the module's own function, which is strict whatever the flags here."""
        x = args[0]
        name = self.define(fn, x.dtype, x.lanes) if self.define else None
        if name is None:
            return None
        ty = llvm_type(x.dtype, x.lanes)
        given = ", ".join(f"{ty} {a.ref}" for a in args)
        return Value(self.emit(f"call {ty} @{name}({given})"), x.dtype, x.lanes)

    def _native(self, name: str, *args: Value) -> Value:
        x = args[0]
        suffix = {"float32": "f32", "float64": "f64"}[x.dtype]
        full = f"llvm.{name}.{'v' + str(x.lanes) if x.lanes > 1 else ''}{suffix}"
        ty = llvm_type(x.dtype, x.lanes)
        self.declare(full, f"declare {ty} @{full}({', '.join([ty] * len(args))})")
        values = ", ".join(f"{ty} {a.ref}" for a in args)
        return Value(self.emit(f"call {ty} @{full}({values})"), x.dtype, x.lanes)

    def _libm(self, fn: str, args: list[Value]) -> Value:
        dtype, lanes = args[0].dtype, args[0].lanes
        name = fn + ("f" if dtype == "float32" else "")
        ty = llvm_type(dtype)
        params = ", ".join([ty] * len(args))
        self.declare(name, f"declare {ty} @{name}({params}) nounwind willreturn memory(none)")
        if lanes == 1:
            given = ", ".join(f"{ty} {a.ref}" for a in args)
            return Value(self.emit(f"call {ty} @{name}({given})"), dtype)
        out = "poison"
        vty = llvm_type(dtype, lanes)
        for i in range(lanes):
            xs = [self.emit(f"extractelement {vty} {a.ref}, i64 {i}") for a in args]
            y = self.emit(f"call {ty} @{name}({', '.join(f'{ty} {x}' for x in xs)})")
            out = self.emit(f"insertelement {vty} {out}, {ty} {y}, i64 {i}")
        return Value(out, dtype, lanes)


def _half(lanes: int) -> str:
    return "half" if lanes == 1 else f"<{lanes} x half>"


def _conversion(frm: str, to: str) -> str:
    unsigned = dtypes.is_unsigned(frm) or frm == "bool"
    if dtypes.is_float(frm) and dtypes.is_float(to):
        return "fpext" if dtypes.bits(to) > dtypes.bits(frm) else "fptrunc"
    if dtypes.is_float(to):
        return "uitofp" if unsigned else "sitofp"
    if dtypes.bits(to) < dtypes.bits(frm):
        return "trunc"
    if dtypes.bits(to) == dtypes.bits(frm):
        return "bitcast"
    return "zext" if unsigned else "sext"


def _most_within(limit: int, dtype: str) -> float:
    """The largest number of a dtype of floats that is not above a limit."""
    kind = np.dtype(dtype).type
    nearest = kind(limit)
    return float(nearest if int(nearest) <= limit else np.nextafter(nearest, kind(0)))
