"""Functions of expressions: selection, logic, conversion, integer division and math intrinsics."""

from __future__ import annotations

import math
from collections.abc import Callable

from loopwright import dtypes
from loopwright.errors import TensorError, did_you_mean
from loopwright.ir import expr as ir


def condition(x: object, what: str) -> ir.Expr:
    """``x`` as a condition; a Python bool, which holds for every element alike, is refused."""
    if isinstance(x, bool):
        raise TensorError(
            f"{what}: the condition is the Python value {x} for every element; te.const({x}) is "
            "the constant, and for 'i in {a, b}' write te.any(i == a, i == b)"
        )
    e = ir.as_expr(x)
    if e.dtype != "bool":
        raise TensorError(f"{what}: the condition has dtype {e.dtype}; compare it, e.g. x != 0")
    return e


def logical(op: str, items: tuple[object, ...]) -> ir.Expr:
    """Fold ``and``/``or`` over conditions; needs at least one."""
    if not items:
        raise TensorError(f"te.{'all' if op == 'and' else 'any'}: expected at least one condition")
    conds = [condition(c, f"te.{'all' if op == 'and' else 'any'}") for c in items]
    out = conds[0]
    for c in conds[1:]:
        out = ir.Binary(op, out, c, "bool")
    return out


def const(value: ir.ExprLike, dtype: str | None = None) -> ir.Expr:
    """A literal; without ``dtype`` int32, float32 or bool, by the Python type.

    TensorError where ``value`` is no number, or the dtype is not supported.

    Example:
        >>> print(te.const(1), te.const(1).dtype, te.const(1, "float16").dtype)
        1 int32 float16
    """
    return ir.as_expr(value) if dtype is None else ir.cast(value, dtypes.check(dtype))


def select(cond: ir.ExprLike, true_value: ir.ExprLike, false_value: ir.ExprLike) -> ir.Expr:
    """``true_value`` where the condition holds, else the other; both are evaluated.

    So both must read inside their tensors, whatever the condition says.
    """
    a, b, dtype = ir.promote(true_value, false_value)
    return ir.Select(condition(cond, "te.select"), a, b, dtype)


def if_then_else(cond: ir.ExprLike, true_value: ir.ExprLike, false_value: ir.ExprLike) -> ir.Expr:
    """``true_value`` where the condition holds, else the other; only that one is evaluated.

    It guards reads outside of a tensor, as padding needs it.

    Example:
        >>> A = te.placeholder((3,), name="A")
        >>> def padded(i):
        ...     return te.if_then_else(te.all(i >= 1, i < 4), A[i - 1], 0.0)
        ...
        >>> P = te.compute((5,), padded, name="P")
        >>> f = lw.build(te.create_schedule(P.op), [A, P])
        >>> p = np.empty(5, "float32")
        >>> f(np.ones(3, "float32"), p)
        >>> print(p)
        [0. 1. 1. 1. 0.]
    """
    a, b, dtype = ir.promote(true_value, false_value)
    return ir.IfThenElse(condition(cond, "te.if_then_else"), a, b, dtype)


def all(*conds: ir.ExprLike) -> ir.Expr:
    """True where every condition holds."""
    return logical("and", conds)


def any(*conds: ir.ExprLike) -> ir.Expr:
    """True where at least one condition holds."""
    return logical("or", conds)


def logical_not(cond: ir.ExprLike) -> ir.Expr:
    """Negation of a condition."""
    return ir.Unary("not", condition(cond, "te.logical_not"), "bool")


def _operation(fn: str, op: str, doc: str) -> Callable[[ir.ExprLike, ir.ExprLike], ir.Expr]:
    def f(a: ir.ExprLike, b: ir.ExprLike) -> ir.Expr:
        return ir.binary(op, a, b)

    f.__name__ = f.__qualname__ = fn
    f.__doc__ = doc
    return f


