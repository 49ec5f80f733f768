"""Operations, blocks, lanes and masks of a function as LLVM IR text, and what its module shares."""

from __future__ import annotations

import math
import struct
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from loopwright import dtypes
from loopwright.codegen.code import MATH_FUNCTIONS, Bytes, CodePart
from loopwright.errors import CodegenError, InternalError
from loopwright.ir.affine import Affine
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import (
    SHIFTS,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Select,
    Unary,
    Var,
)
from loopwright.ir.math.definition import Definition, without_fma
from loopwright.ir.math.vector_math import conversion, definition
from loopwright.ir.node import StructuralKey
from loopwright.runtime import architecture
from loopwright.target import (
    Target,
    has_instruction,
    permuted_bytes,
    permutes_memory,
    stores_too_wide,
)

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
    base = _REGISTERS.get(dtype) or f"i{dtypes.bits(dtype)}"
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


def _number(v: Value) -> float | None:
    """The number that a float's literal stands for; None of NaN, -0.0, and what is no literal."""
    if not v.ref.startswith("0x"):
        return None
    (value,) = struct.unpack("<d", struct.pack("<Q", int(v.ref, 16)))
    return None if math.isnan(value) or (not value and math.copysign(1, value) < 0) else value


#: Intrinsics that LLVM turns into instructions, for every vector length.
_NATIVE = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven",
}  # fmt: skip
_BITS = {"&": "and", "|": "or", "^": "xor"}
_EXACT = ("abs", "floor", "ceil", "trunc", "round")
_COMPARE = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
#: Whole numbers that an int32 has room for: vectors of floats are cut to their limits first.
_CUT_FIRST = ("int8", "uint8", "int16", "uint16", "int32")


