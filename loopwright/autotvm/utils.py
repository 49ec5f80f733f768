"""``autotvm.utils``: integers from shapes, as AutoTVM's templates ask for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from loopwright.errors import TensorError, no_such_name
from loopwright.ir.expr import Const, Expr

__all__ = ["get_const_int", "get_const_tuple"]

_INSTEAD = {
    "get_func_name": "write function.__name__",
    "get_rank": "numpy.argsort twice gives ranks",
    "pool_map": "concurrent.futures of Python has it",
    "sample_ints": "task.config_space.sample_ints(m, seed) draws valid indices",
}


def get_const_int(expr: int | Expr) -> int:
    """An extent as an integer.

    Args:
        expr: a number, or a literal expression. Extents of tensors are Python integers already.

    Raises:
        TensorError: it is not an integer, or depends on a variable.

    Example:
        >>> from loopwright import autotvm
        >>> A = te.placeholder((4, 8), name="A")
        >>> autotvm.utils.get_const_int(A.shape[1])
        8
    """
    value = expr.value if isinstance(expr, Const) else expr
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TensorError(f"get_const_int: {expr!r} is no number; only fixed extents are known here")


def get_const_tuple(in_tuple: Iterable[int | Expr]) -> tuple[int, ...]:
    """A shape as a tuple of integers.

    Raises:
        TensorError: an extent depends on a variable.

    Example:
        >>> from loopwright import autotvm
        >>> A = te.placeholder((4, 8), name="A")
        >>> autotvm.utils.get_const_tuple(A.shape)
        (4, 8)
    """
    return tuple(get_const_int(extent) for extent in in_tuple)


def __getattr__(name: str) -> NoReturn:
    raise no_such_name("loopwright.autotvm.utils", name, _INSTEAD)
