"""Expressions, shared by tensor expressions and the loop IR."""

from __future__ import annotations

# `Read` names a tensor (te) or a stage (schedule); lowering turns it into the load of a buffer.
#
# ``a == b`` is an expression. Its ``bool`` is the structural truth, for programs that look at
# expressions; in a function that describes a program (`tracing`) it is refused where it is not
# decided. In dictionaries and sets every node is a key of its own. Passes compare by
# `loopwright.ir.node.same`, which builds nothing.
#
# NaN: ``max`` and ``min`` give NaN when either operand is NaN (as ``numpy.maximum``), everywhere.
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from functools import reduce as fold
from inspect import signature
from numbers import Number
from typing import Any, NoReturn, Union

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.ir.kinds import IterVarKind
from loopwright.ir.node import Node, distinct, node, same

# ---------------------------------------------------------------- operations and functions

COMPARE = ("==", "!=", "<", "<=", ">", ">=")
#: They use the amount modulo the width (``x << 33`` of an int32 is ``x << 1``), as the instructions
#: of CPUs do, so every amount has a meaning. ``>>`` of a signed integer copies the sign.
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


#: Operands of arithmetic.
ExprLike = Union[
    "Expr", "IterVar", int, float, bool, "np.integer[Any]", "np.floating[Any]", np.bool_
]
#: An extent in the loop IR: a number, or an expression over size variables.
Dim = Union[int, "Expr"]

_Method = Callable[["ExprOps", ExprLike], "Expr"]

#: Name of what a function of the user's describes just now; empty while none is called.
_traced: ContextVar[str] = ContextVar("what is traced", default="")


@contextmanager
def tracing(what: str) -> Iterator[None]:
    """While a function describes ``what``, a condition that is not decided has no truth value."""
    outer = _traced.get()
    token = _traced.set(f"{outer}, {what}" if outer else what)
    try:
        yield
    finally:
        _traced.reset(token)


def _operators(op: str) -> tuple[_Method, _Method]:
    """The method of an operator, and the one that Python calls for the operand on the right."""

    def method(a: ExprOps, b: ExprLike) -> Expr:
        # A whole tensor makes a tensor of both.
        return NotImplemented if isinstance(b, NDArrayOperatorsMixin) else binary(op, a, b)

    return method, lambda a, b: binary(op, b, a)


def traced() -> str:
    """Name of what is being described (`tracing`); empty outside of that."""
    return _traced.get()


