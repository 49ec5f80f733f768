"""The LLVM target: loop IR to LLVM IR text, optimised and emitted as an object file."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from loopwright.codegen.code import Bytes, Code
from loopwright.codegen.llvm.emitter import ModuleWriter
from loopwright.codegen.llvm.writer import write_entry, write_split
from loopwright.errors import InternalError
from loopwright.ir.stmt import Func, SplitFunc
from loopwright.runtime import architecture, host_triple, run_passes
from loopwright.target import Target

#: Types of llvmlite, which declares none.
_TargetMachine = Any
_ModuleRef = Any


def write_module(f: Func, target: Target) -> tuple[str, ModuleWriter, Bytes]:
    module = ModuleWriter(f.name, target)
    workspace = write_split(module, f) if isinstance(f, SplitFunc) else write_entry(module, f)
    return module.text(), module, workspace


def compile_func(f: Func, target: Target) -> Code:
    """Compile a lowered function to an object file; sources ``ll`` (LLVM IR, optimised), ``asm``
    and ``ll-unoptimised``. Refuses what the target cannot run, such as thread axes."""
    text, module, workspace = write_module(f, target)
    machine = _machine(target.options["mcpu"], target.options["mattr"] + _left_out(text))
    return Code(
        lambda: machine.emit_object(_optimise(text, machine, target)),
        {
            "ll": lambda: str(_optimise(text, machine, target)),
            "asm": lambda: str(machine.emit_assembly(_optimise(text, machine, target))),
            "ll-unoptimised": text,
        },
        workspace,
        module.parallel_workspace,
        module.uses_pool,
        tuple(module.checks),
        triple=host_triple(),
        packed=tuple(module.packed),
        parts=module.parts,
    )


def _left_out(text: str) -> str:
    """Features that LLVM must not use for a program by itself."""
    # LLVM 22 makes ``vpdpbusd`` of a sum of products of bytes over one vector of 8 or 16, and takes
    # the first of the partial sums for the whole. Where the text asks for the instruction itself it
    # stays: such programs sum along other lanes.
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
    run_passes(ref, machine, options)
    return ref


@lru_cache(maxsize=16)
def _machine(cpu: str, features: str) -> _TargetMachine:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small"
    )
