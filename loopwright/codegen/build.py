"""`build` for people, `compile` for builder processes; both end in the same artifact."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

from loopwright.codegen.backends import LoweredProgram, backend_of, compile_program
from loopwright.codegen.code import C_FUNCTIONS, Code, CodePart, SourceText
from loopwright.codegen.kernel_cache import kernel_cache, schedule_key
from loopwright.codegen.manifests import SizeManifest
from loopwright.env import version
from loopwright.errors import BuildError, TargetError
from loopwright.ir.sizes import SizeVar
from loopwright.ir.stmt import Func, SplitFunc
from loopwright.lowering import PassContext, lower_ids
from loopwright.runtime import ArgSpec, Artifact, FunctionSpec, Manifest, Module, PartsSpec
from loopwright.schedule import Schedule, replay
from loopwright.target import KINDS, Target, TargetLike
from loopwright.te import ArgId, Dag, OperandBuffer, Tensor
from loopwright.version import __version__

#: Buffers of arguments by tensor, as TVM's scripts declare them.
Binds = Mapping[Tensor, OperandBuffer]
#: Texts of a program by kind, or functions that write them.
Sources = dict[str, SourceText]


def build(
    s: Schedule | Func,
    args: Sequence[Tensor | SizeVar] | None = None,
    target: TargetLike | None = None,
    target_host: TargetLike | None = None,
    name: str = "main",
    binds: Binds | None = None,
    *,
    verify: bool = False,
    cache: bool | None = None,
) -> Module:
    """Compile a schedule.

    Args:
        s: the schedule; or a function of `loopwright.lower`, which is compiled as it is
            (``build(lower(s, args), target="llvm")``) and keeps its name.
        args: inputs and outputs in calling order, and size variables that are passed as ints.
            Other size variables come from the shapes of the arrays. None for a lowered function.
        target: a target or its string; default that of ``with target:``, else the host.
        target_host: for scripts of TVM: None or a target for a CPU; the host needs no code of its
            own, so that it changes nothing.
        binds: for scripts of TVM: buffers of arguments (`loopwright.tir.decl_buffer`). Arguments
            are row-major without gaps, so that only such buffers are accepted; they change nothing.
        verify: time the kernel as users call it, and enter that in the report of the
            ``apply_history_best`` that chose the schedule, beside the time that it expects.
        cache: keep the machine code on disk, and take it from there when the same program was built
            before; None: where ``apply_history_best`` chose the schedule. ``LOOPWRIGHT_CACHE`` says
            where, or 0 for nowhere.

    Returns:
        A module that is called with NumPy arrays or NDArrays: ``f(a, b, c)`` writes c.

    Raises:
        ScheduleError: a rule that needs extents is broken.
        LowerError: an argument is missing.
        CodegenError: the schedule cannot run on the target (a loop is bound to a GPU thread).
        BuildError: ``s`` is no schedule; the name is not an identifier, or taken by a C function; a
            size variable is neither determined by an array nor passed; ``binds`` asks for another
            layout; nothing to verify against.
        TargetError: a target is not understood, or ``target_host`` is not a CPU.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> f = lw.build(te.create_schedule(B.op), [A, B], "llvm", name="add_one")
        >>> a, b = np.array([1, 2, 3, 4], "float32"), np.empty(4, "float32")
        >>> f(a, b)
        >>> print(b)
        [2. 3. 4. 5.]
    """
    if isinstance(s, Func):
        if args is not None or binds or verify or cache or name not in ("main", s.name):
            raise BuildError(
                f"build: {s.name!r} is lowered already, with its arguments and its name: give the "
                "target alone, or the schedule in its place"
            )
        return build_func(s, target)
    if not isinstance(s, Schedule) or args is None:
        raise BuildError(f"build: expected a schedule and its arguments, got {s!r} first")
    _check_host(target_host)
    _check_binds(binds or {}, args)
    resolved = Target(target) if target is not None else Target.current()
    origin = s.origin
    if verify and not isinstance(origin, Verifier):
        raise BuildError(
            "build: verify compares with what a record expects; make the schedule by calling its "
            "template inside apply_history_best"
        )
    module = begin_build(s, args, resolved, name, origin is not None if cache is None else cache)()
    if verify and isinstance(origin, Verifier):
        origin.verify(module)
    return module


def begin_build(
    s: Schedule, args: Sequence[Tensor | SizeVar], target: Target, name: str, cache: bool
) -> Callable[[], Module]:
    """The part of `build` that runs in Python; the function that it returns, which may be called in
    any thread, generates the machine code. Errors are those of `build`."""
    tensors = [a for a in args if not isinstance(a, SizeVar)]
    s = s.with_arguments(tensors)
    program = s, s.arg_ids(tensors), target, name, _order(s, args)
    return _cached(*program) if cache else _build(*program).module


@runtime_checkable
class Verifier(Protocol):
    """The origin of a schedule (``Schedule.origin``), which knows how fast its kernel should be."""

    def verify(self, module: Module) -> object: ...


def build_func(f: Func, target: TargetLike | None = None) -> Module:
    """Compile a lowered function alone, whatever it was lowered from.

    The function is one that `loopwright.lower` or passes return, the target as of `build`.

    Raises:
        CodegenError: the function cannot run on the target.
        BuildError: the target needs the schedule (``interp``), or no array determines a size.
        TargetError: the target is not understood.
    """
    resolved = Target(target) if target is not None else Target.current()
    return _build_program(LoweredProgram(f), resolved).module()


def _order(s: Schedule, args: Sequence[Tensor | SizeVar]) -> list[int | SizeVar] | None:
    """The arguments of a call: arrays by number and sizes; None where no size is passed."""
    passed = [a for a in args if isinstance(a, SizeVar)]
    for v in passed:
        if v not in s.dag.sizes:
            raise BuildError(f"build: the program has no size variable {v.name!r}; leave it out")
    if len(set(passed)) != len(passed):
        raise BuildError("build: a size variable is given twice in the arguments")
    arrays = iter(range(len(args)))
    return [a if isinstance(a, SizeVar) else next(arrays) for a in args] if passed else None


def _check_host(target_host: TargetLike | None) -> None:
    if target_host is None:
        return
    try:
        Target("llvm", target_host)
    except TargetError as error:
        hint = ""
        if str(target_host).isidentifier() and target_host not in KINDS:
            hint = f"; a name of the function is given as name={target_host!r}"
        raise TargetError(f"build: target_host must be a CPU: {error}{hint}") from None


def _check_binds(binds: Binds, args: Sequence[Tensor | SizeVar]) -> None:
    for tensor, buffer in binds.items():
        if not any(tensor is arg for arg in args):
            raise BuildError(f"build: binds names {tensor!r}, which is no argument")
        if (buffer.shape, buffer.dtype) != (tensor.shape, tensor.dtype) or not buffer.compact:
            raise BuildError(
                f"build: binds asks for a buffer {buffer.dtype}{list(buffer.shape)} of strides "
                f"{list(buffer.strides)} for {tensor.name!r}, and arguments are row-major without "
                "gaps: leave it out, or pass a contiguous copy"
            )


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
        trace: steps as in a record.
        arg_ids: inputs and outputs in calling order.
        passes: settings of the `PassContext` to lower in, as its ``to_json`` gave them in another
            process; None: the current context's.

    Raises:
        ScheduleError: the trace is illegal for this DAG. Others as `build`.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> data = s.dag, s.trace_json(), s.arg_ids([A, B])
        >>> artifact = lw.driver.compile(*data, lw.Target("llvm"))
        >>> b = np.empty(4, "float32")
        >>> lw.runtime.Module(artifact)(np.zeros(4, "float32"), b)
        >>> print(b)
        [1. 1. 1. 1.]
    """
    return compile_lowered(lower_trace(dag, trace, arg_ids, name, passes), target)