#: What NumPy's functions, and ``**``, make of expressions: Python's operators, and what
#: `loopwright.te.ufuncs` adds.
NUMPY: dict[Callable[..., Any], Callable[..., Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.left_shift: operator.lshift,
    np.right_shift: operator.rshift,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.invert: operator.inv,
    np.negative: operator.neg,
    np.positive: operator.pos,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
}


#: Python's operators, to which a scalar of NumPy is a plain number, as an array's elements are.
_PYTHONS = frozenset(NUMPY.values())


def _of_plain(function: Callable[..., Any], *operands: Any) -> Any:
    return function(*(x.item() if isinstance(x, np.generic) else x for x in operands))


def counterpart(functions: Mapping[Callable[..., Any], Any], numpy: Callable[..., Any]) -> Any:
    """Find what stands for a function of NumPy; TensorError where nothing does."""
    if numpy not in functions:
        raise TensorError(
            f"np.{numpy.__name__} has no counterpart for tensor expressions; write te.compute with "
            "functions of te, and with te.sum and the like for a reduction"
        )
    return functions[numpy]


def check_call(ufunc: np.ufunc, method: str, options: Mapping[str, object]) -> None:
    """Refuse what a function of NumPy cannot do with expressions."""
    if method != "__call__":
        raise TensorError(
            f"np.{ufunc.__name__}.{method} of a tensor expression: write te.compute, with te.sum "
            "and the like for a reduction"
        )
    if asked := ", ".join(f"{name}=" for name, x in options.items() if x is not None):
        raise TensorError(f"np.{ufunc.__name__} of a tensor expression does not take {asked}")


def call_counterpart(
    function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """The counterpart of a function of NumPy that is none of its ufuncs, called."""
    found, given = counterpart(NUMPY, function), {k: x for k, x in options.items() if x is not None}
    try:
        signature(found).bind(*args, **given)
    except TypeError as e:
        raise TensorError(f"np.{function.__name__} of a tensor expression: {e}") from e
    return found(*args, **given)


def no_value(x: object) -> NoReturn:
    """Say that ``math.sqrt``, ``float`` and the like want a number."""
    text = repr(x) if len(repr(x)) <= 80 else f"{repr(x)[:77]}..."
    raise TensorError(
        f"{text} is no number yet, as math.sqrt, math.exp, float and int want one; use te.sqrt, "
        "te.exp and their like, or np.sqrt, and .astype(dtype) to convert"
    )


def _object_array(x: object) -> np.ndarray[Any, Any]:
    """An array of objects; numbers of NumPy stay what they are."""
    array = np.empty(np.shape(x) if isinstance(x, np.ndarray) else (), object)
    for at in np.ndindex(array.shape):
        array[at] = x[at] if isinstance(x, np.ndarray) else x
    return array


class ExprOps:
    __slots__ = ()

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *operands: Any, **options: object
    ) -> Any:
        if any(isinstance(x, NDArrayOperatorsMixin) for x in operands):
            return NotImplemented  # a whole tensor
        function: Any = NUMPY.get(ufunc)
        if function in _PYTHONS and (method != "__call__" or options):
            try:  # with objects, as NumPy has it
                objects = [_object_array(x) if isinstance(x, ExprOps) else x for x in operands]
                return getattr(ufunc, method)(*objects, **options)
            except TypeError:
                pass
        check_call(ufunc, method, options)
        function = counterpart(NUMPY, ufunc)
        each = partial(_of_plain, function) if function in _PYTHONS else function
        if any(isinstance(x, np.ndarray) and x.ndim for x in operands):
            each = np.frompyfunc(each, ufunc.nin, ufunc.nout)
            return each(*(_object_array(x) for x in operands))
        return each(*(x[()] if isinstance(x, np.ndarray) else x for x in operands))

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, options: Mapping[str, Any]
    ) -> Any:
        if any(issubclass(t, NDArrayOperatorsMixin) for t in types):
            return NotImplemented
        if function in NUMPY:
            return call_counterpart(function, args, options)
        own: Any = function
        try:
            return own._implementation(*args, **options)
        except (AttributeError, TypeError, ValueError):
            return counterpart(NUMPY, function)  # says that there is none

    __add__, __radd__ = _operators("+")
    __sub__, __rsub__ = _operators("-")
    __mul__, __rmul__ = _operators("*")
    __truediv__, __rtruediv__ = _operators("/")
    __floordiv__, __rfloordiv__ = _operators("//")
    __mod__, __rmod__ = _operators("%")
    __lshift__, __rlshift__ = _operators("<<")
    __rshift__, __rrshift__ = _operators(">>")
    __and__, __rand__ = _operators("&")
    __or__, __ror__ = _operators("|")
    __xor__, __rxor__ = _operators("^")

    def __pow__(self, exponent: ExprLike) -> Expr:
        power: Expr = NUMPY[operator.pow](self, exponent)
        return power

    def __rpow__(self, base: ExprLike) -> Expr:
        power: Expr = NUMPY[operator.pow](base, self)
        return power

    def __divmod__(self, divisor: ExprLike) -> tuple[Expr, Expr]:
        return self // divisor, self % divisor

    def __rdivmod__(self, dividend: ExprLike) -> tuple[Expr, Expr]:
        return dividend // self, dividend % self

    def __invert__(self) -> Expr:
        return invert(self)

    def __pos__(self) -> Expr:
        return as_expr(self)

    def __abs__(self) -> Expr:
        size: Expr = NUMPY[np.absolute](self)
        return size

    def __round__(self, ndigits: None = None) -> Expr:
        if ndigits is not None:
            raise TensorError(f"round(x, {ndigits}): expressions are rounded to whole numbers")
        nearest: Expr = np.rint(self)
        return nearest

    def __neg__(self) -> Expr:
        e = as_expr(self)
        if e.dtype == "bool":
            raise TensorError("'-' on a bool operand: cast it to an integer type first")
        return const(-e.value, e.dtype) if isinstance(e, Const) else Unary("-", e, e.dtype)

    def __float__(self) -> float:
        return float(self.value) if isinstance(self, Const) else no_value(self)

    def __int__(self) -> int:
        return int(self.value) if isinstance(self, Const) else no_value(self)

    __lt__ = _operators("<")[0]
    __le__ = _operators("<=")[0]
    __gt__ = _operators(">")[0]
    __ge__ = _operators(">=")[0]

    def __eq__(self, o: object) -> Any:
        return _equality("==", self, o)

    def __ne__(self, o: object) -> Any:
        return _equality("!=", self, o)

    # Written in C: compilers live in dictionaries of variables.
    __hash__ = object.__hash__

    def equal(self, o: ExprLike) -> Expr:
        """The expression ``self == o``."""
        return binary("==", self, o)

    def __bool__(self) -> bool:
        e, described = as_expr(self), traced()
        truth = _truth(e, bool(described))
        if truth is not None:
            return truth
        text = repr(e) if len(repr(e)) <= 80 else f"{repr(e)[:77]}..."
        who = f"{described}: " if described else ""
        raise TensorError(
            f"{who}{text} has no truth value while a program is being described; write "
            "te.if_then_else or te.select for if, ?: and while, te.all, te.any and te.logical_not "
            "for and, or, not, in and a < b < c, te.min and te.max for min, max"
        )

    def astype(self, dtype: str) -> Expr:
        """Convert to another dtype; floats truncate towards zero when they become integers."""
        return cast(self, dtype)


