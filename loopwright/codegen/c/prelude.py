"""Small C functions for what an operator of C does not say, each written once, with types as
``f32``, ``i64``, ``u8`` in their names. All agree with the interpreter: division by zero gives
zero, floats that become integers are cut to the limits, NaN wins in max and min."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from loopwright import dtypes

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
        """The language's own function for an intrinsic of floats."""
        suffix = self.float_suffix if dtype == "float32" else ""
        return _C_NAMES.get(fn, fn) + suffix

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
    """The name of a dtype in the name of a helper."""
    if dtype in _SHORT:
        return _SHORT[dtype]
    return ("u" if dtypes.is_unsigned(dtype) else "i") + str(dtypes.bits(dtype))


#: ``(fn, dtype, in a vector loop)`` -> the file's own function, or None where there is none.
MathSource = Callable[[str, str, bool], str | None]


class Prelude:
    """The helpers of one translation unit, in the order of their first use."""

    def __init__(self, has_fma: bool = False, dialect: Dialect = C) -> None:
        self._texts: dict[str, str] = {}
        self.dialect = dialect
        #: Whether ``fma`` of C is an instruction, so that ``a * b + c`` becomes one.
        self.has_fma = has_fma
        #: Whether a helper depends on the rounding of every operation, or makes floats integers.
        self.strict = self.truncates = False
        #: Writes math functions (`loopwright.codegen.c.expressions`).
        self.define: MathSource = lambda fn, dtype, lanes: None

    def text(self) -> str:
        return "\n".join(self._texts.values())

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def put(self, name: str, text: str) -> None:
        self._texts[name] = text

    def _add(self, name: str, dtype: str, params: str, body: str) -> str:
        ty, helper = self.dialect.type(dtype), self.dialect.helper
        given = ", ".join(f"{ty} {p}" for p in params.split())
        self._texts.setdefault(name, f"{helper} {ty} {name}({given}) {{ {body} }}")
        return name

    def min_max(self, op: str, dtype: str) -> str:
        """``max(a, b)`` or ``min(a, b)``; NaN where either is NaN."""
        sign = ">" if op == "max" else "<"
        nan = "a != a || " if dtypes.is_float(dtype) else ""
        body = f"return {nan}a {sign} b ? a : b;"
        return self._add(f"lw_{op}_{short(dtype)}", dtype, "a b", body)

    def divide(self, op: str, dtype: str) -> str:
        """Integer division or remainder, ``// % tdiv tmod``; by zero 0, and it never traps."""
        name = {"//": "floordiv", "%": "floormod", "tdiv": "truncdiv", "tmod": "truncmod"}[op]
        signed = not dtypes.is_unsigned(dtype)
        quotient = op in ("//", "tdiv")
        ty = self.dialect.type(dtype)
        guard = "if (b == 0) return 0; "
        if signed:
            guard += (
                f"if (b == -1) return {self.dialect.negated('a', dtype) if quotient else '0'}; "
            )
        down = "(a % b != 0 && (a < 0) != (b < 0))"
        result = {
            "//": f"({ty})(a / b - {down})" if signed else "a / b",
            "%": f"({ty})(a % b + ({down} ? b : 0))" if signed else "a % b",
            "tdiv": "a / b",
            "tmod": "a % b",
        }[op]
        return self._add(f"lw_{name}_{short(dtype)}", dtype, "a b", f"{guard}return {result};")

    def shift(self, op: str, dtype: str) -> str:
        """A shift by the amount modulo the width."""
        name, bits, ty = (
            {"<<": "shl", ">>": "shr"}[op],
            dtypes.bits(dtype),
            self.dialect.type(dtype),
        )
        unsigned = ty if dtypes.is_unsigned(dtype) else self.dialect.type(f"u{dtype}")
        left = f"({unsigned})a" if op == "<<" else "a"
        body = f"return ({ty})({left} {op} (b & {bits - 1}));"
        return self._add(f"lw_{name}_{short(dtype)}", dtype, "a b", body)

    def absolute(self, dtype: str) -> str:
        """The absolute value of an integer; of the smallest one itself."""
        body = f"return a < 0 ? {self.dialect.negated('a', dtype)} : a;"
        return self._add(f"lw_abs_{short(dtype)}", dtype, "a", body)

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
        name = f"lw_{short(to)}_from_{short(source)}"
        frm, ty = self.dialect.type(source), self.dialect.type(to)
        self._texts.setdefault(name, f"{self.dialect.helper} {ty} {name}({frm} x) {{ {body} }}")
        return name

    def reinterpret(self, source: str, to: str) -> str:
        name = f"lw_{short(to)}_bits_of_{short(source)}"
        frm, ty = self.dialect.type(source), self.dialect.type(to)
        body = f"union {{ {frm} from; {ty} to; }} u = {{ x }}; return u.to;"
        helper = self.dialect.helper
        self._texts.setdefault(name, f"{helper} {ty} {name}({frm} x) {{ {body} }}")
        return name
