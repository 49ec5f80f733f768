"""Offsets in which a quotient and a remainder of one number meet again.

A fused loop ``f`` over rows of 56 reads ``A[f // 56, f % 56]``. Neither index is affine in the
lanes of ``f``, but the offset ``56 * (f // 56) + f % 56`` is ``f`` itself: the access is
contiguous even where a vector crosses from one row to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from loopwright.ir.affine import Affine
from loopwright.ir.expr import Binary, Const, Expr, Unary, Var


class Division(NamedTuple):
    """A quotient or remainder: the operation, the number, and the divisor."""

    op: Literal["//", "%"]
    number: Affine
    divisor: int


class Quotients:
    """Quotients and remainders as variables of affine forms; equal ones are one variable."""

    def __init__(self, affine: Callable[[Expr], Affine | None]) -> None:
        self._affine = affine
        self._variables: dict[Division, Var] = {}
        self._divisions: dict[Var, Division] = {}
        self._lets: dict[Var, Affine] = {}

    def let(self, v: Var, e: Expr) -> None:
        """Note that ``v`` stands for ``e``, where that has a form with quotients."""
        form = self.form(e)
        if form is not None:
            self._lets[v] = form

    def forget(self, v: Var) -> None:
        """A variable's scope has ended."""
        self._lets.pop(v, None)

    def form(self, e: Expr) -> Affine | None:
        """An index as an affine form over registers, the lane, quotients and remainders.

        The caller has ensured that its arithmetic does not wrap.
        """
        if isinstance(e, Var) and e in self._lets:
            return self._lets[e]
        plain = self._affine(e)
        if plain is not None:
            return plain
        match e:
            case Unary(op="-", a=a):
                x = self.form(a)
                return None if x is None else x * -1
            case Binary(op="+" | "-" as op, a=a, b=b):
                x, y = self.form(a), self.form(b)
                if x is None or y is None:
                    return None
                return x + y if op == "+" else x - y
            case Binary(op="*", a=a, b=Const(value=k)) | Binary(op="*", a=Const(value=k), b=a):
                x = self.form(a)
                return None if x is None else x * int(k)
            case Binary(op="//" | "%" as op, a=a, b=Const(value=n)) if n > 0:
                x = self.form(a)
                return None if x is None else Affine.of(self._divided(op, x, int(n)))
        return None

    def joined(self, form: Affine) -> Affine | None:
        """The form with ``n * (x // n) + x % n`` turned into ``x``; None if quotients are left."""
        while (shorter := self._join_one(form)) is not None:
            form = shorter
        return None if any(v in self._divisions for v in form.terms) else form

    def _join_one(self, form: Affine) -> Affine | None:
        """The form with one remainder joined to its quotient; None where there is no such pair."""
        for r, c in form.terms.items():
            division = self._divisions.get(r)
            if division is None or division.op != "%":
                continue
            _, x, n = division
            q = self._quotient(x, n)
            if form.terms.get(q, 0) == c * n:
                return form + x * c - Affine(0, {q: c * n, r: c})
        return None

    def _divided(self, op: Literal["//", "%"], x: Affine, n: int) -> Var:
        return self._quotient(x, n) if op == "//" else self._variable(Division(op, x, n))

    def _quotient(self, x: Affine, n: int) -> Var:
        """The variable of ``x // n``; a quotient of a quotient is one quotient."""
        if x.const == 0 and len(x.terms) == 1:
            ((v, c),) = x.terms.items()
            inner = self._divisions.get(v)
            if c == 1 and inner is not None and inner.op == "//":
                return self._quotient(inner.number, inner.divisor * n)
        return self._variable(Division("//", x, n))

    def _variable(self, division: Division) -> Var:
        if division not in self._variables:
            v = Var(f"quotient{len(self._variables)}", "int64")
            self._variables[division], self._divisions[v] = v, division
        return self._variables[division]