class Expr(ExprOps, Node):
    """Base class of expressions; every expression has a ``dtype``.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> e = A[0] * 2 + te.exp(A[1])
        >>> print(e, "is", e.dtype)
        A[0] * 2.0 + exp(A[1]) is float32
    """

    __slots__ = ()
    dtype: str


@node
class Var(Expr):
    """A scalar variable. Two variables are equal only when they are one object.

    Example:
        >>> n = te.var("n")
        >>> print(n.name, n.dtype, n * 4 + 1)
        n int32 n * 4 + 1
    """

    _unique = True
    name: str
    dtype: str = "int32"


@node
class Const(Expr):
    """A literal; ``value`` is a bool, an int or, rounded to its dtype, a float of Python."""

    value: Any
    dtype: str


@node
class Cast(Expr):
    value: Expr
    dtype: str


@node
class Unary(Expr):
    """``-a``, ``~a`` (all bits flipped) or ``not a``."""

    op: str
    a: Expr
    dtype: str


@node
class Binary(Expr):
    """Operation on values of one dtype; ``//`` and ``%`` round down, ``tdiv`` and ``tmod`` to 0."""

    op: str
    a: Expr
    b: Expr
    dtype: str


@node
class Select(Expr):
    """Choice between two values, both of which are evaluated."""

    cond: Expr
    a: Expr
    b: Expr
    dtype: str


@node
class IfThenElse(Expr):
    """Choice between two values; only the one taken touches memory."""

    cond: Expr
    a: Expr
    b: Expr
    dtype: str


@node
class Call(Expr):
    """A pure function from `FUNCTIONS`."""

    fn: str
    args: tuple[Expr, ...]
    dtype: str


@node
class Read(Expr):
    """Element of ``source``: a tensor (te), the index of an operation in a DAG, or a stage with
    ``value_index`` for its output (schedule)."""

    source: Any
    indices: tuple[Expr, ...]
    dtype: str
    value_index: int = 0