class Operations:
    """Writes operations, those that are in scope already once."""

    def __init__(self, w: Emitter) -> None:
        self.emit, self.declare, self.splat, self.module = w.pure, w.declare, w.splat, w.module
        self.has_float16 = w.module.has_float16
        self.flags = "fast " if w.module.fastmath else "contract "

    def align(self, *values: Value) -> list[Value]:
        lanes = max(v.lanes for v in values)
        return [v if v.lanes == lanes else self.splat(v, lanes) for v in values]

    def binary(self, op: str, a: Value, b: Value, dtype: str) -> Value:
        if op in ("and", "or"):
            return self._both(op, a, b)
        if op in ("min", "max") and dtypes.is_float(a.dtype) and (limit := _number(b)) is not None:
            return self._cut_at(op, a, b, limit)
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
        # A condition of one lane chooses between whole vectors.
        c, a, b = (c, *self.align(a, b)) if c.lanes == 1 else self.align(c, a, b)
        ty, cty = llvm_type(a.dtype, a.lanes), llvm_type("bool", c.lanes)
        chosen = self.emit(f"select {cty} {c.ref}, {ty} {a.ref}, {ty} {b.ref}")
        return Value(chosen, a.dtype, a.lanes)

    def _min_max(self, op: str, a: Value, b: Value) -> Value:
        m = self.select(self.compare(">" if op == "max" else "<", a, b), a, b)
        if not dtypes.is_float(a.dtype):
            return m
        ty = llvm_type(a.dtype, a.lanes)
        nan = Value(self.emit(f"fcmp uno {ty} {a.ref}, {a.ref}"), "bool", a.lanes)
        return self.select(nan, a, m)

    def _cut_at(self, op: str, a: Value, b: Value, limit: float) -> Value:
        """`_min_max` with a number that is no NaN, in one instruction, or two for zero."""
        # A comparison with NaN is false, and chooses the operand that may be one. Where both are
        # equal they are the same bits, but for zeros: of these the second one counts, which is 0.0,
        # and -0.0 + 0.0 is that.
        held = self.select(self.compare(">" if op == "max" else "<", b, a), b, a)
        return held if limit else self._op("fadd", held, self.const(0, held), held.dtype)

    def const(self, value: float, like: Value) -> Value:
        one = Value(literal(value, like.dtype), like.dtype)
        return one if like.lanes == 1 else self.splat(one, like.lanes)

    def _divide(self, op: str, a: Value, b: Value, dtype: str) -> Value:
        """Integer division; by zero it gives 0, and it never traps."""
        zero = self.const(0, b)
        if b.ref.lstrip("-").isdigit() and b.ref not in ("0", "-1"):
            return self._safe_divide(op, a, b, dtype)
        signed = not dtypes.is_unsigned(dtype)
        bad = unsafe = self.compare("==", b, zero)
        if signed:
            minus = self.compare("==", b, self.const(-1, b))
            unsafe = self._op("or", bad, minus, "bool")
        out = self._safe_divide(op, a, self.select(unsafe, self.const(1, b), b), dtype)
        if signed and op in ("//", "tdiv"):
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
        differ = self.compare("<", self._op("xor", rem, b, dtype), zero)
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
        """Whole numbers of floats: nearest towards 0, within the limits of the dtype, 0 of NaN."""
        # LLVM's own conversion takes such vectors apart on x86: four instructions and more for each
        # element. Comparisons of whole vectors cut all of them by one instruction.
        limits = np.iinfo(to)
        least, most = float(limits.min), _most_within(limits.max, v.dtype)
        # A comparison with NaN is false, which gives the least number.
        held = self.select(self.compare(">", v, self.const(least, v)), v, self.const(least, v))
        held = self.select(self.compare("<", held, self.const(most, v)), held, self.const(most, v))
        source, wide = llvm_type(v.dtype, v.lanes), llvm_type("int32", v.lanes)
        result = Value(self.emit(f"fptosi {source} {held.ref} to {wide}"), "int32", v.lanes)
        if most < limits.max:  # the float after this one is beyond the limit
            beyond = self.compare(">", v, self.const(most, v))
            result = self.select(beyond, self.const(limits.max, result), result)
        if least:
            nan = Value(self.emit(f"fcmp uno {source} {v.ref}, {v.ref}"), "bool", v.lanes)
            result = self.select(nan, self.const(0, result), result)
        if to == "int32":
            return result
        cut = self.emit(f"trunc {wide} {result.ref} to {llvm_type(to, v.lanes)}")
        return Value(cut, to, v.lanes)

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
        name = math_function(self.module, what, v.dtype, v.lanes)
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

    def call(self, fn: str, args: list[Value]) -> Value:
        """A pure function of `loopwright.ir.expr.FUNCTIONS`, but for ``reinterpret``."""
        args = self.align(*args)
        x = args[0]
        if x.dtype in dtypes.HALVES:
            y = self.call(fn, [Value(a.ref, "float32", a.lanes) for a in args])
            out = Value(y.ref, x.dtype, y.lanes)
            return out if fn in _EXACT else self.narrow(out)
        if fn == "fma":
            return self._own("fma", args) or self._native("fma", *args)
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
        name = math_function(self.module, fn, x.dtype, x.lanes)
        return None if name is None else self._call(name, *args)

    def _call(self, name: str, *args: Value) -> Value:
        x = args[0]
        ty = llvm_type(x.dtype, x.lanes)
        values = ", ".join(f"{ty} {a.ref}" for a in args)
        return Value(self.emit(f"call {ty} @{name}({values})"), x.dtype, x.lanes)

    def _native(self, name: str, *args: Value) -> Value:
        x = args[0]
        suffix = {"float32": "f32", "float64": "f64"}[x.dtype]
        full = f"llvm.{name}.{'v' + str(x.lanes) if x.lanes > 1 else ''}{suffix}"
        ty = llvm_type(x.dtype, x.lanes)
        self.declare(full, f"declare {ty} @{full}({', '.join([ty] * len(args))})")
        return self._call(full, *args)

    def _libm(self, fn: str, args: list[Value]) -> Value:
        dtype, lanes = args[0].dtype, args[0].lanes
        name = fn + ("f" if dtype == "float32" else "")
        ty = llvm_type(dtype)
        params = ", ".join([ty] * len(args))
        # Where the divisor may be NaN and a dividend is finite, LLVM 22 makes poison of an fmod.
        unknown = " nobuiltin" if fn == "fmod" else ""
        effects = f"nounwind willreturn memory(none){unknown}"
        self.declare(name, f"declare {ty} @{name}({params}) {effects}")
        if lanes == 1:
            return self._call(name, *args)
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


#: Expressions whose code depends on that of their operands alone.
Operation = Const | Binary | Cast | Select | Unary | Call


