"""One schedule on every execution path: NumPy, the interpreter, compiled code on guarded memory."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, assert_never

import numpy as np

from fuzzing.guarded import (
    COMPILER_DID_NOT_END,
    COMPILER_FAILED,
    OPTIMISER_CRASHED,
    UNOPTIMISED,
    GuardedRunner,
    is_endless_compilation,
    is_of_the_optimiser,
    is_pocl_assertion,
    with_second_run,
)
from fuzzing.random.expr import Info, poison
from fuzzing.random.program import Program, arrays
from loopwright import dtypes, te
from loopwright.codegen.kernel_cache import KernelCache, cache_key
from loopwright.driver import compile as compile_trace
from loopwright.errors import BuildError, LowerError, RunError, ScheduleError, TooMuchCodeError
from loopwright.ir.buffer import Buffer
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.sizes import size_vars
from loopwright.ir.stmt import Func, SplitFunc
from loopwright.lowering import lower_ids
from loopwright.lowering.context import PassContext
from loopwright.records import build_hash
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.devices.device import Device
from loopwright.schedule.schedule import Schedule, replay
from loopwright.target import Target
from loopwright.te.dag import ArgId, Dag, arg_id, read_arg_id
from loopwright.te.tensor import Tensor
from loopwright.testing.numpy_eval import Array, evaluate
from loopwright.testing.target_contract import is_for_devices, runs_here

#: Days after which the entries of other versions of the compiler are removed.
_KEPT_DAYS = 3


class ArtifactCache:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def kernels(self) -> KernelCache:
        """Entries of this version of the compiler; made at first use, when variables are set."""
        kernels = KernelCache(self._folder / build_hash())
        oldest = time.time() - _KEPT_DAYS * 86400
        for other in self._folder.glob("*"):
            if other.name != kernels.folder.name and other.stat().st_mtime < oldest:
                shutil.rmtree(other, ignore_errors=True)
        return kernels

    @property
    def hits(self) -> int:
        return self.kernels.hits

    @property
    def misses(self) -> int:
        return self.kernels.misses

    def compile(
        self,
        dag: dict[str, Any],
        trace: list[list[Any]],
        arg_ids: Sequence[ArgId],
        target: Target,
        context: PassContext,
        name: str = "main",
    ) -> Artifact:
        key = cache_key(dag, trace, arg_ids, target, context.to_json(), name)
        artifact = None if key is None else self.kernels.get(key)
        if artifact is not None:
            return artifact
        with context:
            artifact = compile_trace(Dag.from_json(dag), trace, arg_ids, target, name)
        if key is not None:
            self.kernels.put(key, artifact)
        return artifact


PathKind = Literal["round trip", "interpreter", "passes", "target"]


@dataclass(frozen=True)
class ExecutionPath:
    """One way to execute a schedule.

    ``"round trip"`` writes the trace as JSON and as Python source and reads it back;
    ``"interpreter"`` interprets the lowered program; ``"passes"`` compares the program with all
    passes to the one with the default passes; ``"target"`` runs compiled code.
    """

    kind: PathKind
    #: The target string of compiled code.
    target: str = ""
    #: The optimisation level of the passes, 0 to 3.
    level: int = 2
    #: Whether compiled code checks every access.
    checked: bool = False
    #: Seed of the order of GPU threads in the interpreter; None: ascending.
    order: int | None = 1
    #: The end of each array that lies against a forbidden page.
    side: Literal["start", "end"] = "end"
    #: Values of size variables, by name.
    sizes: dict[str, int] = field(default_factory=dict, hash=False)
    #: Whether to call the two parts of a function of constants one after the other.
    prepared: bool = False

    @property
    def config(self) -> dict[str, bool]:
        return {"verify": True} | ({"instrument_bound_checkers": True} if self.checked else {})

    def __str__(self) -> str:
        text = f"{self.target} at level {self.level}" if self.kind == "target" else self.kind
        text += ", bounds checked" if self.checked else ""
        text += ", in two parts" if self.prepared else ""
        text += "" if self.order == 1 else f", threads in order {self.order}"
        return text + (f", {self.sizes}" if self.sizes else "")


#: Levels of passes at which targets are compiled, in turn, and whether bounds are checked.
LEVELS = ((2, False), (3, False), (0, True))


@dataclass
class Case:
    #: As JSON, as is the trace.
    dag: dict[str, Any]
    trace: list[list[Any]]
    arg_ids: list[ArgId]
    #: One for each argument; outputs hold their contents before the run.
    arrays: list[Array]
    #: Allowed errors of each argument.
    infos: list[Info]
    #: Values of size variables, by name.
    sizes: dict[str, int] = field(default_factory=dict)
    #: Relative error allowed for inexact results beside that of ``infos``.
    rtol: float = 0.0

    def report(self) -> str:
        s = replay(Dag.from_json(self.dag), self.trace)
        return f"{json.dumps(self.dag)}\n{json.dumps(self.trace)}\n{s.as_python()}"


def case_of(program: Program, trace: list[list[Any]]) -> Case:
    from loopwright.schedule import create_schedule

    s = create_schedule(list(program.outputs))
    ids = s.arg_ids(program.tensors)
    return Case(s.dag.to_json(), trace, ids, arrays(program), list(program.infos))


@dataclass
class Prepared:
    case: Case
    s: Schedule
    f: Func
    want: Mapping[ArgId, Array]

    @property
    def is_kernel(self) -> bool:
        """Whether it runs on GPU threads, which the interpreter and devices have, but no CPU."""
        return " in thread(" in str(self.f)


class Checker:
    """Checks cases; owns the process with guarded memory, and one without a driver's optimiser.

    With a cache of compiled code it must not be used while the compiler is patched.
    """

    def __init__(self, cache: ArtifactCache | None = None) -> None:
        self.runner = GuardedRunner()
        self.unoptimised = GuardedRunner(UNOPTIMISED)
        #: Runs of compiled code by target, of the interpreter, and reasons for runs that were left
        #: out.
        self.runs: Counter[str] = Counter()
        #: The execution path that was followed last.
        self.path = ExecutionPath("interpreter")
        self._cache = cache
        self._last_case: Case | None = None
        self._artifacts: dict[ExecutionPath, Artifact] = {}

    def close(self) -> None:
        self.runner.close()
        self.unoptimised.close()

    def check(self, case: Case, targets: Sequence[str]) -> str:
        """Replay and check one case; returns ``"ran"``, or ``"refused"`` for an invalid schedule or
        too much code. Different results, changed inputs or memory around arrays are an
        `AssertionError`."""
        self.path = ExecutionPath("interpreter", sizes=case.sizes)
        try:
            prepared = self.prepare(case)
        except (ScheduleError, TooMuchCodeError):
            return "refused"
        except LowerError as error:
            if "threads" in f"{error}":  # a rule that needs the lowered program
                return "refused"
            raise
        for path in execution_paths(prepared, targets):
            self.run(prepared, path)
        return "ran"

    def prepare(self, case: Case) -> Prepared:
        dag = Dag.from_json(case.dag)
        s = replay(dag, case.trace)
        f = lower_ids(s, case.arg_ids)
        inputs = {
            i: a
            for i, a in zip(case.arg_ids, case.arrays, strict=True)
            if dag.ops[read_arg_id(i)[0]].is_placeholder
        }
        return Prepared(case, s, f, evaluate(dag.bind(case.sizes), inputs))

    def run(self, prepared: Prepared, path: ExecutionPath) -> None:
        """Follow one execution path with a case, and compare as `check` does.

        Checks of bounds, and passes that are left out, may make a program longer than the limit:
        nothing runs. A kernel of OpenCL that fails runs once more without the driver's optimiser.
        """
        self.path = path
        try:
            got = self._executed(prepared, path)
            if got is not None:
                self._compare(prepared, got)
        except TooMuchCodeError:
            self.runs["refused as too long"] += 1
            return
        except (LowerError, BuildError) as error:
            if "gpu limits" not in f"{error}":
                raise
            self.runs["beyond the limits of a device"] += 1
            return
        except (RunError, AssertionError) as error:
            self._blame(prepared, path, error)
            return
        if got is not None:
            self.runs[path.target or path.kind] += 1

    def _blame(
        self, prepared: Prepared, path: ExecutionPath, error: RunError | AssertionError
    ) -> None:
        """Count a fault of the driver; any other failure is raised."""
        if is_pocl_assertion(error):
            self.runs[COMPILER_FAILED] += 1
            return
        if path.kind != "target" or Target(path.target).kind != "opencl":
            raise error
        if is_endless_compilation(error):
            self.runs[COMPILER_DID_NOT_END] += 1
            return
        second = self._without_optimiser(prepared, path)
        if not is_of_the_optimiser(error, second):
            raise with_second_run(error, second) from error
        self.runs[OPTIMISER_CRASHED] += 1

    def _without_optimiser(self, prepared: Prepared, path: ExecutionPath) -> str:
        case = prepared.case
        try:
            artifact = self._artifact(case, path)
            got = self.unoptimised.run(artifact, case.arrays, path.side, path.prepared)
            self._compare(prepared, got)
        except (RunError, AssertionError) as error:
            return f"{error}".partition("\n")[0]
        return ""

    def _executed(self, prepared: Prepared, path: ExecutionPath) -> list[Array] | None:
        case = prepared.case
        match path.kind:
            case "round trip":
                check_round_trips(prepared.s, prepared.f, case.arg_ids)
                return None
            case "passes":
                check_passes(prepared.s, prepared.f, case)
                return None
            case "interpreter":
                run = interpreted_parts if path.prepared else _interpreted
                return run(prepared.f, case, path.order)
            case "target":
                artifact = self._artifact(case, path)
                if is_for_devices(path.target) and not Device(Target(path.target).kind).exist:
                    self.runs[f"{path.target}, compiled only"] += 1
                    return None
                return self.runner.run(artifact, case.arrays, path.side, path.prepared)
            case _:
                assert_never(path.kind)

    def _artifact(self, case: Case, path: ExecutionPath) -> Artifact:
        """The compiled code, reused between sizes of the same program and trace."""
        last = self._last_case
        if last is None or last.dag is not case.dag or last.trace is not case.trace:
            self._artifacts = {}
        self._last_case = case
        key = replace(path, sizes={}, side="end", prepared=False)
        if key not in self._artifacts:
            self._artifacts[key] = self._compile(case, path)
        return self._artifacts[key]

    def _compile(self, case: Case, path: ExecutionPath) -> Artifact:
        target, context = Target(path.target), PassContext(path.level, config=path.config)
        if self._cache is not None:
            return self._cache.compile(case.dag, case.trace, case.arg_ids, target, context)
        with context:
            return compile_trace(Dag.from_json(case.dag), case.trace, case.arg_ids, target)

    def _compare(self, prepared: Prepared, got: list[Array]) -> None:
        case, f = prepared.case, prepared.f
        for k, i in enumerate(case.arg_ids):
            if not f.outputs[k]:
                same = case.arrays[k].tobytes() == got[k].tobytes()
                assert same, f"{self.path} changed the input {f.params[k].name}\n{f}"
                continue
            text = difference(
                prepared.want[arg_id(*read_arg_id(i))], got[k], case.infos[k], case.rtol
            )
            assert not text, f"{self.path}, {f.params[k].name}: {text}\n{f}\n{case.report()}"


def execution_paths(prepared: Prepared, targets: Sequence[str]) -> Iterator[ExecutionPath]:
    """The paths of a case: those without a compiler, then the targets that can run it.

    A function in two parts runs as a whole, and its parts by themselves.
    """
    sizes = prepared.case.sizes
    in_parts = isinstance(prepared.f, SplitFunc)
    yield ExecutionPath("round trip", sizes=sizes)
    yield ExecutionPath("interpreter", sizes=sizes)
    if in_parts:
        yield ExecutionPath("interpreter", sizes=sizes, prepared=True)
    yield ExecutionPath("passes", sizes=sizes)
    if prepared.is_kernel:  # no CPU runs it; the interpreter does, in other orders of threads too
        yield ExecutionPath("interpreter", sizes=sizes, order=2)
        yield ExecutionPath("interpreter", sizes=sizes, order=None)
        targets = [t for t in targets if is_for_devices(t)]
    dag = prepared.s.dag
    shapes = [dag.ops[read_arg_id(a)[0]].shape for a in prepared.case.arg_ids]
    if not set(dag.sizes) <= {v for shape in shapes for v in size_vars(shape)}:
        return  # no argument tells the size
    text = str(prepared.f)
    for k, spec in enumerate(t for t in targets if runs_here(t)):
        if "num-threads=2" in spec and "in parallel(" not in text:
            continue
        level, checked = LEVELS[k % len(LEVELS)]
        checked = checked and not is_for_devices(spec)
        side: Literal["start", "end"] = "start" if k % 2 else "end"
        path = ExecutionPath("target", spec, level, checked, side=side, sizes=sizes)
        yield path
        if in_parts:
            yield replace(path, prepared=True)


def check_passes(s: Schedule, f: Func, case: Case) -> None:
    with PassContext(3, config={"verify": True}):
        other = lower_ids(s, case.arg_ids)
    if str(other) == str(f):
        return
    meant, got = _interpreted(f, case), _interpreted(other, case)
    for p, a, b in zip(f.params, meant, got, strict=True):
        nan = dtypes.is_float(a.dtype.name)
        same = a.tobytes() == b.tobytes() or np.array_equal(a, b, equal_nan=nan)
        assert same, f"{p.name} differs at level 3\n{f}\n{other}\n{case.report()}"


def _interpreted(f: Func, case: Case, order: int | None = 1) -> list[Array]:
    out = [a.copy() for a in case.arrays]
    interpret(f, out, case.sizes, thread_order=order, races=True)
    return out


def interpreted_parts(f: Func, case: Case, order: int | None = 1) -> list[Array]:
    assert isinstance(f, SplitFunc)
    out = [a.copy() for a in case.arrays]
    place: dict[Buffer, Array] = dict(zip(f.params, out, strict=True))
    place |= {b: poison(b.extents, b.dtype) for b in f.kept}
    for part in (f.prepare, f.main):
        interpret(part, [place[b] for b in part.params], thread_order=order, races=True)
    return out


def difference(want: Array, got: Array, info: Info, rtol: float = 0.0) -> str:
    """The place where two results differ by more than ``info`` (and ``rtol``) allows, or ''."""
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"expected {want.dtype}{list(want.shape)}, got {got.dtype}{list(got.shape)}"
    if (info.exact and not rtol) or not dtypes.is_float(want.dtype.name):
        good = np.asarray(want == got)
        if dtypes.is_float(want.dtype.name):
            good |= np.isnan(want) & np.isnan(got)
    else:
        with np.errstate(all="ignore"):
            g, w = got.astype(np.float64), want.astype(np.float64)
            good = np.isclose(g, w, rtol=rtol, atol=4 * info.err + 1e-30, equal_nan=True)
    if good.all():
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(~good)))
    w, g = np.atleast_1d(want)[at], np.atleast_1d(got)[at]
    n = int((~good).sum())
    return f"{n} of {want.size} elements differ, first at {at}: expected {w!r}, got {g!r} ({info})"


def check_round_trips(s: Schedule, f: Func, arg_ids: Sequence[ArgId]) -> None:
    dag = Dag.from_json(json.loads(json.dumps(s.dag.to_json())))
    assert dag.hash == s.dag.hash
    again = replay(dag, json.loads(json.dumps(s.trace_json())))
    assert str(lower_ids(again, arg_ids)) == str(f), "a replayed trace gives another program"
    scope: dict[str, Any] = {"te": te}
    exec(compile(s.as_python(), "<schedule>", "exec"), scope)
    fresh = replay(s.dag, [])
    scope["schedule"](fresh, *fresh.tensors)
    assert fresh.trace == s.trace, f"the Python source gives another trace:\n{s.as_python()}"


def check_schedule(
    s: Schedule,
    args: Sequence[Tensor],
    inputs: Sequence[Array],
    infos: Sequence[Info] | None = None,
    targets: Sequence[str] = ("llvm -num-threads=1", "llvm -num-threads=2"),
    checker: Checker | None = None,
) -> Func:
    """Check a schedule made by hand on all execution paths; returns the lowered function.

    ``args`` are inputs, then outputs; ``infos`` are those of each output, exact by default.
    """
    ids = s.arg_ids(args)
    given = list(inputs)
    for i in ids[len(given) :]:
        op, k = read_arg_id(i)
        given.append(poison(s.dag.ops[op].static_shape, s.dag.ops[op].dtypes[k]))
    exact = Info(True, 0.0, 1.0, 0.0)
    known = [exact] * len(inputs) + list(infos or [exact] * (len(ids) - len(inputs)))
    own = checker or Checker()
    case = Case(s.dag.to_json(), s.trace_json(), ids, given, known)
    try:
        done = own.check(case, targets)
    finally:
        if checker is None:
            own.close()
    assert done == "ran", "the schedule does not validate"
    return lower_ids(s, ids)
