"""The LLVM target: loop IR to LLVM IR text, optimised and emitted as an object file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from loopwright.codegen.llvm.emitter import ModuleWriter
from loopwright.codegen.llvm.functions import write_entry
from loopwright.codegen.llvm.math import install
from loopwright.codegen.llvm.writer import FunctionWriter
from loopwright.errors import InternalError
from loopwright.ir.stmt import Func
from loopwright.target import Target, dot_lanes, has_instruction, stores_too_wide


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled function.

    Attributes:
        objects: the object file.
        text: LLVM IR before optimisation.
        optimised: LLVM IR after optimisation, made when asked for.
        assembly: assembly text, made when asked for.
        workspace_bytes: bytes that a caller provides: an int, or an expression over sizes.
        parallel_workspace_bytes: bytes of each worker of the pool.
        uses_pool: whether `lw_parallel_launch` must be bound when linking.
        checks: messages of the checks in it, by number.
    """

    objects: bytes
    text: str
    optimised: Callable[[], str]
    assembly: Callable[[], str]
    workspace_bytes: Any
    parallel_workspace_bytes: Any
    uses_pool: bool
    checks: tuple[str, ...] = ()


def write_module(f: Func, target: Target) -> tuple[str, ModuleWriter, Any]:
    """LLVM IR text of a function; also the module's facts and the entry's workspace bytes."""
    threads = target.options["num_threads"]
    module = ModuleWriter(f.name, target.options["fastmath"], target.vector_bytes, threads)
    cpu = target.options["mcpu"], target.options["mattr"]
    module.has_fma = has_instruction(*cpu, "fma")
    module.has_float16 = has_instruction(*cpu, "float16")
    module.hides_masks = stores_too_wide(*cpu)
    module.dot_lanes = min(dot_lanes(*cpu), target.vector_bytes // 4)
    install(module)
    entry = FunctionWriter(module, f.name, inside_parallel=False)
    write_entry(entry, f)
    return module.text(), module, entry.sizes.definition(entry.memory.workspace)


def compile_func(f: Func, target: Target) -> Code:
    """Compile a lowered function for a target.

    Raises:
        CodegenError: the function holds something that the target cannot run (thread axes).
        InternalError: LLVM refused the text.
    """
    text, module, workspace = write_module(f, target)
    machine = target_machine(target)
    ref = _optimise(text, machine, target)
    return Code(
        machine.emit_object(ref),
        text,
        lambda: str(_optimise(text, machine, target)),
        lambda: str(machine.emit_assembly(_optimise(text, machine, target))),
        workspace,
        module.parallel_workspace,
        module.uses_pool,
        tuple(module.checks),
    )


def _optimise(text: str, machine: Any, target: Target) -> Any:
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


def triple() -> str:
    """LLVM's triple of this machine, for which all code is made."""
    import llvmlite.binding as llvm

    return str(llvm.get_default_triple())


def target_machine(target: Target) -> Any:
    """LLVM's target machine for a target, made once."""
    return _machine(target.options["mcpu"], target.options["mattr"])


@lru_cache(maxsize=16)
def _machine(cpu: str, features: str) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small"
    )