equal = _operation("equal", "==", "The expression ``a == b``.")
not_equal = _operation("not_equal", "!=", "The expression ``a != b``.")
maximum = _operation("maximum", "max", "The larger of two values; NaN where either is NaN.")
minimum = _operation("minimum", "min", "The smaller of two values; NaN where either is NaN.")
floordiv = _operation(
    "floordiv", "//", "Integer division rounded towards minus infinity: -4 of -7 by 2."
)
floormod = _operation("floormod", "%", "Remainder of `floordiv`; it has the sign of ``b``.")
indexdiv = _operation("indexdiv", "//", "`floordiv`, by the name that TE has for indices.")
indexmod = _operation("indexmod", "%", "`floormod`, by the name that TE has for indices.")
truncdiv = _operation("truncdiv", "tdiv", "Integer division towards zero: -3 of -7 by 2.")
truncmod = _operation("truncmod", "tmod", "Remainder of `truncdiv`, with the sign of ``a``.")
bitwise_and = _operation("bitwise_and", "&", "``a & b`` of integers.")
bitwise_or = _operation("bitwise_or", "|", "``a | b`` of integers.")
bitwise_xor = _operation("bitwise_xor", "^", "``a ^ b`` of integers.")
shift_left = _operation(
    "shift_left", "<<", "``a << b``; the amount counts modulo the width of the operands."
)
shift_right = _operation(
    "shift_right",
    ">>",
    "``a >> b``, which copies the sign of signed integers; the amount as in `shift_left`.",
)


def div(a: ir.ExprLike, b: ir.ExprLike) -> ir.Expr:
    """Division as in C: of floats exact up to rounding, of integers `truncdiv`.

    Example:
        >>> a = te.placeholder((4,), "float32", name="a")
        >>> n = te.placeholder((4,), "int32", name="n")
        >>> print(te.div(a[0], 2), "and", te.div(n[0], 2))
        a[0] / 2.0 and tdiv(n[0], 2)
    """
    return ir.binary("/" if dtypes.is_float(ir.promote(a, b)[2]) else "tdiv", a, b)


def isnan(x: ir.ExprLike) -> ir.Expr:
    """True where x is not a number; never for integers.

    Not to be relied on under the target's ``-fastmath``, which assumes that there are none. A bool
    is a TensorError.
    """
    e = _number("isnan", x)
    return ir.binary("!=", e, e) if dtypes.is_float(e.dtype) else const(False)


def isinf(x: ir.ExprLike) -> ir.Expr:
    """True where x is infinite, of either sign; never for integers. Otherwise as `isnan`."""
    e = _number("isinf", x)
    if not dtypes.is_float(e.dtype):
        return const(False)
    return ir.binary("==", call("abs", e), const(math.inf, e.dtype))


def isfinite(x: ir.ExprLike) -> ir.Expr:
    """True where x is neither infinite nor NaN; always for integers. See `isnan`."""
    e = _number("isfinite", x)
    if not dtypes.is_float(e.dtype):
        return const(True)
    return logical_not(any(isnan(e), isinf(e)))


def _number(fn: str, x: ir.ExprLike) -> ir.Expr:
    e = ir.as_expr(x)
    if e.dtype == "bool":
        raise TensorError(f"te.{fn} of bool: cast the operand first")
    return e


def call(fn: str, *args: ir.ExprLike) -> ir.Expr:
    """Call an intrinsic of `loopwright.ir.expr.INTRINSICS` by name.

    Integers are converted to float32 first, except for ``abs`` and ``pow``.

    Raises:
        TensorError: the name is unknown, or an operand is of dtype bool.
    """
    if fn not in ir.INTRINSICS:
        raise TensorError(
            f"unknown intrinsic {fn!r}{did_you_mean(fn, ir.INTRINSICS)}; "
            f"known: {', '.join(ir.INTRINSICS)}"
        )
    es = [ir.as_expr(a) for a in args]
    if len(es) == 2:
        first, second, _ = ir.promote(*args)
        es = [first, second]
    if es[0].dtype == "bool":
        raise TensorError(f"te.{fn} of bool: cast the operand first")
    if fn == "abs" and dtypes.is_unsigned(es[0].dtype):
        return es[0]
    if not dtypes.is_float(es[0].dtype) and fn not in ("abs", "pow"):
        es = [ir.cast(e, "float32") for e in es]
    return ir.Call(fn, tuple(es), es[0].dtype)


def bitwise_not(a: ir.ExprLike) -> ir.Expr:
    """``~a`` of an integer."""
    return ir.invert(a)


