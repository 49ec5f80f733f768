"""The registry of backends: compilation of lowered functions for each kind of target."""

# A backend has two entries that meet by the name of an artifact kind. The one here belongs to the
# compiler; `loopwright.runtime.artifacts.kinds` says how an artifact is linked, on which device it
# runs and how it is timed, and is all that a machine needs where programs only run.

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.codegen.c import compiler as c
from loopwright.codegen.code import Code, CodePart, SourceText
from loopwright.codegen.gpu import nvrtc
from loopwright.codegen.gpu.cuda import write_cuda, write_hip
from loopwright.codegen.gpu.opencl import write_opencl
from loopwright.codegen.gpu.split import SplitKernel, split_parts
from loopwright.codegen.llvm import compiler as llvm
from loopwright.codegen.manifests import device_code
from loopwright.errors import (
    BuildError,
    RunError,
    ScheduleError,
    TargetError,
    TensorError,
    UsageError,
)
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Var
from loopwright.ir.interp.interpreter import prepare
from loopwright.ir.sizes import evaluate
from loopwright.ir.stmt import CallPacked, Func, SplitFunc
from loopwright.ir.visitor import contains
from loopwright.lowering import (
    GpuLimits,
    check_work,
    limits_of,
    lower_ids,
    too_deep,
    verify_gpu_limits,
)
from loopwright.runtime import (
    C_OBJECT,
    CUDA_CUBIN,
    LLVM_OBJECT,
    OPENCL_SOURCE,
    KernelResources,
    Linked,
    Manifest,
    register_artifact_kind,
)
from loopwright.runtime import INTERP as INTERP_KIND
from loopwright.schedule import Schedule, replay
from loopwright.target import KINDS, Kind, Target, register_target_kind, unregister_target_kind
from loopwright.te import ArgId, Dag


