"""Math functions (`loopwright.ir.math.vector_math`) as functions of an LLVM module, one for
each name, dtype and number of lanes, inlined but for rare paths (reduction of huge
arguments). No instruction carries flags, so ``-fastmath`` around them does not break the sums
that they rely on."""

from __future__ import annotations

from loopwright.codegen.llvm.emitter import Emitter, ModuleWriter
from loopwright.codegen.llvm.values import Value, literal, llvm_type
from loopwright.errors import InternalError
from loopwright.ir.expr import Binary, Call, Cast, Const, Expr, IfThenElse, Select, Unary, Var
from loopwright.ir.half import conversion
from loopwright.ir.math.definition import Definition
from loopwright.ir.math.unfused import without_fma
from loopwright.ir.math.vector_math import definition


def math_function(m: ModuleWriter, fn: str, dtype: str, lanes: int) -> str | None:
    """The name of a function of this module; None where there is no definition."""
    d = conversion(fn, dtype) or definition(fn, dtype)
    if d is None or (fn == "fma" and m.has_fma):
        return None
    name = f"lw.{fn}.{'v' + str(lanes) if lanes > 1 else ''}{dtype}"
    if name not in m.math:
        m.math.add(name)
        d = d if m.has_fma else without_fma(d)
        m.functions.append(_DefinitionWriter(m, lanes).function(name, d))
    return name


class _DefinitionWriter(Emitter):
    def __init__(self, module: ModuleWriter, lanes: int) -> None:
        super().__init__(module)
        self.lanes = lanes
        self.ops.flags = ""
        self.values: dict[Var, Value] = {}

    def function(self, name: str, d: Definition) -> str:
        params = []
        for k, v in enumerate(d.params):
            self.values[v] = Value(f"%x{k}", v.dtype, self.lanes)
            params.append(f"{llvm_type(v.dtype, self.lanes)} %x{k}")
        for v, e in d.steps:
            self.values[v] = self.expr(e)
        out = self.expr(d.result)
        ty = llvm_type(out.dtype, self.lanes)
        ref = self.splat(out, self.lanes).ref if out.lanes < self.lanes else out.ref
        how = "noinline cold" if d.name.startswith("_") else "alwaysinline"
        head = f"define internal {ty} @{name}({', '.join(params)}) {how} nounwind memory(none) {{"
        return "\n".join([head, "entry:", *self.lines, f"  ret {ty} {ref}", "}"])

    def expr(self, e: Expr) -> Value:
        match e:
            case Var():
                return self.values[e]
            case Const(value=v, dtype=d):
                return Value(literal(v, d), d)
            case Binary(op=op, a=a, b=b, dtype=d):
                return self.ops.binary(op, self.expr(a), self.expr(b), d)
            case Cast(value=v, dtype=d):
                return self.ops.cast(self.expr(v), d)
            case Select(cond=c, a=a, b=b):
                return self.ops.select(self.expr(c), self.expr(a), self.expr(b))
            case IfThenElse():
                return self._rare(e)
            case Unary(op="not", a=a):
                return self.ops.invert(self.expr(a))
            case Unary(a=a):
                return self.ops.negate(self.expr(a))
            case Call(fn="reinterpret", args=(a,), dtype=d):
                return self.ops.reinterpret(self.expr(a), d)
            case Call(fn=fn, args=args):
                return self.ops.call(fn, [self.expr(a) for a in args])
        raise InternalError(f"no LLVM code for {type(e).__name__} in a definition")

    def _rare(self, e: IfThenElse) -> Value:
        """A branch that is taken when any lane asks for it."""
        usual, cond = self.expr(e.b), self.expr(e.cond)
        rare, after, before = self.label("rare"), self.label("usual"), self.label("before")
        go = self.any_lane(cond) if cond.lanes > 1 else cond.ref
        self.put(f"br label %{before}")
        self.start(before)
        self.put(f"br i1 {go}, label %{rare}, label %{after}")
        self.start(rare)
        self.scopes.append({})
        other = self.ops.select(cond, self.expr(e.a), usual)
        self.scopes.pop()
        self.put(f"br label %{after}")
        self.start(after)
        ty = llvm_type(usual.dtype, usual.lanes)
        phi = f"phi {ty} [ {usual.ref}, %{before} ], [ {other.ref}, %{rare} ]"
        return Value(self.emit(phi), usual.dtype, usual.lanes)


def install(m: ModuleWriter) -> None:
    """Let the operations of a module find its math functions."""
    m.define = lambda fn, dtype, lanes: math_function(m, fn, dtype, lanes)
