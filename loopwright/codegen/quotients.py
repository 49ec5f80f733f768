"""Offsets in which a quotient and a remainder of one number meet again.

A fused loop ``f`` over rows of 56 reads ``A[f // 56, f % 56]``. Neither index is affine in the
lanes of ``f``, but the offset ``56 * (f // 56) + f % 56`` is ``f`` itself: the access is
contiguous even where a vector crosses from one row to the next.
"""

from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.affine import Affine
from loopwright.ir.expr import Binary, Const, Expr, Unary, Var

#: Operation, number and divisor of a digit.
Digit = tuple[str, Affine, int]


class Digits:
    """Quotients and remainders as atoms of affine forms; equal ones are one atom."""

    def __init__(self, affine: Callable[[Expr], Affine | None]) -> None:
        self._affine = affine
        self._atoms: dict[Digit, Var] = {}
        self._known: dict[Var, Digit] = {}
        self._lets: dict[Var, Affine] = {}

    def let(self, v: Var, e: Expr) -> None:
        """Note that ``v`` stands for ``e``, where that has a form with digits."""
        form = self.form(e)
        if form is not None:
            self._lets[v] = form

    def forget(self, v: Var) -> None:
        """A variable's scope has ended."""
        self._lets.pop(v, None)

    def form(self, e: Expr) -> Affine | None:
        """An index as an affine form over registers, the lane and digits.

        The caller has made sure that its arithmetic does not wrap.
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
                if x is None:
                    return None
                made = self._quotient(x, int(n)) if op == "//" else self._atom((op, x, int(n)))
                return Affine.of(made)
        return None

    def _atom(self, digit: Digit) -> Var:
        if digit not in self._atoms:
            self._atoms[digit] = atom = Var(f"digit{len(self._atoms)}", "int64")
            self._known[atom] = digit
        return self._atoms[digit]

    def joined(self, form: Affine) -> Affine | None:
        """The form with ``n * (x // n) + x % n`` turned into ``x``; None if digits are left."""
        again = True
        while again:
            again = False
            for r in [v for v in form.terms if v in self._known]:
                op, x, n = self._known[r]
                c = form.terms[r]
                q = self._quotient(x, n)
                if op == "%" and form.terms.get(q, 0) == c * n:
                    form = form + x * c - Affine(0, {q: c * n, r: c})
                    again = True
                    break
        return None if any(v in self._known for v in form.terms) else form

    def _quotient(self, x: Affine, n: int) -> Var:
        """The atom of ``x // n``; a quotient of a quotient is one quotient."""
        if x.const == 0 and len(x.terms) == 1:
            ((v, c),) = x.terms.items()
            if c == 1 and self._known.get(v, ("",))[0] == "//":
                _, y, m = self._known[v]
                return self._quotient(y, m * n)
        return self._atom(("//", x, n))