class IterVar(ExprOps):
    """A loop axis: a variable, its extent (it starts at 0) and its kind.

    Attributes:
        var: the variable that stands for the axis in expressions.
        extent: number of iterations: an int, or an expression over size variables.
        kind: ``"spatial"`` or ``"reduce"`` (TE: DataPar, CommReduce), or ``"thread"``.
        thread_tag: ``"threadIdx.x"`` and the like for thread axes, else ``""``.

    Example:
        >>> k = te.reduce_axis((0, 8), name="k")
        >>> print(k, k.extent, k.var.name)
        IterVar(k, extent=8, reduce) 8 k
    """

    __slots__ = ("extent", "kind", "thread_tag", "var")

    def __init__(self, var: Var, extent: Dim, kind: IterVarKind, thread_tag: str = "") -> None:
        self.var, self.extent, self.kind, self.thread_tag = var, extent, kind, thread_tag

    @classmethod
    def named(cls, name: str, extent: Dim, kind: IterVarKind) -> IterVar:
        """An axis with a variable of its own: an int32, or an int64 where the axis is too long."""
        long = isinstance(extent, int) and extent > 1 << 31
        return cls(Var(name, "int64" if long else "int32"), extent, kind)

    @property
    def name(self) -> str:
        """Name of the variable."""
        return self.var.name

    @property
    def count(self) -> int:
        """The extent as a number; only of an axis whose extent does not depend on sizes."""
        assert isinstance(self.extent, int)
        return self.extent

    @property
    def dom(self) -> Range:
        """The domain as TE spells it: ``axis.dom.extent``."""
        return Range(0, self.extent)

    def __repr__(self) -> str:
        return f"IterVar({self.name}, extent={self.extent}, {self.kind})"


def position_of(axis: IterVar, axes: Sequence[IterVar]) -> int:
    """Index of an axis among others; ``axes.index`` would make expressions to compare."""
    return next(n for n, x in enumerate(axes) if x is axis)


class Range:
    __slots__ = ("extent", "min")

    def __init__(self, min_: int, extent: Dim) -> None:
        self.min, self.extent = min_, extent


# ---------------------------------------------------------------- equality


_OPERANDS = (ExprOps, int, float, np.number, np.bool_)


def _equality(op: str, a: ExprOps, b: object) -> Any:
    # A tensor, an array or a fraction in a program is a mistake, which `as_expr` names.
    if isinstance(b, _OPERANDS) or (traced() and (hasattr(b, "dtype") or isinstance(b, Number))):
        return binary(op, a, b)  # type: ignore[arg-type]
    return NotImplemented


def _truth(e: Expr, described: bool) -> bool | None:
    """Truth of a condition, as far as constants and equal operands decide it."""
    # Other operands of ``==`` and ``!=`` differ, unless a program is being ``described``: there a
    # float is not known to equal itself, as NaN does not.
    match e:
        case Const(value=v):
            return bool(v)
        case Unary(op="not", a=a):
            truth = _truth(a, described)
            return None if truth is None else not truth
        case Binary(op="and" | "or" as op, a=a, b=b):
            sides = (_truth(a, described), _truth(b, described))
            decisive = op == "or"
            return decisive if decisive in sides else None if None in sides else not decisive
        case Binary(op=op, a=Const(value=x), b=Const(value=y)) if op in COMPARE:
            return bool(FOLD[op](x, y))
        case Binary(op="==" | "!=" as op, a=a, b=b):
            if a.dtype == "bool":
                p, q = _truth(a, described), _truth(b, described)
                if p is not None and q is not None:
                    return (p == q) == (op == "==")
            alike = same(a, b)
            if described and (not alike or dtypes.is_float(a.dtype)):
                return None
            return alike == (op == "==")
    return None


# ---------------------------------------------------------------- construction


def const(value: float | bool, dtype: str) -> Const:
    """A literal of the given dtype; integers wrap as they do in memory, floats are rounded."""
    if dtype == "bool":
        return Const(bool(value), dtype)
    if dtypes.is_float(dtype):
        try:
            return Const(float(np.dtype(dtypes.check(dtype)).type(float(value))), dtype)
        except OverflowError as e:
            raise TensorError(f"a number of {len(str(abs(value)))} digits is no {dtype}") from e
    lo, hi = dtypes.limits(dtype)
    v = int(value)
    if not lo <= v <= hi:
        v = (v - int(lo)) % (int(hi) - int(lo) + 1) + int(lo)
    return Const(v, dtype)


