"""`Dialect`: the words in which C, OpenCL C and CUDA C++ differ: types, literals and functions."""

from __future__ import annotations

from collections.abc import Mapping
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
