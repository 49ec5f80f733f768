"""Names of operations and functions, and what the integer ones do to Python integers.

Shifts use the amount modulo the width (``x << 33`` of an int32 is ``x << 1``), as the instructions
of CPUs do, so every amount has a meaning. ``>>`` of a signed integer copies the sign.
"""

from __future__ import annotations

from collections.abc import Callable

COMPARE = ("==", "!=", "<", "<=", ">", ">=")
SHIFTS = ("<<", ">>")
#: Operations on the bits of integers.
BITWISE = (*SHIFTS, "&", "|", "^")
#: Quotients and remainders of integers, rounded downwards or towards zero.
DIVISIONS = ("//", "%", "tdiv", "tmod")
#: Every operation of `Binary`.
OPERATIONS = (
    *COMPARE, *BITWISE, *DIVISIONS, "+", "-", "*", "/", "min", "max", "and", "or",
)  # fmt: skip
#: Pure functions of floats that both the interpreter and every code generator know.
INTRINSICS = (
    "exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "tanh", "sigmoid", "erf", "sqrt",
    "rsqrt", "sin", "cos", "tan", "sinh", "cosh", "atan", "floor", "ceil", "round", "trunc",
    "abs", "pow", "fmod",
)  # fmt: skip
#: Every function of `Call`: ``fma(a, b, c)`` is ``a * b + c`` rounded once, ``reinterpret`` the
#: same bits as another dtype of the same width.
FUNCTIONS = (*INTRINSICS, "fma", "reinterpret")

#: Operations that can be folded on Python integers; the result is then wrapped to the dtype. The
#: amount of a shift must have been cut to the width.
FOLD: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
