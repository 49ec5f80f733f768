"""The registry of backends: compilation of lowered functions for each kind of target.

A backend has two entries that meet by the name of an artifact kind. The one here belongs to the
compiler; `loopwright.runtime.artifacts.kinds` says how an artifact is linked, on which device it
runs and how it is timed, and is all that a machine needs where programs only run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loopwright.codegen import Code
from loopwright.codegen.c import compiler as c
from loopwright.codegen.llvm import compiler as llvm
from loopwright.errors import BuildError, TargetError
from loopwright.ir.stmt import Func
from loopwright.lowering import too_deep
from loopwright.lowering.gpu_limits import GpuLimits, verify_gpu_limits
from loopwright.lowering.work_limit import check_work
from loopwright.runtime.objects import C_OBJECT, LLVM_OBJECT
from loopwright.schedule.surface.schedule import Schedule
from loopwright.target import (
    KINDS,
    Kind,
    Target,
    register_target_kind,
    unregister_target_kind,
)
from loopwright.te.dag import ArgId


@dataclass(frozen=True, slots=True)
class LoweredProgram:
    """A program for a backend to compile.

    Attributes:
        func: the lowered function.
        schedule: the schedule that it was lowered from, for backends that keep that; None where
            there is only the function.
        arg_ids: inputs and outputs of the schedule's program in calling order.
    """

    func: Func
    schedule: Schedule | None = None
    arg_ids: Sequence[ArgId] = ()


@dataclass(frozen=True, slots=True)
class Backend:
    """Compiler of programs for one kind of target.

    Attributes:
        kind: the kind of target, with its options.
        artifact_kind: name of the artifacts' kind (`loopwright.runtime.ArtifactKind`).
        compile: writes and compiles the code of a program; refuses by a CodegenError what the
            target cannot run.
        limits: limits of a target's device; None for targets that launch no
            kernels of blocks and threads.
    """

    kind: Kind
    artifact_kind: str
    compile: Callable[[LoweredProgram, Target], Code]
    limits: Callable[[Target], GpuLimits] | None = None


_backends: dict[str, Backend] = {}


def register_backend(backend: Backend) -> None:
    """Enter a backend, and its kind of target where that is new.

    Raises:
        TargetError: the kind of target has a backend, or another kind has its name.
    """
    name = backend.kind.name
    if name in _backends:
        raise TargetError(f"the target {name!r} has a backend already")
    register_target_kind(backend.kind)
    _backends[name] = backend


def unregister_backend(name: str) -> None:
    """Take a backend and its kind of target away; nothing happens where there is none."""
    if _backends.pop(name, None) is not None:
        unregister_target_kind(name)


def backend_names() -> tuple[str, ...]:
    """The kinds of targets that this process can build for."""
    return tuple(_backends)


def backend_of(target: Target) -> Backend:
    if target.kind not in _backends:
        raise BuildError(
            f"build: the target {target.kind!r} has no backend; there are {', '.join(_backends)}"
        )
    return _backends[target.kind]


def compile_program(program: LoweredProgram, target: Target) -> Code:
    """Compile a program; refuses one that exceeds a limit of the target's device or of lowering's
    work, or is nested too deeply."""
    backend = backend_of(target)
    if program.schedule is None:  # what was lowered from a schedule has been checked
        check_work(program.func)
    if backend.limits is not None:
        verify_gpu_limits(program.func, backend.limits(target), program.schedule)
    try:
        return backend.compile(program, target)
    except RecursionError:
        if program.schedule is None:
            raise
        raise too_deep(program.schedule) from None


def compile_func(f: Func, target: Target) -> Code:
    return compile_program(LoweredProgram(f), target)


LLVM = Backend(KINDS["llvm"], LLVM_OBJECT.name, lambda p, target: llvm.compile_func(p.func, target))
C = Backend(KINDS["c"], C_OBJECT.name, lambda p, target: c.compile_func(p.func, target))