def _wide(x: int) -> str:
    for dtype in ("int64", "uint64"):
        lo, hi = dtypes.limits(dtype)
        if lo <= x <= hi:
            return dtype
    raise TensorError(f"{x} fits no integer of 64 bits; te.const(x, dtype) makes it another")


def as_expr(x: object, dtype: str | None = None) -> Expr:
    """Turn a number (int32, or int64 or uint64 where it does not fit; float32), an axis or an
    expression into an expression."""
    if isinstance(x, Expr):
        return x
    if isinstance(x, IterVar):
        return x.var
    if isinstance(x, bool | np.bool_):
        return const(bool(x), dtype or "bool")
    if isinstance(x, int | np.integer):
        return const(int(x), dtype or ("int32" if -(2**31) <= x < 2**31 else _wide(int(x))))
    if isinstance(x, float | np.floating):
        return const(float(x), dtype or "float32")
    raise TensorError(
        f"cannot use {x!r} (a {type(x).__name__}) in a tensor expression; use a number, an axis, "
        "or an element of a tensor such as A[i, j]"
        + ("; np.maximum and its like take whole tensors" * isinstance(x, NDArrayOperatorsMixin))
    )


def cast(x: ExprLike | ExprOps, dtype: str) -> Expr:
    """Convert an expression to ``dtype``.

    A float that becomes an integer is truncated and cut to the limits of the dtype; NaN becomes 0.
    """
    # A number is rounded once, to the dtype that it becomes; an integer beyond int64 stays itself.
    if dtypes.is_float(dtypes.check(dtype)) and isinstance(x, int | float | np.integer):
        return const(x if isinstance(x, float) else int(x), dtypes.check(dtype))
    if isinstance(x, int) and not isinstance(x, bool) and dtypes.is_int(dtype):
        return const(x, dtype)
    e, dtype = as_expr(x, "float64" if isinstance(x, float) else None), dtypes.check(dtype)
    if e.dtype == dtype:
        return e
    if not isinstance(e, Const):
        return Cast(e, dtype)
    to_int = dtypes.is_float(e.dtype) and dtypes.is_int(dtype)
    return const(dtypes.truncate(e.value, dtype) if to_int else e.value, dtype)


def promote(a: ExprLike | ExprOps, b: ExprLike | ExprOps) -> tuple[Expr, Expr, str]:
    """Two operands converted to one dtype (a number takes the other's where it fits), and that."""
    if isinstance(a, int | float) and not isinstance(b, int | float):
        y = as_expr(b)
        return _common(_literal(a, y.dtype), y)
    if isinstance(b, int | float) and not isinstance(a, int | float):
        x = as_expr(a)
        return _common(x, _literal(b, x.dtype))
    x, y = as_expr(a), as_expr(b)
    if isinstance(a, np.integer):
        x = _not_wrapped(x, y.dtype)
    if isinstance(b, np.integer):
        y = _not_wrapped(y, x.dtype)
    return _common(x, y)


def _literal(value: float, other: str) -> Expr:
    """A Python number beside an operand of dtype ``other``, which it does not widen."""
    if isinstance(value, bool) or (isinstance(value, float) and not dtypes.is_float(other)):
        return as_expr(value)
    if other == "bool":
        return as_expr(value)
    lo, hi = dtypes.limits(other)
    if lo <= value <= hi or value != value:
        return as_expr(value, other)
    return _not_wrapped(as_expr(value), other)


def _not_wrapped(number: Expr, other: str) -> Expr:
    """A number as a constant; TensorError where it, or an operand of dtype ``other``, would wrap as
    both become unsigned."""
    assert isinstance(number, Const)
    becomes = dtypes.promote(number.dtype, other)
    if dtypes.is_unsigned(becomes) and (number.value < 0 or other.startswith("int")):
        raise TensorError(
            f"{number.value} does not fit {other}, the dtype of the other operand; cast that, or "
            "give te.const(value, dtype), which wraps"
        )
    return number


def _common(a: Expr, b: Expr) -> tuple[Expr, Expr, str]:
    dtype = dtypes.promote(a.dtype, b.dtype)
    return cast(a, dtype), cast(b, dtype), dtype


