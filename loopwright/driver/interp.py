"""The ``interp`` target: a program that the interpreter runs, behind the interface of machine code:
a C callback ``int32_t f(void **args, void *workspace)``, so that checks, binding and timing are
those of the runtime. The artifact holds the tensor program and its trace as JSON."""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.codegen import Code, CodePart
from loopwright.driver.backends import Backend, LoweredProgram
from loopwright.errors import BuildError, RunError, ScheduleError, TensorError, UsageError
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Var
from loopwright.ir.interp.interpreter import prepare
from loopwright.ir.sizes import evaluate
from loopwright.ir.stmt import CallPacked, Func, SplitFunc
from loopwright.ir.visitor import contains
from loopwright.lowering import lower_ids
from loopwright.runtime.artifacts import kinds as artifact_kinds
from loopwright.runtime.artifacts.manifest import Manifest
from loopwright.runtime.linker import Linked
from loopwright.schedule.surface.schedule import replay
from loopwright.target import KINDS, Target
from loopwright.te.dag import Dag

_FAILED = 2
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)


def keep_program(program: LoweredProgram, target: Target) -> Code:
    """A program as the bytes of an artifact; in this process its function runs as it is.

    Refuses a lowered function alone, and a pass's calls of packed functions, which no schedule
    holds.
    """
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
    """Link an artifact of `keep_program`: lower it again."""
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

    def call(args: Any, _: int | None) -> int:
        try:
            with np.errstate(all="ignore"):
                values = [_integer(args[len(f.params) + k]) for k in range(len(f.sizes))]
                sizes: dict[Var, int] = dict(zip(f.sizes, values, strict=True))
                run(*(_array(args[k], p, sizes) for k, p in enumerate(f.params)), *values)
        except BaseException as error:
            last.error = error
            return _FAILED
        return 0

    return call


def _integer(slot: int | None) -> int:
    return ctypes.c_int64(slot or 0).value


def _array(address: int, p: Buffer, sizes: Mapping[Var, int]) -> npt.NDArray[Any]:
    shape = tuple(evaluate(n, sizes) for n in p.shape)
    raw = (ctypes.c_char * (prod(shape) * dtypes.nbytes(p.dtype))).from_address(address)
    return np.frombuffer(memoryview(raw), p.dtype).reshape(shape)


artifact_kinds.register_artifact_kind(replace(artifact_kinds.INTERP, link=link_program, needs=""))
INTERP = Backend(KINDS["interp"], artifact_kinds.INTERP.name, keep_program)