class ModuleWriter:
    def __init__(self, name: str, target: Target) -> None:
        self.name, self.fastmath = name, target.options["fastmath"]
        self.vector_bytes, self.threads = target.vector_bytes, target.options["num_threads"]
        self.registers = target.vector_registers
        self.declares: dict[str, str] = {}
        self.functions: list[str] = []
        self.parallel_workspace: Bytes = 0
        self.squares: set[str] = set()
        self.uses_pool = False
        self.checks: list[str] = []
        self.packed: list[str] = []
        self.inputs: frozenset[Buffer] = frozenset()
        self.check_words = 0
        self.parts: tuple[CodePart, ...] = ()
        self.counter = 0
        self.metadata: list[str] = []
        self._once: dict[str, str] = {}
        self.math: set[str] = set()
        cpu = target.options["mcpu"], target.options["mattr"]
        self.has_fma = has_instruction(*cpu, "fma")
        self.has_float16 = has_instruction(*cpu, "float16")
        #: Whether the CPU has stores that go past the caches, and a fence that waits for them.
        self.streams = architecture() == "x86_64"
        #: Bytes of the vectors of which it can pick lanes by numbers; 0: none.
        self.permuted_bytes = permuted_bytes(*cpu)
        self.hides_masks = stores_too_wide(*cpu)
        self.hides_load_masks = permutes_memory(*cpu)
        #: Lanes of a dot product on the CPU, by its result; 0: it has no instructions for them.
        self.dot_lanes = target.dot_lanes
        #: Whether those of bytes are two instructions for products of pairs of 16 bits.
        self.has_dots_by_pairs = target.has_dots_by_pairs
        self.offsets: dict[StructuralKey, Affine | None] = {}

    def text(self) -> str:
        return "\n".join([*self.declares.values(), *self.functions, *self.metadata]) + "\n"

    def loop_hint(self, properties: Sequence[str]) -> str:
        """Metadata of one loop with these properties."""
        own = [self._metadata(f'!{{!"{name}"}}') for name in properties]
        n = len(self.metadata)
        self.metadata.append(f"!{n} = distinct !{{{', '.join([f'!{n}', *own])}}}")
        return f"!{n}"

    def nontemporal(self) -> str:
        return self._metadata("!{i32 1}")

    def _metadata(self, text: str) -> str:
        if text not in self._once:
            self._once[text] = f"!{len(self.metadata)}"
            self.metadata.append(f"{self._once[text]} = {text}")
        return self._once[text]


