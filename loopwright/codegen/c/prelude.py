"""Small C functions for what an operator of C does not say: each is written once, where it is used.

Types are named ``f32``, ``i64``, ``u8`` in their names. All agree with the interpreter: division by
zero gives zero, floats that become integers are cut to the limits, NaN wins in max and min.
"""

from __future__ import annotations

from collections.abc import Callable

from loopwright import dtypes

#: Values of 16-bit floats are kept as the float that equals them.
_TYPES = {
    "float16": "float", "bfloat16": "float", "float32": "float", "float64": "double",
    "bool": "bool",
}  # fmt: skip
_SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "bool": "b"}
_MEMORY = {"bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t"}


def c_type(dtype: str) -> str:
    """The C type of a value."""
    return _TYPES.get(dtype) or f"{dtype}_t"


def memory_type(dtype: str) -> str:
    """The C type of an element in memory: a bool is a byte, a 16-bit float its bits."""
    return _MEMORY.get(dtype) or c_type(dtype)


def short(dtype: str) -> str:
    """The name of a dtype in the name of a helper."""
    if dtype in _SHORT:
        return _SHORT[dtype]
    return ("u" if dtypes.is_unsigned(dtype) else "i") + str(dtypes.bits(dtype))


#: ``(fn, dtype, in a vector loop)`` -> the file's own function, or None where there is none.
MathSource = Callable[[str, str, bool], str | None]


def _no_definitions(fn: str, dtype: str, lanes: bool) -> str | None:
    return None


class Prelude:
    """The helpers of one translation unit, in the order of their first use.

    Attributes:
        has_fma: whether ``fma`` of C is an instruction, so that ``a * b + c`` becomes one.
        strict: whether a helper depends on the rounding of every operation.
        define: writes math functions (`loopwright.codegen.c.math`).
    """

    def __init__(self, has_fma: bool = False) -> None:
        self._texts: dict[str, str] = {}
        self.has_fma = has_fma
        self.strict = False
        self.define: MathSource = _no_definitions

    def text(self) -> str:
        """All of them."""
        return "\n".join(self._texts.values())

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def put(self, name: str, text: str) -> None:
        """Write a helper after all that there are."""
        self._texts[name] = text

    def _add(self, name: str, dtype: str, params: str, body: str) -> str:
        ty = c_type(dtype)
        given = ", ".join(f"{ty} {p}" for p in params.split())
        self._texts.setdefault(name, f"static inline {ty} {name}({given}) {{ {body} }}")
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
        ty = c_type(dtype)
        guard = "if (b == 0) return 0; "
        if signed:
            guard += f"if (b == -1) return {f'({ty})-a' if quotient else '0'}; "
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
        name, bits, ty = {"<<": "shl", ">>": "shr"}[op], dtypes.bits(dtype), c_type(dtype)
        unsigned = ty if ty.startswith("u") else f"u{ty}"
        left = f"({unsigned})a" if op == "<<" else "a"
        body = f"return ({ty})({left} {op} (b & {bits - 1}));"
        return self._add(f"lw_{name}_{short(dtype)}", dtype, "a b", body)

    def absolute(self, dtype: str) -> str:
        """The absolute value of an integer; of the smallest one itself."""
        body = f"return a < 0 ? ({c_type(dtype)})-a : a;"
        return self._add(f"lw_abs_{short(dtype)}", dtype, "a", body)

    def to_integer(self, source: str, to: str) -> str:
        """A float as an integer: rounded towards zero, cut to the limits; NaN is 0."""
        name = f"lw_{short(to)}_from_{short(source)}"
        frm, ty, bits = c_type(source), c_type(to), dtypes.bits(to)
        suffix = "f" if source == "float32" else ""
        unsigned = dtypes.is_unsigned(to)
        top = f"0x1p{bits if unsigned else bits - 1}{suffix}"
        high = f"{'UINT' if unsigned else 'INT'}{bits}_MAX"
        low, least = ("0", "0") if unsigned else (f"-{top}", f"INT{bits}_MIN")
        body = f"return x != x ? 0 : x <= {low} ? {least} : x >= {top} ? {high} : ({ty})x;"
        self._texts.setdefault(name, f"static inline {ty} {name}({frm} x) {{ {body} }}")
        return name

    def reinterpret(self, source: str, to: str) -> str:
        """The bits of one type as another of the same width."""
        name = f"lw_{short(to)}_bits_of_{short(source)}"
        frm, ty = c_type(source), c_type(to)
        body = f"union {{ {frm} from; {ty} to; }} u = {{ x }}; return u.to;"
        self._texts.setdefault(name, f"static inline {ty} {name}({frm} x) {{ {body} }}")
        return name
