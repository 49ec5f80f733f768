"""Index arithmetic of kernels: in 32 bits where intervals prove that these suffice, else in 64,
which take two registers of a GPU and several instructions each."""

from __future__ import annotations

from loopwright.codegen.c.expressions import ATOM, UNARY, Text, call, join, literal
from loopwright.codegen.c.statements import CFamilyWriter
from loopwright.ir.affine import NARROW, Affine, Interval, interval, to_affine
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Binary, Cast, Const, Expr, Unary, as_expr
from loopwright.ir.operations import DIVISIONS

_ARITHMETIC = ("+", "-", "*")


def is_narrow(bounds: Interval | None) -> bool:
    """Whether all numbers between some bounds are int32."""
    return bounds is not None and bounds[0] >= -NARROW and bounds[1] < NARROW


class NarrowIndices(CFamilyWriter):
    """Writes arithmetic on axes in int where that suffices, and elements of flat buffers."""

    def index_type(self, bounds: Interval) -> str:
        return self.prelude.dialect.type("int32" if is_narrow(bounds) else "int64")

    def narrow(self, e: Expr) -> bool:
        """Whether an expression and all its parts are known to be int32."""
        match e:
            case Cast(value=v):
                return self.narrow(v)
            case Unary(a=a):
                return self.narrow(a) and is_narrow(interval(e, {}, self.ranges))
            case Binary(a=a, b=b):
                parts = self.narrow(a) and self.narrow(b)
                return parts and is_narrow(interval(e, {}, self.ranges))
        return is_narrow(interval(e, {}, self.ranges))

    def plain(self, e: Expr) -> Text:
        """Arithmetic on axes, in int where that suffices."""
        match e:
            case Const(value=v):
                return literal(v, "int32" if self.narrow(e) else "int64", self.prelude.dialect)
            case Cast(value=v):
                return self.plain(v)
            case Unary(op="-", a=a):
                widened = self.narrow(a) and not self.narrow(e)
                x = self.convert(self.plain(a), "int64") if widened else self.plain(a)
                return Text(f"-{x.inside(ATOM)}", UNARY)
            case Binary(op=op, a=a, b=b):
                return self._plain_binary(op, a, b, self.narrow(e))
        return super().plain(e)

    def _plain_binary(self, op: str, a: Expr, b: Expr, narrow: bool) -> Text:
        """An operation on axes; one wide operand makes it wide."""
        dtype = "int32" if narrow else "int64"
        x, y = self.plain(a), self.plain(b)
        if not narrow and self.narrow(a) and self.narrow(b):
            x = self.convert(x, "int64")
        if op in _ARITHMETIC:
            return join(op, x, y)
        if op not in DIVISIONS:
            return self.operation(op, x, y, dtype)
        p, q = interval(a, {}, self.ranges), interval(b, {}, self.ranges)
        if p is not None and q is not None and p[0] >= 0 and q[0] > 0:
            return join("/" if op in ("//", "tdiv") else "%", x, y)
        return call(self.prelude.divide(op, dtype), x, y)

    # ------------------------------------------------------------ elements

    def element(self, b: Buffer, indices: tuple[Expr, ...]) -> str:
        """An element of a buffer; all buffers are flat."""
        return f"{self.name(b)}[{self.flat(b, indices).text}]"

    def flat(self, b: Buffer, indices: tuple[Expr, ...]) -> Text:
        wide = not self.is_small(b)
        out: Text | None = None
        for d, i in enumerate(indices):
            x = self.index(i)
            if wide or (self.is_plain(i) and not self.narrow(i)):
                x = self.convert(x, "int64")
            if b.strides is not None:
                x = x if b.strides[d] == 1 else join("*", x, Text(str(b.strides[d])))
            elif out is not None:
                out = join("*", out, self.index(as_expr(b.shape[d])))
            out = x if out is None else join("+", out, x)
        return out or Text("0")

    def is_small(self, b: Buffer) -> bool:
        """Whether every offset in a buffer is an int32, somewhat outside of it too."""
        if not b.symbolic:
            return b.size < NARROW // 2
        most = 1
        for n in b.shape:
            bounds = interval(as_expr(n), {}, self.ranges)
            if bounds is None:
                return False
            most *= bounds[1]
        return most < NARROW // 2

    def form(self, e: Expr) -> Affine | None:
        """An integer as an affine form; None where it is none that is known."""
        return to_affine(e, {}, self.ranges) if self.is_plain(e) else None

    def offset(self, b: Buffer, indices: tuple[Expr, ...]) -> Affine | None:
        """The offset of an element as an affine form; None where it is none that is known."""
        if b.symbolic and len(b.shape) > 1:
            return None
        out = Affine(0)
        for d, i in enumerate(indices):
            form = self.form(i)
            if form is None:
                return None
            if b.strides is not None:
                out = out + form * b.strides[d]
            else:
                out = (out * b.extents[d] if d else out) + form
        return out
