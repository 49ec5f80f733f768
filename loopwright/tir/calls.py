"""Calls by name: TVM's ``call_pure_extern`` and ``call_intrin``, where a function of ours is meant.

The functions of C's mathematics and TVM's own ones are those of `loopwright.te`, which have one
definition and one bound of their error on every target. Nothing else can be called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loopwright import dtypes, te
from loopwright.errors import TensorError, did_you_mean
from loopwright.ir.expr import Expr, ExprLike, as_expr, cast

Function = Callable[..., Expr]

#: C's functions of doubles; those of floats have an ``f`` behind. ``round`` is not among them: C
#: rounds ties away from zero.
_C: dict[str, Function] = {
    "atan": te.atan, "ceil": te.ceil, "cos": te.cos, "cosh": te.cosh, "erf": te.erf,
    "exp": te.exp, "exp2": te.exp2, "expm1": te.expm1, "fabs": te.abs, "floor": te.floor,
    "fma": te.fma, "fmod": te.fmod, "log": te.log, "log10": te.log10, "log1p": te.log1p,
    "log2": te.log2, "nearbyint": te.round, "pow": te.power, "rint": te.round, "sin": te.sin,
    "sinh": te.sinh, "sqrt": te.sqrt, "tan": te.tan, "tanh": te.tanh, "trunc": te.trunc,
}  # fmt: skip
#: TVM's functions of floats.
_TIR: dict[str, Function] = {f"tir.{name}": f for name, f in _C.items() if name != "rint"}
_TIR |= {
    "tir.abs": te.abs, "tir.round": te.round, "tir.rsqrt": te.rsqrt, "tir.sigmoid": te.sigmoid,
}  # fmt: skip
#: Numbers of arguments of functions that take more than one.
_ARGUMENTS: dict[Function, int] = {te.fma: 3, te.fmod: 2, te.power: 2}


def call_pure_extern(dtype: str, func_name: str, *args: ExprLike) -> Expr:
    """A function of C's mathematics, such as ``expf``: that of `loopwright.te` in its place.

    Args:
        dtype: type of the result.
        func_name: C's name. Functions of doubles are computed in float64, those with ``f`` behind
            in float32.
        args: their arguments, which are converted to that type.

    Raises:
        TensorError: it is no such function, or has another number of arguments: code of other
            languages cannot be called.

    Example:
        >>> from loopwright import te, tir
        >>> A = te.placeholder((4,), name="A")
        >>> print(tir.call_pure_extern("float32", "expf", A[0]))
        exp(A[0])
    """
    floats = {f"{name}f": function for name, function in _C.items()}
    function = _find("call_pure_extern", func_name, {**floats, **_C})
    operands = "float32" if func_name in floats else "float64"
    return _call(function, func_name, dtype, [cast(as_expr(x), operands) for x in args])


def call_intrin(dtype: str, func_name: str, *args: ExprLike) -> Expr:
    """A function of TVM by its full name, such as ``"tir.exp"``: that of `loopwright.te`.

    Args:
        dtype: type of the result.
        func_name: the name.
        args: its arguments.

    Raises:
        TensorError: it is no function of floats, or has another number of arguments. An intrinsic
            of one's own is a function of Python; instructions are those of `te.call_intrin`.

    Example:
        >>> from loopwright import te, tir
        >>> A = te.placeholder((4,), name="A")
        >>> print(tir.call_intrin("float32", "tir.tanh", A[0]))
        tanh(A[0])
    """
    return _call(_find("call_intrin", func_name, _TIR), func_name, dtype, args)


def _find(verb: str, name: str, known: Mapping[str, Function]) -> Function:
    if name in known:
        return known[name]
    raise TensorError(
        f"tir.{verb}: there is no {name!r}{did_you_mean(str(name), known)}; write what it computes "
        "with the functions of te (code of other languages cannot be called, since a trace has to "
        f"be complete); known: {', '.join(sorted(known))}"
    )


def _call(function: Function, name: str, dtype: str, args: Sequence[ExprLike]) -> Expr:
    wanted = _ARGUMENTS.get(function, 1)
    if len(args) != wanted:
        raise TensorError(f"tir: {name!r} takes {wanted} argument(s), got {len(args)}")
    return cast(function(*args), dtypes.check(dtype))