def binary(op: str, a: ExprLike | ExprOps, b: ExprLike | ExprOps) -> Expr:
    """A binary operation with TE's promotion and constant folding of integers.

    Refused are ``/`` of two integers (ambiguous: use ``//``, te.truncdiv or a cast), division by
    the constant zero, arithmetic on ``bool``, and bits of floats.
    """
    x, y, dtype = promote(a, b)
    if op in BITWISE:
        return _bitwise(op, x, y, dtype)
    if op == "/" and not dtypes.is_float(dtype):
        raise TensorError(
            f"'/' on integers ({dtype}) is ambiguous: use // (floor), te.truncdiv (towards zero), "
            "or cast an operand to a float"
        )
    if dtype == "bool" and op in ("+", "-", "*", *DIVISIONS):
        raise TensorError(f"{op!r} on bool operands: cast them to an integer type first")
    if op in DIVISIONS and dtypes.is_float(dtype):
        instead = "te.fmod" if op == "%" else "/ and te.floor"
        raise TensorError(f"{op!r} on {dtype}: it is for integers; use {instead} for floats")
    if op in DIVISIONS and isinstance(y, Const) and y.value == 0:
        raise TensorError(f"{op!r} by the constant zero")
    folded = _fold(op, x, y, dtype)
    if folded is not None:
        return folded
    return Binary(op, x, y, "bool" if op in COMPARE else dtype)


def _bitwise(op: str, x: Expr, y: Expr, dtype: str) -> Expr:
    """Operations on bits; those on ``bool`` are logic."""
    if dtypes.is_float(dtype):
        raise TensorError(f"{op!r} on {dtype}: it is for integers; te.reinterpret gives the bits")
    if dtype == "bool":
        if op in SHIFTS:
            raise TensorError(f"{op!r} on bool operands: cast them to an integer type first")
        return Binary({"&": "and", "|": "or", "^": "!="}[op], x, y, "bool")
    if op in SHIFTS and isinstance(y, Const):
        y = Const(y.value % dtypes.bits(dtype), dtype)
    folded = _fold(op, x, y, dtype)
    return folded if folded is not None else Binary(op, x, y, dtype)


def invert(a: ExprLike | ExprOps) -> Expr:
    """``~a``: the bits of an integer flipped, a bool negated; a float is refused."""
    e = as_expr(a)
    if dtypes.is_float(e.dtype):
        raise TensorError(f"'~' on {e.dtype}: it is for integers; te.reinterpret gives the bits")
    if isinstance(e, Const):
        return const(~e.value if e.dtype != "bool" else not e.value, e.dtype)
    return Unary("not" if e.dtype == "bool" else "~", e, e.dtype)


def _fold(op: str, x: Expr, y: Expr, dtype: str) -> Expr | None:
    if not dtypes.is_int(dtype):
        return None
    if isinstance(x, Const) and isinstance(y, Const) and op in FOLD:
        return const(FOLD[op](x.value, y.value), "bool" if op in COMPARE else dtype)
    if isinstance(y, Const):
        if (op in ("+", "-", *SHIFTS) and y.value == 0) or (op in ("*", "//") and y.value == 1):
            return x
        if (op == "*" and y.value == 0) or (op == "%" and y.value == 1):
            return const(0, dtype)
    if isinstance(x, Const) and ((op == "+" and x.value == 0) or (op == "*" and x.value == 1)):
        return y
    return None


#: Every class of expressions that reads no memory.
PureExpr = Var | Const | Binary | Cast | Select | IfThenElse | Unary | Call


def conjuncts(cond: Expr) -> list[Expr]:
    """Conditions of which all hold where a condition does."""
    if isinstance(cond, Binary) and cond.op == "and":
        return [*conjuncts(cond.a), *conjuncts(cond.b)]
    return [cond]


def all_of(conds: Iterable[Expr]) -> Expr:
    """The conjunction of one condition or more, each once."""
    return fold(lambda a, b: Binary("and", a, b, "bool"), distinct(conds))
