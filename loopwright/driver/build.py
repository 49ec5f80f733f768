"""`build` for people, `compile` for builder processes; both end in the same artefact."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from loopwright.codegen import Code, compile_func
from loopwright.codegen.ops_llvm import C_FUNCTIONS
from loopwright.errors import BuildError, TargetError
from loopwright.ir.stmt import Func
from loopwright.lower import lower_ids, too_deep
from loopwright.runtime.artifact import Artifact
from loopwright.runtime.module import Module
from loopwright.schedule.schedule import Schedule, replay
from loopwright.target import Target
from loopwright.te.dag import Dag
from loopwright.te.tensor import Tensor
from loopwright.version import __version__


def build(
    s: Schedule,
    args: Sequence[Tensor],
    target: str | dict[str, Any] | Target | None = None,
    name: str = "main",
    target_host: str | dict[str, Any] | Target | None = None,
) -> Module:
    """Compile a schedule.

    Args:
        s: the schedule.
        args: inputs and outputs in calling order.
        target: a target or its string; default that of ``with target:``, else the host.
        name: name of the function.
        target_host: for scripts of TVM: None or an ``llvm`` target; the host needs no code of its
            own, so that it changes nothing.

    Returns:
        A module that is called with NumPy arrays or NDArrays: ``f(a, b, c)`` writes c.

    Raises:
        ScheduleError: a rule that needs extents is broken.
        LowerError: an argument is missing.
        CodegenError: the schedule cannot run on the target (a loop is bound to a GPU thread).
        BuildError: the name is not an identifier, or taken by a C function.
        TargetError: a target is not understood, or ``target_host`` is not a CPU.
    """
    _check_host(target_host)
    resolved = Target(target) if target is not None else Target.current()
    artifact, code = compile_schedule(s, s.arg_ids(args), resolved, name)
    return Module(
        artifact, {"ll": code.optimised, "asm": code.assembly, "ll-unoptimised": code.text}
    )


def _check_host(target_host: str | dict[str, Any] | Target | None) -> None:
    if target_host is None:
        return
    try:
        Target("llvm", target_host)
    except TargetError as error:
        raise TargetError(f"build: target_host must be a CPU: {error}") from None


def compile(
    dag: Dag, trace: Sequence[Any], arg_ids: Sequence[int], target: Target, name: str = "main"
) -> Artifact:
    """Compile a recorded trace; needs neither the template nor the user's tensors.

    Raises:
        ScheduleError: the trace is illegal for this DAG. Others as `build`.
    """
    return compile_schedule(replay(dag, trace), arg_ids, target, name)[0]


def compile_schedule(
    s: Schedule, arg_ids: Sequence[int], target: Target, name: str
) -> tuple[Artifact, Code]:
    """Lower, generate code, and describe the result in a manifest."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)) or name.startswith("lw_"):
        raise BuildError(
            f"build: the name {name!r} cannot be used; take letters, digits and underscores, "
            "not beginning with a digit or 'lw_'"
        )
    if name in C_FUNCTIONS:
        raise BuildError(f"build: the name {name!r} is that of a C function which code may call")
    f = lower_ids(s, arg_ids, name)
    try:
        code = compile_func(f, target)
    except RecursionError:
        raise too_deep(s) from None
    return Artifact(_manifest(f, code, target), code.objects), code


def _manifest(f: Func, code: Code, target: Target) -> dict[str, Any]:
    from loopwright.codegen.llvm import target_machine

    args = [
        {"name": p.name, "shape": list(p.shape), "dtype": p.dtype, "output": out}
        for p, out in zip(f.params, f.outputs, strict=True)
    ]
    function = {
        "name": f.name,
        "args": args,
        "workspace_bytes": code.workspace_bytes,
        "parallel_workspace_bytes": code.parallel_workspace_bytes,
        "uses_pool": code.uses_pool,
    }
    return {
        "format": 1,
        "kind": "llvm-object",
        "entry": f.name,
        "triple": target_machine(target).triple,
        "cpu": target.options["mcpu"],
        "features": target.options["mattr"],
        "num_threads": target.options["num_threads"],
        "functions": [function],
        "loopwright": __version__,
        "llvmlite": version("llvmlite"),
    }
