"""`build` for people, `compile` for builder processes; both end in the same artefact."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from loopwright.codegen import Code, compile_func
from loopwright.codegen.llvm.compiler import triple
from loopwright.codegen.llvm.ops import C_FUNCTIONS
from loopwright.driver import interp
from loopwright.driver.size_manifest import SizeManifest
from loopwright.errors import BuildError, TargetError
from loopwright.ir.sizes import SizeVar
from loopwright.ir.stmt import Func
from loopwright.lowering import lower_ids, too_deep
from loopwright.lowering.context import PassContext
from loopwright.runtime.artifact import C_KIND, KIND, Artifact
from loopwright.runtime.module import Module
from loopwright.schedule.surface.schedule import Schedule, replay
from loopwright.target import Target
from loopwright.te.dag import ArgId, Dag
from loopwright.te.tensor import Tensor
from loopwright.version import __version__

#: Texts of a program by kind, or functions that make them.
Sources = dict[str, str | Callable[[], str]]


def build(
    s: Schedule,
    args: Sequence[Tensor | SizeVar],
    target: str | dict[str, Any] | Target | None = None,
    name: str = "main",
    target_host: str | dict[str, Any] | Target | None = None,
) -> Module:
    """Compile a schedule.

    Args:
        s: the schedule.
        args: inputs and outputs in calling order, and size variables that are passed as ints.
            Other size variables come from the shapes of the arrays.
        target: a target or its string; default that of ``with target:``, else the host.
        name: name of the function.
        target_host: for scripts of TVM: None or a target for a CPU; the host needs no code of its
            own, so that it changes nothing.

    Returns:
        A module that is called with NumPy arrays or NDArrays: ``f(a, b, c)`` writes c.

    Raises:
        ScheduleError: a rule that needs extents is broken.
        LowerError: an argument is missing.
        CodegenError: the schedule cannot run on the target (a loop is bound to a GPU thread).
        BuildError: ``s`` is no schedule; the name is not an identifier, or taken by a C function; a
            size variable is neither told by an array nor passed.
        TargetError: a target is not understood, or ``target_host`` is not a CPU.
    """
    if not isinstance(s, Schedule):
        raise BuildError(f"build: expected a schedule and its arguments, got {s!r} first")
    _check_host(target_host)
    resolved = Target(target) if target is not None else Target.current()
    tensors = [a for a in args if not isinstance(a, SizeVar)]
    made = _make(s, s.arg_ids(tensors), resolved, name, _order(s, args))
    if resolved.kind == "interp":
        return Module(made.artifact, made.sources, lambda _: interp.link_func(made.func))
    return Module(made.artifact, made.sources)


def _order(s: Schedule, args: Sequence[Tensor | SizeVar]) -> list[int | SizeVar] | None:
    """The arguments of a call: arrays by number and sizes; None where no size is passed."""
    passed = [a for a in args if isinstance(a, SizeVar)]
    for v in passed:
        if v not in s.dag.sizes:
            raise BuildError(f"build: the program has no size variable {v.name!r}; leave it out")
    if len(set(passed)) != len(passed):
        raise BuildError("build: a size variable is given twice in the arguments")
    arrays = iter(range(len(args)))
    order = [a if isinstance(a, SizeVar) else next(arrays) for a in args]
    return order if passed else None


def _check_host(target_host: str | dict[str, Any] | Target | None) -> None:
    if target_host is None:
        return
    try:
        Target("llvm", target_host)
    except TargetError as error:
        raise TargetError(f"build: target_host must be a CPU: {error}") from None


def compile(
    dag: Dag,
    trace: Sequence[Any],
    arg_ids: Sequence[ArgId],
    target: Target,
    name: str = "main",
    passes: Mapping[str, Any] | None = None,
) -> Artifact:
    """Compile a recorded trace; needs neither the template nor the user's tensors.

    Args:
        dag: what is computed.
        trace: steps as in a record.
        arg_ids: inputs and outputs in calling order.
        target: for what code is made.
        name: name of the function.
        passes: settings of the `PassContext` to lower in, as its ``to_json`` gave them in another
            process; None: the current context's.

    Raises:
        ScheduleError: the trace is illegal for this DAG. Others as `build`.
    """
    if passes is None:
        return compile_schedule(replay(dag, trace), arg_ids, target, name)[0]
    with PassContext.from_json(passes):
        return compile_schedule(replay(dag, trace), arg_ids, target, name)[0]


def compile_schedule(
    s: Schedule, arg_ids: Sequence[ArgId], target: Target, name: str
) -> tuple[Artifact, Sources]:
    """Lower, generate code, and describe the result in a manifest; also its texts by kind."""
    made = _make(s, arg_ids, target, name)
    return made.artifact, made.sources


@dataclass(frozen=True, slots=True)
class _Made:
    artifact: Artifact
    sources: Sources
    func: Func


def _make(
    s: Schedule,
    arg_ids: Sequence[ArgId],
    target: Target,
    name: str,
    order: Sequence[int | SizeVar] | None = None,
) -> _Made:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)) or name.startswith("lw_"):
        raise BuildError(
            f"build: the name {name!r} cannot be used; take letters, digits and underscores, "
            "not beginning with a digit or 'lw_'"
        )
    if name in C_FUNCTIONS:
        raise BuildError(f"build: the name {name!r} is that of a C function which code may call")
    f = lower_ids(s, arg_ids, name)
    if target.kind == "interp":
        manifest = _manifest(f, None, target, interp.KIND, s.dag, order)
        artifact = Artifact(manifest, interp.program(s, arg_ids))
        return _Made(artifact, {"ir": lambda: str(f)}, f)
    try:
        code = compile_func(f, target)
    except RecursionError:
        raise too_deep(s) from None
    sources: Sources = {"c": code.text, "asm": code.assembly}
    if target.kind == "llvm":
        sources = {"ll": code.optimised, "asm": code.assembly, "ll-unoptimised": code.text}
    kind = C_KIND if target.kind == "c" else KIND
    manifest = _manifest(f, code, target, kind, s.dag, order)
    return _Made(Artifact(manifest, code.objects), {**sources, "ir": lambda: str(f)}, f)


def _manifest(
    f: Func,
    code: Code | None,
    target: Target,
    kind: str = KIND,
    dag: Dag | None = None,
    order: Sequence[int | SizeVar] | None = None,
) -> dict[str, Any]:
    sizes = SizeManifest(f.sizes)
    args = [
        {
            "name": p.name,
            "shape": [sizes.json(n) for n in p.shape],
            "dtype": p.dtype,
            "output": out,
        }
        for p, out in zip(f.params, f.outputs, strict=True)
    ]
    function = {
        "name": f.name,
        "args": args,
        "workspace_bytes": sizes.json(code.workspace_bytes) if code else 0,
        "parallel_workspace_bytes": sizes.json(code.parallel_workspace_bytes) if code else 0,
        "uses_pool": bool(code and code.uses_pool),
    }
    if code and code.checks:
        function["checks"] = list(code.checks)
    if f.sizes:
        function |= sizes.fields(f, dag, order)
    return {
        "format": 2 if f.sizes else 1,
        "kind": kind,
        "entry": f.name,
        "triple": triple() if code else "",
        "cpu": target.options.get("mcpu", ""),
        "features": target.options.get("mattr", ""),
        "num_threads": target.options.get("num_threads", 1),
        "functions": [function],
        "loopwright": __version__,
        "llvmlite": version("llvmlite"),
    }