class Emitter:
    """Writes instructions in order; within a scope, equal ones that have no effect are shared."""

    def __init__(self, module: ModuleWriter) -> None:
        self.module = module
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.lanes = 1
        self.mask: Value | None = None
        self.count = 0
        self.scopes: list[dict[Hashable, str]] = [{}]
        self.ops = Operations(self)

    def emit(self, text: str) -> str:
        """Write an instruction that gives a value; returns its register."""
        self.count += 1
        reg = f"%v{self.count}"
        self.lines.append(f"  {reg} = {text}")
        return reg

    def pure(self, text: str) -> str:
        """Write an instruction that its operands determine, unless it is in scope already."""
        # Unrolled iterations and the pieces of a vector loop repeat most of each other's arithmetic
        # on indices; LLVM would find that out, at 20 microseconds a line.
        for scope in reversed(self.scopes):
            if text in scope:
                return scope[text]
        self.scopes[-1][text] = reg = self.emit(text)
        return reg

    def put(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def declare(self, name: str, text: str) -> None:
        self.module.declares.setdefault(name, text)

    def cached(self, key: Hashable, write: Callable[[], str]) -> str:
        """A register that is computed once in this scope or one around it."""
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        self.scopes[-1][key] = reg = write()
        return reg

    def leave_with(self, code: str) -> None:
        """Leave the function with a code, an i32, unless it is 0."""
        bad = self.emit(f"icmp ne i32 {code}, 0")
        fail, ok = self.label("fail"), self.label("ok")
        self.put(f"br i1 {bad}, label %{fail}, label %{ok}")
        self.start(fail)
        self.put(f"ret i32 {code}")
        self.start(ok)

    @abstractmethod
    def expr(self, e: Expr) -> Value:
        """The value of an expression; its leaves depend on the kind of function."""

    def operation(self, e: Operation) -> Value:
        match e:
            case Const(value=v, dtype=d):
                return Value(literal(v, d), d)
            case Binary(op=op, a=a, b=b, dtype=d):
                return self.ops.binary(op, self.expr(a), self.expr(b), d)
            case Cast(value=v, dtype=d):
                return self.ops.cast(self.expr(v), d)
            case Select(cond=c, a=a, b=b):
                return self.ops.select(self.expr(c), self.expr(a), self.expr(b))
            case Unary(op="not", a=a):
                return self.ops.invert(self.expr(a))
            case Unary(op="~", a=a):
                return self.ops.flip(self.expr(a))
            case Unary(a=a):
                return self.ops.negate(self.expr(a))
            case Call(fn="reinterpret", args=(a,), dtype=d):
                return self.ops.reinterpret(self.expr(a), d)
            case Call(fn=fn, args=args):
                return self.ops.call(fn, [self.expr(a) for a in args])

    def splat(self, v: Value, lanes: int) -> Value:
        return Value(self._splat(v.ref, llvm_type(v.dtype), lanes), v.dtype, lanes)

    def splat_memory(self, v: Value, ty: str) -> Value:
        """As `splat`, of a value in its memory type."""
        return Value(self._splat(v.ref, ty, self.lanes), v.dtype, self.lanes)

    def _splat(self, ref: str, ty: str, lanes: int) -> str:
        if not ref.startswith("%"):
            return "<" + ", ".join([f"{ty} {ref}"] * lanes) + ">"
        many = f"<{lanes} x {ty}>" if lanes > 1 else ty
        x = self.pure(f"insertelement {many} poison, {ty} {ref}, i64 0")
        return self.pure(
            f"shufflevector {many} {x}, {many} poison, <{lanes} x i32> zeroinitializer"
        )

    def vector_mask(self) -> str:
        assert self.mask is not None
        return self.splat(self.mask, self.lanes).ref if self.mask.lanes == 1 else self.mask.ref

    def hidden_mask(self) -> str:
        """The mask in a form that LLVM can find neither constant nor equal to the mask itself."""
        # It is joined with a condition that never holds: whether a zero is another number after an
        # empty piece of assembly, which LLVM does not look into (`stores_too_wide`,
        # `permutes_memory`).
        many = self._splat(self.pure('call i8 asm "", "=r,0"(i8 0)'), "i8", self.lanes)
        never = self.pure(f"icmp ne <{self.lanes} x i8> {many}, zeroinitializer")
        return self.pure(f"or <{self.lanes} x i1> {never}, {self.vector_mask()}")

    def any_active(self) -> str:
        assert self.mask is not None
        return self.mask.ref if self.mask.lanes == 1 else self.any_lane(self.mask)

    def any_lane(self, mask: Value) -> str:
        name = f"llvm.vector.reduce.or.v{mask.lanes}i1"
        ty = f"<{mask.lanes} x i1>"
        self.declare(name, f"declare i1 @{name}({ty})")
        return self.pure(f"call i1 @{name}({ty} {mask.ref})")

    def under(self, cond: Value, write: Callable[[], Value]) -> Value:
        old = self.mask
        self.mask = cond if old is None else self.ops.binary("and", old, cond, "bool")
        try:
            return write()
        finally:
            self.mask = old


# ---------------------------------------------------------------- math functions
#
# Math functions (`loopwright.ir.math.vector_math`) as functions of an LLVM module, one for each
# name, dtype and number of lanes, inlined but for rare paths (reduction of huge arguments). No
# instruction carries flags, so ``-fastmath`` around them does not break the sums that they rely on.


def math_function(m: ModuleWriter, fn: str, dtype: str, lanes: int) -> str | None:
    """The name of a function of this module; None where there is no definition."""
    d = conversion(fn, dtype) or definition(fn, dtype)
    if d is None or (fn == "fma" and m.has_fma):
        return None
    name = f"lw.{fn}.{'v' + str(lanes) if lanes > 1 else ''}{dtype}"
    if name not in m.math:
        m.math.add(name)
        d = d if m.has_fma else without_fma(d)
        m.functions.append(_DefinitionWriter(m, lanes).function(name, d))
    return name


class _DefinitionWriter(Emitter):
    def __init__(self, module: ModuleWriter, lanes: int) -> None:
        super().__init__(module)
        self.lanes = lanes
        self.ops.flags = ""
        self.values: dict[Var, Value] = {}

    def function(self, name: str, d: Definition) -> str:
        params = []
        for k, v in enumerate(d.params):
            self.values[v] = Value(f"%x{k}", v.dtype, self.lanes)
            params.append(f"{llvm_type(v.dtype, self.lanes)} %x{k}")
        for v, e in d.steps:
            self.values[v] = self.expr(e)
        out = self.expr(d.result)
        ty = llvm_type(out.dtype, self.lanes)
        ref = self.splat(out, self.lanes).ref if out.lanes < self.lanes else out.ref
        how = "noinline cold" if d.name.startswith("_") else "alwaysinline"
        head = f"define internal {ty} @{name}({', '.join(params)}) {how} nounwind memory(none) {{"
        return "\n".join([head, "entry:", *self.lines, f"  ret {ty} {ref}", "}"])

    def expr(self, e: Expr) -> Value:
        """An operation; a branch is taken when any lane asks for it."""
        if isinstance(e, Var):
            return self.values[e]
        if isinstance(e, Operation):
            return self.operation(e)
        if not isinstance(e, IfThenElse):
            raise InternalError(f"no LLVM code for {type(e).__name__} in a definition")
        usual, cond = self.expr(e.b), self.expr(e.cond)
        rare, after, before = self.label("rare"), self.label("usual"), self.label("before")
        go = self.any_lane(cond) if cond.lanes > 1 else cond.ref
        self.put(f"br label %{before}")
        self.start(before)
        self.put(f"br i1 {go}, label %{rare}, label %{after}")
        self.start(rare)
        self.scopes.append({})
        other = self.ops.select(cond, self.expr(e.a), usual)
        self.scopes.pop()
        self.put(f"br label %{after}")
        self.start(after)
        ty = llvm_type(usual.dtype, usual.lanes)
        phi = f"phi {ty} [ {usual.ref}, %{before} ], [ {other.ref}, %{rare} ]"
        return Value(self.emit(phi), usual.dtype, usual.lanes)
