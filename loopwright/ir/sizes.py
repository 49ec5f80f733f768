"""Sizes that are known only when a program runs: variables, and extents made of them.

An extent is an int or an `Affine` form over size variables. A part that is not affine in them
(``m * n``, ``n // 8``) becomes a variable of its own that is computed once when the function
starts, so that the rest of the compiler adds and compares forms only.

Every extent is at least 1 and at most `MAX_EXTENT`; the caller of a function checks that first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce as fold
from typing import Any, Self, TypeAlias, overload

from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.ir.affine import Affine, Extent, Interval, SizeRanges, form_expr, whole_part
from loopwright.ir.expr import Binary, Cast, Const, Dim, Expr, Unary, Var, binary, cast
from loopwright.ir.node import Node, node
from loopwright.ir.visitor import nodes, substitute

#: Largest extent that a size may give. Tiles that over-run stay within int32.
MAX_EXTENT = 1 << 30
#: Extents of a tensor, outermost first.
Shape = tuple[Dim, ...]
#: An extent as JSON: a number, the name of a size, or ``[operation, a, b]``.
SizeJson: TypeAlias = "int | str | list[SizeJson]"
#: Identity of a derived variable: the operation and its operands.
_Key = tuple[str, Affine, int] | tuple[str, tuple[Var, ...]]


@node
class SizeVar(Var):
    """An integer that is known only when a program runs; made by ``te.var`` and ``te.size_var``.

    ``nonnegative`` is the promise made about it where it is no extent (extents are at least 1).
    """

    name: str
    dtype: str = "int32"
    nonnegative: bool = True


def size_vars(parts: Iterable[Dim]) -> list[SizeVar]:
    """Size variables of expressions, in the order of first use, each once; ints have none."""
    seen: dict[SizeVar, None] = {}
    for e in parts:
        if isinstance(e, Expr):
            seen |= {n: None for n in nodes(e) if isinstance(n, SizeVar)}
    return list(seen)


def check_extent(e: Expr, what: str) -> Expr:
    """Refuse an expression that cannot be an extent: it takes sizes and constants, ``+ - *``, and
    ``//``, ``%`` by positive constants.
    """
    if not dtypes.is_int(e.dtype):
        raise TensorError(f"{what}: an extent is an integer, got one of dtype {e.dtype}")
    for n in nodes(e):
        match n:
            case SizeVar() | Const() | Cast() | Unary(op="-") | Binary(op="+" | "-" | "*"):
                continue
            case Binary(op="//" | "%", b=Const(value=v)) if v > 0:
                continue
            case Var():
                raise TensorError(
                    f"{what}: {n.name!r} is a loop axis or a plain variable; extents are made of "
                    "te.var and te.size_var"
                )
        raise TensorError(
            f"{what}: an extent is made of size variables and constants with +, -, *, and // and % "
            f"by positive constants; {getattr(n, 'op', type(n).__name__)!r} cannot be in it"
        )
    return e


class Sizes:
    def __init__(self, extents: Iterable[Dim] = ()) -> None:
        #: Bounds of size variables; users of the object enter loops beside them.
        self.ranges = SizeRanges()
        #: Variables that stand for parts that are not affine, with their definitions, in order.
        self.lets: list[tuple[Var, Expr]] = []
        self._derived: dict[_Key, Var] = {}
        self._rank: dict[Var, int] = {}
        self._factors: dict[Var, tuple[Var, ...]] = {}
        for e in extents:
            self.of(e)

    @classmethod
    def of_function(cls, variables: Iterable[SizeVar], extents: Iterable[Dim]) -> Sizes:
        """The sizes of a lowered function; ``extents`` are those of its parameters."""
        sizes = cls(extents)
        for v in variables:
            sizes.declare(v)
        return sizes

    def declare(self, v: SizeVar) -> None:
        """Enter a size variable; `of` does it for those of extents."""
        if v not in self.ranges:
            lo, hi = dtypes.limits(v.dtype)
            self.ranges[v] = (0 if v.nonnegative else int(lo), int(hi))
            self._rank[v] = len(self._rank)

    def _narrow(self, form: Extent) -> None:
        """Narrow the bounds of the one variable of a form: extents are 1 to `MAX_EXTENT`."""
        if isinstance(form, int) or len(form.terms) != 1:
            return
        ((v, c),) = form.terms.items()
        if c < 0:
            return
        lo, hi = self.ranges[v]
        least, most = -((form.const - 1) // c), (MAX_EXTENT - form.const) // c
        self.ranges[v] = (max(lo, least), min(hi, most))

    def of(self, e: Dim) -> Extent:
        if not isinstance(e, Expr):
            return int(e)
        for v in size_vars([e]):
            self.declare(v)
        form = _plain(self._of(e))
        self._narrow(form)
        return form

    def _of(self, e: Expr) -> Affine:
        match e:
            case Const(value=v):
                return Affine(int(v))
            case Var():
                return Affine.of(e)
            case Cast(value=v):
                return self._of(v)
            case Unary(a=a):
                return self._of(a) * -1
            case Binary(op="+", a=a, b=b):
                return self._of(a) + self._of(b)
            case Binary(op="-", a=a, b=b):
                return self._of(a) - self._of(b)
            case Binary(op="*", a=a, b=b):
                return _form(self.times(self._of(a), self._of(b)))
            case Binary(op="//", a=a, b=Const(value=m)):
                return _form(self.floor_div(self._of(a), m))
            case Binary(op="%", a=a, b=Const(value=m)):
                x = self._of(a)
                out: Affine = x - _form(self.floor_div(x, m)) * m
                return out
            case _:
                raise TensorError(f"{type(e).__name__} cannot be part of an extent")

    def times(self, a: Extent, b: Extent) -> Extent:
        if isinstance(b, int) or isinstance(a, int):
            x, k = (a, b) if isinstance(b, int) else (b, a)
            return x * k  # type: ignore[operator]
        out = Affine(a.const * b.const)
        out = out + Affine(0, a.terms) * b.const + Affine(0, b.terms) * a.const
        for v, c in a.terms.items():
            for w, d in b.terms.items():
                out = out + Affine(0, {self._product(v, w): c * d})
        return _plain(out)

    def floor_div(self, a: Extent, m: int) -> Extent:
        if isinstance(a, int):
            return a // m
        whole, part = whole_part(a, m)
        lo, hi = part.bounds(self.ranges)
        if lo // m == hi // m:
            return _plain(whole + lo // m)
        key = ("//", part, m)
        if key not in self._derived:
            name = ".".join(v.name for v in part.terms)
            value = binary("//", form_expr(part, self.ranges), m)
            quotient = self._define(key, f"{name}.{m}", value, (lo // m, hi // m))
            self.ranges.quotients[quotient] = (part, m)
        return _plain(whole + Affine.of(self._derived[key]))

    def ceil_div(self, a: Extent, m: int) -> Extent:
        return self.floor_div(a + (m - 1), m)

    def _product(self, a: Var, b: Var) -> Var:
        factors = [*self._factors.get(a, (a,)), *self._factors.get(b, (b,))]
        factors.sort(key=self._rank.__getitem__)
        key = ("*", tuple(factors))
        if key not in self._derived:
            (p, q), (r, s) = self.ranges[a], self.ranges[b]
            corners = [p * r, p * s, q * r, q * s]
            name = ".".join(v.name for v in factors)
            value = fold(lambda x, y: binary("*", x, y), [cast(v, "int64") for v in factors])
            product = self._define(key, name, value, (min(corners), max(corners)))
            self._factors[product] = tuple(factors)
        return self._derived[key]

    def _define(self, key: _Key, name: str, value: Expr, bounds: Interval) -> Var:
        self._derived[key] = var = Var(name, value.dtype)
        self.ranges[var] = bounds
        self._rank[var] = len(self._rank)
        self.lets.append((var, value))
        return var

    def least(self, a: Extent, b: Extent) -> Extent | None:
        """The smaller of two, or None when neither is known to be."""
        lo, hi = _form(a - b).bounds(self.ranges)
        return a if hi <= 0 else b if lo >= 0 else None

    def most(self, a: Extent, b: Extent) -> Extent | None:
        small = self.least(a, b)
        return None if small is None else b if small is a else a

    @property
    def known(self) -> set[Var]:
        return set(self._rank)

    def span(self, x: Affine) -> tuple[Extent, Extent]:
        """Least and largest value over all loops, as forms over sizes."""
        if not self._rank:
            return x.bounds(self.ranges)
        out = []
        for k, form in enumerate(x.extremes(self.ranges)):
            sizes, rest = form.split(self.known)
            out.append(_plain(sizes + rest.bounds(self.ranges)[k]))
        return out[0], out[1]

    @overload
    def dim(self, x: int) -> int: ...

    @overload
    def dim(self, x: Extent) -> Dim: ...

    def dim(self, x: Extent) -> Dim:
        """An extent for the loop IR: an int or an expression."""
        return x if isinstance(x, int) else form_expr(x, self.ranges)

    def definition(self, e: Dim) -> Dim:
        """An extent over the program's own variables, as code outside of a function computes it."""
        if not isinstance(e, Expr):
            return e
        for var, value in reversed(self.lets):  # a definition may use those before it
            e = substitute(e, {var: value})
        return e


