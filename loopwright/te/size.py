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

    Example:
        >>> n = te.var("n")
        >>> A = te.placeholder((n,), name="A")
        >>> B = te.compute((n,), lambda i: A[i] + 1, name="B")
        >>> f = lw.build(te.create_schedule(B.op), [A, B])
        >>> for size in (2, 3):
        ...     b = np.empty(size, "float32")
        ...     f(np.zeros(size, "float32"), b)
        ...     print(b)
        ...
        [1. 1.]
        [1. 1. 1.]
    """
    return SizeVar(name, _size_dtype(name, dtype), False)


def size_var(name: str = "size", dtype: str = "int32") -> SizeVar:
    """As `var`, with the promise that it is not negative (a call checks it).

    Example:
        >>> n = te.size_var("n")
        >>> A = te.placeholder((n,), name="A")
        >>> B = te.compute((n,), lambda i: A[i] + 1, name="B")
        >>> print(lw.lower(te.create_schedule(B.op), [A, B]))
        def main(A: float32[n], B: out float32[n], n: int32):
          for i in range(n):
            B[i] = A[i] + 1.0
    """
    return SizeVar(name, _size_dtype(name, dtype), True)


def _size_dtype(name: str, dtype: str) -> str:
    if dtype not in ("int32", "int64"):
        raise TensorError(
            f"var {name!r}: size variables are int32 or int64, got {dtype}; pass other numbers as "
            "a tensor of shape ()"
        )
    return dtype
