"""Affine index arithmetic: ``const + sum(coeff * var)``, intervals, and exact division."""

# Almost every index of a scheduled program is affine over its loops. So regions, guards and
# addresses are a matter of adding dictionaries; there is no rewriting of terms.

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from loopwright import dtypes
from loopwright.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var, as_expr, binary, cast

Interval = tuple[int, int]
#: An int32 is below this, and not below its negative.
NARROW = 1 << 31
#: Inclusive bounds of variables.
Ranges = Mapping[Var, Interval]


class SizeRanges(dict[Var, Interval]):
    def __init__(self) -> None:
        super().__init__()
        #: Upper bounds as forms over sizes: ``n - 1`` of a loop over ``range(n)``, so that
        #: ``i - n`` is known to be at most -1. Its plain interval holds for every n.
        self.upper: dict[Var, Affine] = {}
        #: (x, m) of a variable ``q = x // m``: ``m * q`` lies between ``x - m + 1`` and ``x``.
        self.quotients: dict[Var, tuple[Affine, int]] = {}

    def enter(self, v: Var, extent: Extent) -> None:
        """Note that ``v`` runs from 0 to below ``extent``."""
        if isinstance(extent, int):
            self[v] = (0, extent - 1)
            return
        self.upper[v] = extent - 1
        self[v] = (0, max(0, self.upper[v].bounds(self)[1]))