def lower_trace(
    dag: Dag,
    trace: Sequence[Any],
    arg_ids: Sequence[ArgId],
    name: str = "main",
    passes: Mapping[str, Any] | None = None,
) -> LoweredProgram:
    """The first half of `compile`: lower a recorded trace; `compile_lowered` is the second."""
    _check_name(name)
    if passes is None:
        s = replay(dag, trace)
        return LoweredProgram(lower_ids(s, arg_ids, name), s, arg_ids)
    with PassContext.from_json(passes):
        return lower_trace(dag, trace, arg_ids, name)


def compile_lowered(program: LoweredProgram, target: Target) -> Artifact:
    """Generate the code of a lowered program and describe it; errors as of `build`."""
    return _build_program(program, target).artifact()


def compile_schedule(
    s: Schedule, arg_ids: Sequence[ArgId], target: Target, name: str
) -> tuple[Artifact, Sources]:
    """Lower, generate code, and describe the result in a manifest; also its texts by kind."""
    built = _build(s, arg_ids, target, name)
    return built.artifact(), built.sources


@dataclass(frozen=True, slots=True)
class _Built:
    """A program, its description, and its texts."""

    code: Code
    manifest: Manifest
    sources: Sources

    def artifact(self) -> Artifact:
        return Artifact(self.manifest.to_json(), self.code.objects)

    def module(self) -> Module:
        return Module(self.artifact(), self.sources, self.code.link)


