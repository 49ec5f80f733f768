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

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> print(te.select(A[0] > 0, A[0], 0.0))
        select(A[0] > 0.0, A[0], 0.0)
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
    """True where every condition holds.

    Example:
        >>> i = te.var("i")
        >>> print(te.all(i > 1, i < 4))
        i > 1 and i < 4
    """
    return logical("and", conds)


def any(*conds: ir.ExprLike) -> ir.Expr:
    """True where at least one condition holds.

    Example:
        >>> i = te.var("i")
        >>> print(te.any(i < 1, i > 4))
        i < 1 or i > 4
    """
    return logical("or", conds)


def logical_not(cond: ir.ExprLike) -> ir.Expr:
    """Negation of a condition.

    Example:
        >>> i = te.var("i")
        >>> print(te.logical_not(i < 4))
        not (i < 4)
    """
    return ir.Unary("not", condition(cond, "te.logical_not"), "bool")


def _operation(
    fn: str, op: str, doc: str, example: str, result: str
) -> Callable[[ir.ExprLike, ir.ExprLike], ir.Expr]:
    def f(a: ir.ExprLike, b: ir.ExprLike) -> ir.Expr:
        return ir.binary(op, a, b)

    f.__name__ = f.__qualname__ = fn
    f.__doc__ = f"{doc}\n\nExample:\n    >>> print(te.{fn}({example}))\n    {result}\n"
    return f