@dataclass(frozen=True, slots=True)
class LoweredProgram:
    """A program for a backend to compile.

    Attributes:
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


def target_limits(target: Target) -> GpuLimits:
    return limits_of(target.options)


def compile_opencl(program: LoweredProgram, target: Target) -> Code:
    split, parts = split_parts(program.func, "opencl")
    text = write_opencl(split)
    code = device_code(split, text.encode(), parts=parts)
    # The parts of a function take no workspace of the host.
    return Code(code.to_bytes(), {"cl": text}, parts=tuple(CodePart(part.func) for part in parts))


def compile_cuda(program: LoweredProgram, target: Target) -> Code:
    options = target.options
    arch, fast_math = options["arch"], options["fast_math"]
    split, parts = split_parts(program.func, "cuda")
    source = write_cuda(split, fast_math)
    name = program.func.name
    cubin = nvrtc.compile_cubin(source.text, name, arch, fast_math)
    taken = {
        k: replace(r, shared_bytes=(r.shared_bytes or 0) + source.shared_bytes.get(k, 0))
        for k, r in nvrtc.resources(cubin.log).items()
    }
    for kernel in split.kernels:
        check_resources(kernel, taken.get(kernel.name, KernelResources()), options)
    code = device_code(split, cubin.image, source.shared_bytes, taken, arch, parts)
    sources: dict[str, SourceText] = {
        "cuda": source.text,
        "ptx": lambda: nvrtc.compile_ptx(source.text, name, arch, fast_math),
        "hip": lambda: write_hip(split),
    }
    return Code(code.to_bytes(), sources, parts=tuple(CodePart(part.func) for part in parts))


def check_resources(k: SplitKernel, taken: KernelResources, options: Mapping[str, Any]) -> None:
    have = options["registers_per_block"]
    need = (taken.registers or 0) * k.thread_count
    if need > have:
        raise BuildError(
            f"cuda: {k.name} takes {taken.registers} registers a thread, {need} for "
            f"{k.thread_count} threads of a block, registers_per_block is {have}; bind smaller "
            "loops, or make the tiles of a thread smaller"
        )
    most, spilled = options.get("max_spill_bytes"), taken.spill_bytes or 0
    if most is not None and spilled > most:
        raise BuildError(
            f"cuda: {k.name} spills {spilled} bytes of a thread's registers, max_spill_bytes is "
            f"{most}; make the tiles of a thread smaller"
        )


CUDA = Backend(KINDS["cuda"], CUDA_CUBIN.name, compile_cuda, target_limits)
OPENCL = Backend(KINDS["opencl"], OPENCL_SOURCE.name, compile_opencl, target_limits)


_FAILED = 2
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)


def keep_program(program: LoweredProgram, target: Target) -> Code:
    """A program as the bytes of an artifact; in this process its function runs as it is."""
    # Refuses a lowered function alone, and a pass's calls of packed functions, which no schedule
    # holds.
    s = program.schedule
    if s is None:
        raise BuildError("build: the target interp keeps the schedule, and was given a function")
    if contains(program.func.body, CallPacked):
        raise BuildError(
            "build: the target interp keeps the schedule, which holds no call_packed; build for "
            "llvm or c"
        )
    fields = {"dag": s.dag.to_json(), "trace": s.trace_json(), "arg_ids": list(program.arg_ids)}
    objects = json.dumps(fields, separators=(",", ":")).encode()
    f = program.func
    parts = (CodePart(f.prepare), CodePart(f.main)) if isinstance(f, SplitFunc) else ()
    return Code(objects, {}, link=lambda manifest, objects: link_func(f), parts=parts)


def link_program(manifest: Manifest, objects: bytes) -> Linked:
    try:
        parts = json.loads(objects)
        s = replay(Dag.from_json(parts["dag"]), parts["trace"])
        ids = parts["arg_ids"]
    except (ValueError, KeyError, TypeError, TensorError, ScheduleError) as error:
        raise UsageError(f"the program of {manifest.entry!r} is damaged: {error}") from error
    return link_func(lower_ids(s, ids, manifest.entry))


def link_func(f: Func) -> Linked:
    """The interpreter of a function, and of its parts, at addresses."""
    functions = (f, f.prepare, f.main) if isinstance(f, SplitFunc) else (f,)
    last = threading.local()
    entries = {x.name: _ENTRY(_interpreter(x, last)) for x in functions}

    def complaint(code: int) -> Exception | None:
        error: BaseException | None = getattr(last, "error", None)
        last.error = None
        if code != _FAILED or error is None:
            return None
        if isinstance(error, RunError):
            return error
        if isinstance(error, Exception):
            return RunError(f"{f.name}: the interpreter failed: {type(error).__name__}: {error}")
        raise error  # Ctrl-C

    addresses = {name: ctypes.cast(x, ctypes.c_void_p).value for name, x in entries.items()}
    return Linked({name: at for name, at in addresses.items() if at}, entries, complaint)


def _interpreter(f: Func, last: threading.local) -> Callable[[Any, int | None], int]:
    """The entry of a function, run by the interpreter; an exception is left in ``last.error``."""
    run = prepare(f)

    def array(address: int, p: Buffer, sizes: Mapping[Var, int]) -> npt.NDArray[Any]:
        shape = tuple(evaluate(n, sizes) for n in p.shape)
        raw = (ctypes.c_char * (prod(shape) * dtypes.nbytes(p.dtype))).from_address(address)
        return np.frombuffer(memoryview(raw), p.dtype).reshape(shape)

    def call(args: Any, _: int | None) -> int:
        try:
            with np.errstate(all="ignore"):
                values = [
                    ctypes.c_int64(args[len(f.params) + k] or 0).value for k in range(len(f.sizes))
                ]
                sizes: dict[Var, int] = dict(zip(f.sizes, values, strict=True))
                run(*(array(args[k], p, sizes) for k, p in enumerate(f.params)), *values)
        except BaseException as error:
            last.error = error
            return _FAILED
        return 0

    return call


register_artifact_kind(replace(INTERP_KIND, link=link_program, needs=""))
INTERP = Backend(KINDS["interp"], INTERP_KIND.name, keep_program)

for _backend in (LLVM, C, INTERP, OPENCL, CUDA):
    register_backend(_backend)
