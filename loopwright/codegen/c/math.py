"""Math functions (`loopwright.ir.math.vector_math`, `loopwright.ir.half`) as static C functions,
inlined so that the compiler makes them part of the vector loop around. Nothing is contracted in C,
so that results are those of every other code generator, to the bit."""

from __future__ import annotations

from loopwright.codegen.c.expressions import ExpressionWriter, Text
from loopwright.codegen.c.prelude import Prelude, short
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, IfThenElse, Var
from loopwright.ir.half import conversion
from loopwright.ir.math.definition import Definition
from loopwright.ir.math.unfused import without_fma
from loopwright.ir.math.vector_math import definition


def install(prelude: Prelude) -> None:
    """Let expressions of a file find its math functions."""
    prelude.define = lambda fn, dtype, lanes: math_function(prelude, fn, dtype, lanes)


def math_function(prelude: Prelude, fn: str, dtype: str, lanes: bool) -> str | None:
    """The name of a function of this file, or None; with ``lanes`` for a vector loop, which has no
    branches: what is seldom needed is computed always, and chosen."""
    d = conversion(fn, dtype) or definition(fn, dtype)
    if d is None or (fn == "fma" and prelude.has_fma):
        return None
    d = d if prelude.has_fma else without_fma(d)
    many = lanes and (fn.startswith("_") or any(isinstance(e, IfThenElse) for _, e in d.steps))
    name = f"lw_{fn.lstrip('_')}_{short(dtype)}{'_lanes' if many else ''}"
    if name not in prelude:
        prelude.strict = True
        rare = fn.startswith("_") and not many
        how = prelude.dialect.rare if rare else prelude.dialect.inlined
        prelude.put(name, _DefinitionWriter(prelude, d, many).function(f"{how} ", name))
    return name


class _DefinitionWriter(ExpressionWriter):
    def __init__(self, prelude: Prelude, d: Definition, lanes: bool) -> None:
        super().__init__(prelude)
        self.d, self.in_vector = d, lanes

    def name(self, x: Var | Buffer) -> str:
        return x.name

    def function(self, how: str, name: str) -> str:
        ty = self.prelude.dialect.type
        given = ", ".join(f"{ty(v.dtype)} {v.name}" for v in self.d.params)
        lines = [f"{how}{ty(self.d.result.dtype)} {name}({given}) {{"]
        for v, e in self.d.steps:
            lines.append(f"  const {ty(v.dtype)} {v.name} = {self.expr(e).text};")
        return "\n".join([*lines, f"  return {self.expr(self.d.result).text};", "}"])

    def expr(self, e: Expr) -> Text:
        match e:
            case IfThenElse(cond=c, a=a, b=b) if not self.in_vector:
                seldom = self.prelude.dialect.unlikely.format(self.expr(c).text)
                return Text(f"{seldom} ? {self.expr(a).text} : {self.expr(b).inside(3)}", 2)
        return super().expr(e)