def evaluate(e: Dim, env: Mapping[Var, int]) -> int:
    match e:
        case int():
            return e
        case Const(value=v):
            return int(v)
        case Var():
            return env[e]
        case Cast(value=v):
            return evaluate(v, env)
        case Unary(a=a):
            return -evaluate(a, env)
        case Binary(op=op, a=a, b=b):
            return _ARITHMETIC[op](evaluate(a, env), evaluate(b, env))
        case _:
            raise TensorError(f"{type(e).__name__} cannot be part of an extent")


def size_json(e: Dim, names: Mapping[Var, str]) -> SizeJson:
    """An extent, or a number of bytes, as JSON: an int, a name, or ``[operation, a, b]``."""
    match e:
        case int():
            return e
        case Const(value=v):
            return int(v)
        case Var():
            return names[e]
        case Cast(value=v):
            return size_json(v, names)
        case Unary(a=a):
            return ["-", 0, size_json(a, names)]
        case Binary(op=op, a=a, b=b) if op in _ARITHMETIC:
            return [op, size_json(a, names), size_json(b, names)]
        case _:
            raise TensorError(f"{type(e).__name__} cannot be part of an extent")


def solve(
    variables: Iterable[SizeVar],
    shapes: Iterable[tuple[Shape, Sequence[int]]],
    sizes: Mapping[str, int],
) -> dict[Var, int]:
    """Values of size variables: from ``sizes``, else from dimensions linear in one of them.

    ``shapes`` has the declared and the real shape of each array.
    """
    out: dict[Var, int] = {v: sizes[v.name] for v in variables if v.name in sizes}
    dims = (pair for shape, real in shapes for pair in zip(shape, real, strict=False))
    for declared, actual in dims:
        form = Sizes().of(declared)
        if isinstance(form, int) or len(form.terms) != 1:
            continue
        ((v, c),) = form.terms.items()
        if isinstance(v, SizeVar) and (actual - form.const) % c == 0:
            out.setdefault(v, (actual - form.const) // c)
    return out


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": max,
}


def _plain(x: Extent) -> Extent:
    return x if isinstance(x, int) or x.terms else x.const


def _form(x: Extent) -> Affine:
    return Affine(x) if isinstance(x, int) else x


class Symbol(Expr):
    """A positive whole number that stands for many; a leaf of expressions.

    A schedule accepts it in place of a factor: features of candidates are derived once for a whole
    population by running a template with symbolic factors. Such a schedule cannot be lowered.
    Subclasses define arithmetic on it, and refuse operations that need its value (a test, ``int``,
    ``range``). It is equal only to itself.
    """

    __slots__ = ()
    _unique = True
    dtype = "int32"

    def map_children(self, f: Callable[[Node], Node]) -> Self:
        return self

    def children(self) -> list[Node]:
        return []

    def at_most(self, n: Any) -> Any:
        raise TypeError(f"{type(self).__name__} has no order")