def _build(
    s: Schedule,
    arg_ids: Sequence[ArgId],
    target: Target,
    name: str,
    order: Sequence[int | SizeVar] | None = None,
) -> _Built:
    _check_name(name)
    return _build_program(LoweredProgram(lower_ids(s, arg_ids, name), s, arg_ids), target, order)


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)) or name.startswith("lw_"):
        raise BuildError(
            f"build: the name {name!r} cannot be used; take letters, digits and underscores, "
            "not beginning with a digit or 'lw_'"
        )
    if name in C_FUNCTIONS:
        raise BuildError(f"build: the name {name!r} is that of a C function which code may call")


def _cached(
    s: Schedule,
    arg_ids: Sequence[ArgId],
    target: Target,
    name: str,
    order: Sequence[int | SizeVar] | None,
) -> Callable[[], Module]:
    """The module with its code from the disk if it is there; its texts are written on request."""
    cache = kernel_cache()
    key = None if cache is None else schedule_key(s, arg_ids, target, name, order)
    if cache is None or key is None:
        return _build(s, arg_ids, target, name, order).module
    artifact = cache.get(key)
    if artifact is None:
        built = _build(s, arg_ids, target, name, order)

        def finish() -> Module:
            module = built.module()
            cache.put(key, module.artifact)
            return module

        return finish
    trace = s.trace_json()  # as it is now: the caller may go on scheduling
    context = PassContext.current()

    def texts() -> Sources:
        with context:
            return _build(replay(s.dag, trace), arg_ids, target, name, order).sources

    return partial(Module, artifact, texts)


def _build_program(
    program: LoweredProgram, target: Target, order: Sequence[int | SizeVar] | None = None
) -> _Built:
    f, s = program.func, program.schedule
    code = compile_program(program, target)
    manifest = _manifest(f, code, target, s.dag if s is not None else None, order)
    sources: Sources = {**code.sources, "ir": lambda: str(f)}
    return _Built(code, manifest, sources)


def _manifest(
    f: Func, code: Code, target: Target, dag: Dag | None, order: Sequence[int | SizeVar] | None
) -> Manifest:
    sizes = SizeManifest(f.sizes)
    # Where sizes are passed, a call of the second part alone would not know their places.
    code_parts = () if any(isinstance(x, SizeVar) for x in order or ()) else code.parts
    parts_spec = None
    if isinstance(f, SplitFunc) and code_parts:
        number = {p: k for k, p in enumerate(f.params)}
        first, second = (
            tuple(number[p] for p in part.params if p in number) for part in (f.prepare, f.main)
        )
        parts_spec = PartsSpec(f.prepare.name, f.main.name, first, second)

    def spec(
        g: Func, needs: Code | CodePart, order: Sequence[int | SizeVar] | None
    ) -> FunctionSpec:
        shapes = [tuple(sizes.formula(n) for n in p.shape) for p in g.params]
        return FunctionSpec(
            g.name,
            tuple(
                ArgSpec(p.name, shape, p.dtype, output, p.constant)
                for p, shape, output in zip(g.params, shapes, g.outputs, strict=True)
            ),
            sizes.formula(needs.workspace_bytes),
            sizes.formula(needs.parallel_workspace_bytes),
            code.uses_pool,
            sizes=sizes.spec(g, dag, order) if g.sizes else None,
        )

    whole = replace(spec(f, code, order), checks=code.checks, packed=code.packed, parts=parts_spec)
    parts = [spec(part.func, part, None) for part in code_parts]
    unit = target.vector_unit
    return Manifest(
        backend_of(target).artifact_kind,
        f.name,
        code.triple,
        target.options.get("mcpu", ""),
        target.options.get("mattr", ""),
        target.options.get("num_threads", 1),
        (whole, *parts),
        2 if f.sizes else 1,
        __version__,
        version("llvmlite"),
        () if unit is None else unit.needs,
    )