class Affine:
    """``const + sum(coeff * var)`` with integer coefficients; zero ones are never stored."""

    __slots__ = ("const", "terms")

    def __init__(self, const_: int = 0, terms: dict[Var, int] | None = None) -> None:
        self.const = const_
        self.terms = terms or {}

    @staticmethod
    def of(v: Var) -> Affine:
        return Affine(0, {v: 1})

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.const + other, self.terms)
        if not other.terms:
            return Affine(self.const + other.const, self.terms)
        terms = dict(self.terms)
        for v, c in other.terms.items():
            s = terms.get(v, 0) + c
            if s:
                terms[v] = s
            else:
                del terms[v]
        return Affine(self.const + other.const, terms)

    def __mul__(self, k: int) -> Affine:
        if k == 1:
            return self
        return Affine(self.const * k, {v: c * k for v, c in self.terms.items()} if k else {})

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (-other if isinstance(other, int) else other * -1)

    def __radd__(self, other: int) -> Affine:
        return self + other

    def __rsub__(self, other: int) -> Affine:
        return self * -1 + other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affine) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        return hash((self.const, frozenset(self.terms.items())))

    def __repr__(self) -> str:
        return " + ".join([*(f"{c}*{v.name}" for v, c in self.terms.items()), str(self.const)])

    def bounds(self, ranges: Ranges) -> Interval:
        """Inclusive bounds, exact when variables vary independently."""
        if not isinstance(ranges, SizeRanges) or not (ranges.upper or ranges.quotients):
            return self._interval(ranges)
        least, most = self.extremes(ranges)
        lo, hi = least._interval(ranges)[0], most._interval(ranges)[1]
        if ranges.quotients:
            lo = max(lo, -(least * -1)._through(ranges)._interval(ranges)[1])
            hi = min(hi, most._through(ranges)._interval(ranges)[1])
        return lo, hi

    def _through(self, ranges: SizeRanges) -> Affine:
        """A form that is at least as large as this one, without multiples of quotients."""
        out = self
        for v, c in self.terms.items():
            if v in ranges.quotients and c % ranges.quotients[v][1] == 0:
                whole, m = ranges.quotients[v]
                instead = whole if c > 0 else whole - (m - 1)
                out = out - Affine(0, {v: c}) + instead * (c // m)
        return out if out is self else out._through(ranges)

    def extremes(self, ranges: SizeRanges) -> tuple[Affine, Affine]:
        """Least and largest value, as forms over the variables without a symbolic upper bound."""
        symbolic = {v: c for v, c in self.terms.items() if v in ranges.upper}
        if not symbolic:
            return self, self
        least = {v: Affine(ranges[v][0]) for v in symbolic}
        most = {v: ranges.upper[v] for v in symbolic}
        lo = {v: (least if c > 0 else most)[v] for v, c in symbolic.items()}
        hi = {v: (most if c > 0 else least)[v] for v, c in symbolic.items()}
        return self.substitute(lo), self.substitute(hi)

    def _interval(self, ranges: Ranges) -> Interval:
        lo = hi = self.const
        for v, c in self.terms.items():
            a, b = ranges[v]
            lo += c * (a if c > 0 else b)
            hi += c * (b if c > 0 else a)
        return lo, hi

    def split(self, keep: set[Var]) -> tuple[Affine, Affine]:
        """The part over variables in ``keep`` (without the constant), and the rest."""
        inside = {v: c for v, c in self.terms.items() if v in keep}
        rest = {v: c for v, c in self.terms.items() if v not in keep}
        return Affine(0, inside), Affine(self.const, rest)

    def substitute(self, env: Mapping[Var, Affine]) -> Affine:
        const_ = self.const
        terms: dict[Var, int] = {}
        for v, c in self.terms.items():
            if v not in env:
                terms[v] = terms.get(v, 0) + c
                continue
            new = env[v]
            const_ += new.const * c
            for w, k in new.terms.items():
                terms[w] = terms.get(w, 0) + k * c
        return Affine(const_, {v: c for v, c in terms.items() if c})

    def to_expr(self, dtype: str | None = None) -> Expr:
        """Expression in ``dtype`` (None: that of the variables), outer terms first."""
        out: Expr | None = None
        for v, c in sorted(self.terms.items(), key=lambda t: -abs(t[1])):
            factor = v if dtype is None else cast(v, dtype)
            term: Expr = factor if c == 1 else binary("*", factor, c)
            out = term if out is None else binary("+", out, term)
        if out is None:
            return as_expr(self.const, dtype)
        if self.const < 0:
            return binary("-", out, -self.const)
        return binary("+", out, self.const) if self.const else out


def form_expr(x: Affine, ranges: Ranges) -> Expr:
    """Expression of a form, in int64 where it may leave int32; variables without bounds do not."""
    worst = abs(x.const)
    for v, c in x.terms.items():
        worst += abs(c) * max(map(abs, ranges.get(v, (0, 0))))
    return x.to_expr() if worst < NARROW else x.to_expr("int64")


#: Number of iterations or of elements: an int, or a form over size variables.
Extent = int | Affine


def to_affine(e: Expr, env: Mapping[Var, Affine], ranges: Ranges) -> Affine | None:
    """Affine form of an integer expression, or None; ``env`` replaces variables on the way, and
    ``ranges`` of the others decide ``//`` and ``%``."""
    match e:
        case Const(value=int(v)):
            return Affine(v)
        case Var():
            return env[e] if e in env else Affine.of(e)
        case Cast(value=v, dtype=d) if dtypes.is_int(d) and dtypes.is_int(v.dtype):
            x = to_affine(v, env, ranges)
            return x if x is not None and _inside(x, ranges, v.dtype, d) else None
        case Unary(op="-", a=a):
            x = to_affine(a, env, ranges)
            return x * -1 if x is not None else None
        case Binary(op=op, a=a, b=b) if op in ("+", "-", "*", "//", "%"):
            x, y = to_affine(a, env, ranges), to_affine(b, env, ranges)
            return _combine(op, x, y, ranges, e.dtype) if x is not None and y is not None else None
    return None


def _within(b: Interval, *types: str) -> bool:
    return all(lo <= b[0] and b[1] <= hi for lo, hi in map(dtypes.limits, types))


def _inside(x: Affine, ranges: Ranges, *types: str) -> bool:
    return all(v in ranges for v in x.terms) and _within(x.bounds(ranges), *types)


def _combine(op: str, x: Affine, y: Affine, ranges: Ranges, dtype: str) -> Affine | None:
    if op == "+":
        return x + y
    if op == "-":
        return x - y
    if op == "*":
        if y.terms:
            x, y = y, x
        return None if y.terms else x * y.const
    if y.terms or y.const <= 0 or not _inside(x, ranges, dtype):
        return None
    whole, part = whole_part(x, y.const)
    lo, hi = part.bounds(ranges)
    if lo // y.const != hi // y.const:
        return None
    q = lo // y.const
    return whole + q if op == "//" else part - q * y.const


def whole_part(x: Affine, m: int) -> tuple[Affine, Affine]:
    """``x = m * whole + part`` where part holds the terms that m does not divide."""
    whole = {v: c // m for v, c in x.terms.items() if c % m == 0}
    part = {v: c for v, c in x.terms.items() if c % m}
    return Affine(x.const // m, whole), Affine(x.const % m, part)


def div_mod(
    x: Affine, m: int, ranges: dict[Var, Interval], lets: list[tuple[Var, Expr]], hint: str
) -> tuple[Affine, Affine]:
    """Exact ``(x // m, x % m)``; new variables go to ``lets``, with definitions, and ``ranges``."""
    # With ``x = m*w + d*A + B``, ``0 <= B < d`` and ``d | m``: the quotient is ``w + A // (m/d)``
    # and the remainder ``(A % (m/d)) * d + B``. Only A's quotient and remainder need variables, so
    # the low part (a vector lane, say) stays affine.
    whole, part = whole_part(x, m)
    lo, hi = part.bounds(ranges)
    if lo // m == hi // m:
        return whole + lo // m, part - (lo // m) * m
    high, low, d = split_digits(part, m, ranges)
    n = m // d
    lo, hi = high.bounds(ranges)
    value = form_expr(high, ranges)
    q, r = Var(f"{hint}.q", value.dtype), Var(f"{hint}.r", value.dtype)
    lets += [(q, binary("//", value, n)), (r, binary("%", value, n))]
    ranges[q] = (lo // n, hi // n)
    ranges[r] = (0, n - 1)
    return whole + Affine.of(q), Affine.of(r) * d + low


def shorter_division(e: Binary, env: Mapping[Var, Affine], ranges: Ranges) -> Expr | None:
    """``x // m`` or ``x % m`` of less than all of ``x``; None where each term is needed."""
    # ``(16*i + j) // 32`` is ``i // 2`` where ``j`` lies in 0..15, and the remainder
    # ``i % 2 * 16 + j``; ``(32*i + j) // 32`` is ``i + j // 32``. Lanes of a vector that were
    # inside of a division are thus outside, or gone.
    x = to_affine(e.a, env, ranges)
    if x is None or not isinstance(e.b, Const) or e.b.value < 1 or not _inside(x, ranges, e.dtype):
        return None
    whole, part = whole_part(x, e.b.value)
    high, low, d = split_digits(part, e.b.value, ranges)
    if d == 1 and not whole.terms and not whole.const:
        return None
    inner = binary(e.op, high.to_expr(e.dtype), e.b.value // d)
    rest = whole if e.op == "//" else low
    value = inner if e.op == "//" or d == 1 else binary("*", inner, d)
    if not rest.terms:
        return value if rest.const == 0 else binary("+", value, rest.const)
    return binary("+", value, rest.to_expr(e.dtype))


def split_digits(x: Affine, m: int, ranges: Ranges) -> tuple[Affine, Affine, int]:
    """``x = d * high + low`` for the largest ``d`` that divides ``m``, with ``0 <= low < d``."""
    terms = sorted(x.terms.items(), key=lambda t: abs(t[1]))
    for cut in range(len(terms) - 1, 0, -1):
        d = m
        for _, c in terms[cut:]:
            d = gcd(d, c)
        low = Affine(x.const % d, dict(terms[:cut]))
        lo, hi = low.bounds(ranges)
        if lo >= 0 and hi < d:
            return Affine(x.const // d, {v: c // d for v, c in terms[cut:]}), low, d
    return x, Affine(0), 1


def interval(e: Expr, env: Mapping[Var, Affine], ranges: Ranges) -> Interval | None:
    a = to_affine(e, env, ranges)
    if a is not None:
        return a.bounds(ranges) if all(v in ranges for v in a.terms) else None
    match e:
        case Binary(op=op, a=x, b=y) if op in ("+", "-", "*", "//", "%", "min", "max"):
            p, q = interval(x, env, ranges), interval(y, env, ranges)
            wraps = any(b is not None and not _within(b, e.dtype) for b in (p, q))
            return None if wraps and op not in ("+", "-", "*") else _interval_op(op, p, q)
        case Binary(op="&", a=x, b=Const(value=v)) if v >= 0:
            return (0, v)
        case Select(a=x, b=y):
            p, q = interval(x, env, ranges), interval(y, env, ranges)
            return (min(p[0], q[0]), max(p[1], q[1])) if p and q else None
    return None


def _interval_op(op: str, p: Interval | None, q: Interval | None) -> Interval | None:
    if op == "%" and q and q[0] > 0:
        return (0, q[1] - 1)
    if p is None or q is None:
        return None
    if op == "+":
        return p[0] + q[0], p[1] + q[1]
    if op == "-":
        return p[0] - q[1], p[1] - q[0]
    if op == "*" or (op == "//" and q[0] > 0):
        corners = [x * y if op == "*" else x // y for x in p for y in q]
        return min(corners), max(corners)
    if op in ("min", "max"):
        pick = min if op == "min" else max
        return pick(p[0], q[0]), pick(p[1], q[1])
    return None


def decided(op: str, difference: Interval) -> bool | None:
    """Whether ``a op b`` holds, by bounds of ``a - b``; None where they do not tell."""
    lo, hi = difference
    yes, no = {
        "<": (hi < 0, lo >= 0), "<=": (hi <= 0, lo > 0), ">": (lo > 0, hi <= 0),
        ">=": (lo >= 0, hi < 0), "==": (lo == hi == 0, lo > 0 or hi < 0),
        "!=": (lo > 0 or hi < 0, lo == hi == 0),
    }[op]  # fmt: skip
    return True if yes else False if no else None


def fits(e: Expr, env: Mapping[Var, Affine], ranges: Ranges) -> bool:
    """Whether the exact value of an integer is known to lie in its dtype, and in that of axes."""
    b = interval(e, env, ranges)
    return b is not None and _within(b, e.dtype, "int64")


def exact(e: Expr, env: Mapping[Var, Affine], ranges: Ranges) -> bool:
    """Whether ``e`` is arithmetic on axes that may be done in wide integers and cut at the end."""
    # Sums and products that wrap come out the same when only the result is cut to its dtype;
    # operands of divisions and comparisons must be known not to wrap. Variables that neither
    # ``env`` nor ``ranges`` knows hold data.
    match e:
        case Const() | Var() if not dtypes.is_int(e.dtype):
            return False
        case Const():
            return True
        case Var():
            return e in env or e in ranges
        case Cast(value=v, dtype=d) if dtypes.is_int(d) and dtypes.is_int(v.dtype):
            wider = dtypes.bits(d) > dtypes.bits(v.dtype)
            return exact(v, env, ranges) and (not wider or fits(v, env, ranges))
        case Unary(op="-", a=a):
            return exact(a, env, ranges)
        case Binary(op="+" | "-" | "*", a=a, b=b):
            return exact(a, env, ranges) and exact(b, env, ranges)
        case Binary(op="//" | "%" | "tdiv" | "tmod" | "min" | "max", a=a, b=b):
            return all(exact(x, env, ranges) and fits(x, env, ranges) for x in (a, b))
    return False
