"""Functions of the C library that generated code may call."""

from __future__ import annotations

#: Functions of floats; those of float32 have an ``f`` behind their name.
MATH_FUNCTIONS = frozenset({
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sinh", "cosh", "sin", "cos",
    "tan", "atan", "erf", "pow", "fmod",
})  # fmt: skip
#: Functions that generated code may call, or LLVM on its behalf: no kernel may have such a name.
C_FUNCTIONS = MATH_FUNCTIONS | {f"{n}f" for n in MATH_FUNCTIONS} | {"memcpy", "memmove", "memset"}
