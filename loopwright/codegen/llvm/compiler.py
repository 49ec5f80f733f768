"""The LLVM target: loop IR to LLVM IR text, optimised and emitted as an object file."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from loopwright.codegen.code import Bytes, Code
from loopwright.codegen.llvm.emitter import Emitter, ModuleWriter, Operation
from loopwright.codegen.llvm.functions import write_entry, write_split
from loopwright.codegen.llvm.ops import Value, llvm_type
from loopwright.errors import InternalError
from loopwright.ir.expr import Expr, IfThenElse, Var
from loopwright.ir.math.definition import Definition, without_fma
from loopwright.ir.math.vector_math import conversion, definition
from loopwright.ir.stmt import Func, SplitFunc
from loopwright.runtime import architecture
from loopwright.target import Target


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
        """An operation; a branch is taken when any lane asks for it."""
        if isinstance(e, Var):
            return self.values[e]
        if isinstance(e, Operation):
            return self.operation(e)
        if not isinstance(e, IfThenElse):
            raise InternalError(f"no LLVM code for {type(e).__name__} in a definition")
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


# ---------------------------------------------------------------- math functions
#
# Math functions (`loopwright.ir.math.vector_math`) as functions of an LLVM module, one for
# each name, dtype and number of lanes, inlined but for rare paths (reduction of huge
# arguments). No instruction carries flags, so ``-fastmath`` around them does not break the sums
# that they rely on.


#: Types of llvmlite, which declares none.
_TargetMachine = Any
_ModuleRef = Any


def write_module(f: Func, target: Target) -> tuple[str, ModuleWriter, Bytes]:
    """LLVM IR text of a function, the state of its functions, and the entry's workspace bytes."""
    module = ModuleWriter(f.name, target)
    module.define = partial(math_function, module)
    workspace = write_split(module, f) if isinstance(f, SplitFunc) else write_entry(module, f)
    return module.text(), module, workspace


def compile_func(f: Func, target: Target) -> Code:
    """Compile a lowered function to an object file; sources ``ll`` (LLVM IR, optimised), ``asm``
    and ``ll-unoptimised``. Refuses what the target cannot run, such as thread axes."""
    text, module, workspace = write_module(f, target)
    machine = _machine(target.options["mcpu"], target.options["mattr"] + _left_out(text))
    return Code(
        machine.emit_object(_optimise(text, machine, target)),
        {
            "ll": lambda: str(_optimise(text, machine, target)),
            "asm": lambda: str(machine.emit_assembly(_optimise(text, machine, target))),
            "ll-unoptimised": text,
        },
        workspace,
        module.parallel_workspace,
        module.uses_pool,
        tuple(module.checks),
        triple=machine.triple,
        packed=tuple(module.packed),
        parts=module.parts,
    )


def _left_out(text: str) -> str:
    """Features that LLVM must not use for a program by itself. LLVM 22 makes ``vpdpbusd`` of a sum
    of products of bytes over one vector of 8 or 16, and takes the first of the partial sums for the
    whole. Where the text asks for the instruction itself it stays: such programs sum along other
    lanes."""
    if architecture() != "x86_64" or "vpdpbusd" in text or "x i8>" not in text:
        return ""
    return ",-avx512vnni,-avxvnni"


def _optimise(text: str, machine: _TargetMachine, target: Target) -> _ModuleRef:
    import llvmlite.binding as llvm

    try:
        ref = llvm.parse_assembly(text)
    except RuntimeError as e:
        raise InternalError(f"LLVM refused generated code: {e}\n{text}") from e
    ref.triple = machine.triple
    ref.data_layout = str(machine.target_data)
    # Level 1 has no jump threading, which makes loops that InstCombine of LLVM 22 miscompiles: it
    # merges two stores through one pointer although an outer loop moved the pointer in between. It
    # also leaves a nest what it says. Kernels are as fast as with level 2 (within 1.5 %).
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.loop_interleaving = target.options["loop_vectorize"]
    options.slp_vectorization = False
    options.loop_unrolling = target.options["loop_unroll"]
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(ref, builder)
    return ref


@lru_cache(maxsize=16)
def _machine(cpu: str, features: str) -> _TargetMachine:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small"
    )