equal = _operation("equal", "==", "The expression ``a == b``.", 'te.var("i"), 4', "i == 4")
not_equal = _operation("not_equal", "!=", "The expression ``a != b``.", 'te.var("i"), 4', "i != 4")
floordiv = _operation(
    "floordiv", "//", "Integer division rounded towards minus infinity.", "te.const(-7), 2", "-4"
)
floormod = _operation(
    "floormod", "%", "Remainder of `floordiv`; it has the sign of ``b``.", "te.const(-7), 2", "1"
)
indexdiv = _operation(
    "indexdiv", "//", "`floordiv`, by the name that TE has for indices.", 'te.var("i"), 4', "i // 4"
)
indexmod = _operation(
    "indexmod", "%", "`floormod`, by the name that TE has for indices.", 'te.var("i"), 4', "i % 4"
)
truncdiv = _operation(
    "truncdiv", "tdiv", "Integer division towards zero: -3 here.", "te.const(-7), 2", "tdiv(-7, 2)"
)
truncmod = _operation(
    "truncmod",
    "tmod",
    "Remainder of `truncdiv`, with the sign of ``a``: -1 here.",
    "te.const(-7), 2",
    "tmod(-7, 2)",
)
bitwise_and = _operation("bitwise_and", "&", "``a & b`` of integers.", "te.const(6), 3", "2")
bitwise_or = _operation("bitwise_or", "|", "``a | b`` of integers.", "te.const(6), 3", "7")
bitwise_xor = _operation("bitwise_xor", "^", "``a ^ b`` of integers.", "te.const(6), 3", "5")
shift_left = _operation(
    "shift_left",
    "<<",
    "``a << b``; the amount counts modulo the width of the operands.",
    "te.const(7), 1",
    "14",
)
shift_right = _operation(
    "shift_right",
    ">>",
    "``a >> b``, which copies the sign of signed integers; the amount as in `shift_left`.",
    "te.const(-7), 1",
    "-4",
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

    Example:
        >>> A = te.placeholder((2,), name="A")
        >>> print(te.isnan(A[0]))
        A[0] != A[0]
    """
    e = _number("isnan", x)
    return ir.binary("!=", e, e) if dtypes.is_float(e.dtype) else const(False)


def isinf(x: ir.ExprLike) -> ir.Expr:
    """True where x is infinite, of either sign; never for integers. Otherwise as `isnan`.

    Example:
        >>> A = te.placeholder((2,), name="A")
        >>> print(te.isinf(A[0]))
        abs(A[0]) == inf
    """
    e = _number("isinf", x)
    if not dtypes.is_float(e.dtype):
        return const(False)
    return ir.binary("==", call("abs", e), const(math.inf, e.dtype))


def isfinite(x: ir.ExprLike) -> ir.Expr:
    """True where x is neither infinite nor NaN; always for integers. See `isnan`.

    Example:
        >>> A = te.placeholder((3,), name="A")
        >>> print(te.isfinite(A[0]))
        not (A[0] != A[0] or abs(A[0]) == inf)
    """
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

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> print(te.call("exp", A[0]))
        exp(A[0])
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
    """``~a`` of an integer.

    Example:
        >>> A = te.placeholder((4,), "int32", name="A")
        >>> print(te.bitwise_not(A[0]))
        ~A[0]
    """
    return ir.invert(a)


def fma(a: ir.ExprLike, b: ir.ExprLike, c: ir.ExprLike) -> ir.Expr:
    """``a * b + c`` of floats, rounded once; integers become float32 first, bool is a TensorError.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> print(te.fma(A[0], A[1], A[2]))
        fma(A[0], A[1], A[2])
    """
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

    Example:
        >>> A = te.placeholder((1,), name="A")
        >>> print(te.reinterpret("int32", A[0]).dtype)
        int32
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
#: The end of a docstring: a function of one number, tried on some.
_EXAMPLE = """

Example:
    >>> x = te.placeholder(({n},), name="x")
    >>> y = te.compute(({n},), lambda i: te.{fn}(x[i]{more}), name="y")
    >>> f = lw.build(te.create_schedule(y.op), [x, y])
    >>> out = np.empty({n}, "float32")
    >>> f(np.array([{numbers}], "float32"), out)
    >>> print(out.round(3))
    [{results}]
"""


def _with_example(fn: str, doc: str, numbers: str, results: str, more: str = "") -> str:
    n = len(numbers.split(","))
    return doc + _EXAMPLE.format(fn=fn, n=n, numbers=numbers, results=results, more=more)


def _unary(
    fn: str, doc: str, numbers: str, results: str, *, keeps_int: bool = False
) -> Callable[[ir.ExprLike], ir.Expr]:
    def f(x: ir.ExprLike) -> ir.Expr:
        e = ir.as_expr(x)
        return e if keeps_int and dtypes.is_int(e.dtype) else call(fn, e)

    f.__name__ = f.__qualname__ = fn
    f.__doc__ = _with_example(fn, doc, numbers, results)
    return f


def _rounding(fn: str, doc: str, results: str) -> Callable[[ir.ExprLike], ir.Expr]:
    stays = f"{doc} An integer stays as it is, with its dtype."
    return _unary(fn, stays, "-1.5, 0.5, 1.7", results, keeps_int=True)


exp = _unary("exp", "e to the power x; within 1.1 ulp.", "0, 1, 2", "1.    2.718 7.389")
exp2 = _unary("exp2", "2 to the power x; within 1.3 ulp.", "0, 1, 3", "1. 2. 8.")
expm1 = _unary(
    "expm1", "exp(x) - 1, accurate near 0; within 2.0 ulp.", "0, 1, 2", "0.    1.718 6.389"
)
log = _unary("log", "Natural logarithm; within 1.0 ulp.", "1, 2, 10", "0.    0.693 2.303")
log2 = _unary("log2", "Logarithm to base 2; within 1.0 ulp.", "1, 2, 10", "0.    1.    3.322")
log10 = _unary("log10", "Logarithm to base 10; within 1.0 ulp.", "1, 2, 10", "0.    0.301 1.   ")
log1p = _unary(
    "log1p", "log(1 + x), accurate near 0; within 1.0 ulp.", "0, 1, 9", "0.    0.693 2.303"
)
tanh = _unary("tanh", "Hyperbolic tangent; within 3.0 ulp.", "-1, 0, 1", "-0.762  0.     0.762")
sinh = _unary("sinh", "Hyperbolic sine; within 3.0 ulp.", "-1, 0, 1", "-1.175  0.     1.175")
cosh = _unary("cosh", "Hyperbolic cosine; within 2.0 ulp.", "-1, 0, 1", "1.543 1.    1.543")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)); within 2.5 ulp.", "-1, 0, 1", "0.269 0.5   0.731")
erf = _unary("erf", "Error function; within 1.5 ulp.", "-1, 0, 1", "-0.843  0.     0.843")
sqrt = _unary("sqrt", "Square root; NaN for negative x.", "1, 2, 9", "1.    1.414 3.   ")
rsqrt = _unary("rsqrt", "1 / sqrt(x); within 1.6 ulp.", "1, 2, 4", "1.    0.707 0.5  ")
sin = _unary("sin", "Sine of radians; within 1.6 ulp.", "0, 1, 2", "0.    0.841 0.909")
cos = _unary("cos", "Cosine of radians; within 1.6 ulp.", "0, 1, 2", " 1.     0.54  -0.416")
tan = _unary("tan", "Tangent of radians; within 3.2 ulp.", "0, 1, 2", " 0.     1.557 -2.185")
atan = _unary("atan", "Arc tangent in radians; within 2.0 ulp.", "-1, 0, 1", "-0.785  0.     0.785")
floor = _rounding("floor", "Largest integer value not above x.", "-2.  0.  1.")
ceil = _rounding("ceil", "Smallest integer value not below x.", "-1.  1.  2.")
round = _rounding("round", "Nearest integer value, ties to even.", "-2.  0.  2.")
nearbyint = round
trunc = _rounding("trunc", "x rounded towards zero.", "-1.  0.  1.")
abs = _unary("abs", "Absolute value.", "-1.5, 0, 1", "1.5 0.  1. ")


def power(x: ir.ExprLike, y: ir.ExprLike) -> ir.Expr:
    return call("pow", x, y)


def fmod(x: ir.ExprLike, y: ir.ExprLike) -> ir.Expr:
    return call("fmod", x, y)


power.__doc__ = _with_example(
    "power",
    """``x ** y``; within 1.4 ulp, float32 within 0.6.

Powers of integers are integers and wrap; a negative exponent gives 1 for x = 1, 1 or -1 for x = -1,
and 0 else.""",
    *("1, 2, 3", " 1.  8. 27.", ", 3.0"),
)
fmod.__doc__ = _with_example(
    "fmod", "Remainder of x / y with the sign of x, for floats.", "7.5, -7.5", " 1.5 -1.5", ", 3.0"
)
pow = power
