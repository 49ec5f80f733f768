"""`var` and `size_var`: sizes that are known only when a program runs."""

from __future__ import annotations

from loopwright.errors import TensorError
from loopwright.ir.sizes import SizeVar


def var(name: str = "n", dtype: str = "int32") -> SizeVar:
    """A size that is known only when the program runs: ``te.placeholder((n, 4))``.

    One built function then serves every size. The value comes from the shapes of the arrays that
    the function is called with; a variable that no dimension tells is passed as an int, at its
    place in ``build(s, [n, A, B])``. As an extent it must be 1 to 2**30 (checked at each call);
    it may be 0 where this leaves no output with elements: then nothing runs.

    Args:
        name: printed name; it need not be unique.
        dtype: int32 or int64.

    Raises:
        TensorError: another dtype: a number of the program is a tensor of shape ``()``.
    """
    return SizeVar(name, _size_dtype(name, dtype), False)


def size_var(name: str = "size", dtype: str = "int32") -> SizeVar:
    """As `var`, with the promise that it is not negative (a call checks it)."""
    return SizeVar(name, _size_dtype(name, dtype), True)


def _size_dtype(name: str, dtype: str) -> str:
    if dtype not in ("int32", "int64"):
        raise TensorError(
            f"var {name!r}: size variables are int32 or int64, got {dtype}; pass other numbers as "
            "a tensor of shape ()"
        )
    return dtype