def fma(a: ir.ExprLike, b: ir.ExprLike, c: ir.ExprLike) -> ir.Expr:
    """``a * b + c`` of floats, rounded once; integers become float32, bool is a TensorError."""
    x, y, _ = ir.promote(a, b)
    x, z, _ = ir.promote(x, c)
    y, z, dtype = ir.promote(y, z)
    if dtype == "bool":
        raise TensorError("te.fma of bool: cast the operands first")
    dtype = dtype if dtypes.is_float(dtype) else "float32"
    return ir.Call("fma", (ir.cast(x, dtype), ir.cast(y, dtype), ir.cast(z, dtype)), dtype)


def reinterpret(dtype: str, x: ir.ExprLike) -> ir.Expr:
    """The bits of ``x`` as another dtype of the same width, as TE writes it: dtype first.

    Raises:
        TensorError: the widths differ, or one side is bool.
    """
    e, to = ir.as_expr(x), dtypes.check(dtype)
    if e.dtype == to:
        return e
    if "bool" in (e.dtype, to) or dtypes.bits(e.dtype) != dtypes.bits(to):
        raise TensorError(
            f"te.reinterpret: {e.dtype} has {dtypes.bits(e.dtype)} bits and {to} has "
            f"{dtypes.bits(to)}; it needs two number types of one width (cast converts values)"
        )
    return ir.Call("reinterpret", (e,), to)


# Errors are in units in the last place of float32 and float64: docs/math.md, with special values.
def _unary(fn: str, doc: str, *, keeps_int: bool = False) -> Callable[[ir.ExprLike], ir.Expr]:
    def f(x: ir.ExprLike) -> ir.Expr:
        e = ir.as_expr(x)
        return e if keeps_int and dtypes.is_int(e.dtype) else call(fn, e)

    f.__name__ = f.__qualname__ = fn
    f.__doc__ = doc
    return f


def _rounding(fn: str, doc: str) -> Callable[[ir.ExprLike], ir.Expr]:
    return _unary(fn, f"{doc} An integer stays as it is, with its dtype.", keeps_int=True)


exp = _unary("exp", "e to the power x; within 1.1 ulp.")
exp2 = _unary("exp2", "2 to the power x; within 1.3 ulp.")
expm1 = _unary("expm1", "exp(x) - 1, accurate near 0; within 2.0 ulp.")
log = _unary("log", "Natural logarithm; within 1.0 ulp.")
log2 = _unary("log2", "Logarithm to base 2; within 1.0 ulp.")
log10 = _unary("log10", "Logarithm to base 10; within 1.0 ulp.")
log1p = _unary("log1p", "log(1 + x), accurate near 0; within 1.0 ulp.")
tanh = _unary("tanh", "Hyperbolic tangent; within 3.0 ulp.")
sinh = _unary("sinh", "Hyperbolic sine; within 3.0 ulp.")
cosh = _unary("cosh", "Hyperbolic cosine; within 2.0 ulp.")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)); within 2.5 ulp.")
erf = _unary("erf", "Error function; within 1.5 ulp.")
sqrt = _unary("sqrt", "Square root; NaN for negative x.")
rsqrt = _unary("rsqrt", "1 / sqrt(x); within 1.6 ulp.")
sin = _unary("sin", "Sine of radians; within 1.6 ulp.")
cos = _unary("cos", "Cosine of radians; within 1.6 ulp.")
tan = _unary("tan", "Tangent of radians; within 3.2 ulp.")
atan = _unary("atan", "Arc tangent in radians; within 2.0 ulp.")
floor = _rounding("floor", "Largest integer value not above x.")
ceil = _rounding("ceil", "Smallest integer value not below x.")
round = _rounding("round", "Nearest integer value, ties to even.")
nearbyint = round
trunc = _rounding("trunc", "x rounded towards zero.")
abs = _unary("abs", "Absolute value.")


def power(x: ir.ExprLike, y: ir.ExprLike) -> ir.Expr:
    """``x ** y``; within 1.4 ulp, float32 within 0.6.

    Powers of integers are integers and wrap; a negative exponent gives 1 for x = 1, 1 or -1 for
    x = -1, and 0 else.
    """
    return call("pow", x, y)


def fmod(x: ir.ExprLike, y: ir.ExprLike) -> ir.Expr:
    """Remainder of x / y with the sign of x, for floats."""
    return call("fmod", x, y)


pow = power
