"""One schedule, every way to run it: NumPy, the interpreter, compiled code on guarded memory.

`Checker.check` replays a trace, takes it through JSON and Python source, and compares all results.
"""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.driver import compile as compile_trace
from loopwright.errors import LowerError, ScheduleError
from loopwright.ir.interp import interpret
from loopwright.ir.stmt import Func
from loopwright.lower import lower_ids
from loopwright.lower.context import PassContext
from loopwright.schedule.schedule import Schedule, replay
from loopwright.target import Target, host_cpu
from loopwright.te.dag import ArgId, Dag, read_arg_id
from loopwright.testing.guarded import GuardedRunner
from loopwright.testing.numpy_eval import evaluate
from loopwright.testing.random_program import arrays
from loopwright.testing.random_values import Info, poison

Array = np.ndarray[Any, Any]
#: Levels of passes at which the targets of a case are compiled, in turn, with further settings.
LEVELS: tuple[tuple[int, dict[str, Any]], ...] = (
    (2, {}),
    (3, {}),
    (0, {"instrument_bound_checkers": True}),
)


@dataclass
class Case:
    """A program as data, with a trace: all that a run needs, and what a report prints."""

    dag: dict[str, Any]
    trace: list[list[Any]]
    arg_ids: list[ArgId]
    arrays: list[Array]
    infos: list[Info]

    def report(self) -> str:
        """The program and its schedule as text that shows what is computed."""
        s = replay(Dag.from_json(self.dag), self.trace)
        return f"{json.dumps(self.dag)}\n{json.dumps(self.trace)}\n{s.as_python()}"


def runs_here(target: str) -> bool:
    """Whether this machine can make and run code for a target.

    It runs code for its own CPU and for generic x86 ones; ``c`` needs a compiler.
    """
    if target.startswith("c") and shutil.which(Target(target).cc) is None:
        return False
    if "-mcpu=x86-64" not in target:
        return True
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return x86 and ("x86-64-v3" not in target or {"+avx2", "+fma"} <= set(host_cpu()[1].split(",")))


def case_of(program: Any, trace: list[list[Any]]) -> Case:
    """The case of a `Program` and a trace."""
    from loopwright.schedule import create_schedule

    s = create_schedule(list(program.outputs))
    ids = s.arg_ids(program.tensors)
    return Case(s.dag.to_json(), trace, ids, arrays(program), list(program.infos))


class Checker:
    """Checks cases; owns the guarded process.

    Attributes:
        runs: how often compiled code ran, by target.
    """

    def __init__(self) -> None:
        self.runner = GuardedRunner()
        self.runs: dict[str, int] = {}

    def close(self) -> None:
        """End the guarded process."""
        self.runner.close()

    def check(self, case: Case, targets: Sequence[str]) -> str:
        """Check one case.

        Returns:
            ``"ran"``, or ``"refused"`` when the schedule does not validate.

        Raises:
            AssertionError: results differ, or an input or the memory around an array changed.
        """
        dag = Dag.from_json(case.dag)
        s = replay(dag, case.trace)
        try:
            f = lower_ids(s, case.arg_ids)
        except ScheduleError:
            return "refused"
        except LowerError as error:
            if "the threads of a block must meet" not in str(error):
                raise
            return "refused"
        check_round_trips(s, f, case.arg_ids)
        want = evaluate(
            dag,
            {
                i: a
                for i, a in zip(case.arg_ids, case.arrays, strict=True)
                if dag.ops[read_arg_id(i)[0]].is_placeholder
            },
        )
        meant = _interpreted(f, case.arrays)
        self._compare("interpreter", case, f, want, meant)
        check_passes(s, f, case, meant)
        text = str(f)
        if " in thread(" in text:  # a kernel: the interpreter alone runs it
            for order in (2, None):
                again = _interpreted(f, case.arrays, order)
                same = all(a.tobytes() == b.tobytes() for a, b in zip(meant, again, strict=True))
                assert same, f"the order of threads changes the result\n{f}\n{case.report()}"
            return "ran"
        for k, spec in enumerate(t for t in targets if runs_here(t)):
            if "num-threads=2" in spec and "in parallel(" not in text:
                continue
            level, settings = LEVELS[k % len(LEVELS)]
            with PassContext(level, config={"verify": True, **settings}):
                artifact = compile_trace(dag, case.trace, case.arg_ids, Target(spec))
            got = self.runner.run(artifact, case.arrays, "start" if k % 2 else "end")
            self._compare(f"{spec} at level {level}", case, f, want, got)
            self.runs[spec] = self.runs.get(spec, 0) + 1
        return "ran"

    def _compare(
        self, who: str, case: Case, f: Func, want: Mapping[ArgId, Array], got: list[Array]
    ) -> None:
        for k, i in enumerate(case.arg_ids):
            if not f.outputs[k]:
                same = case.arrays[k].tobytes() == got[k].tobytes()
                assert same, f"{who} changed the input {f.params[k].name}\n{f}"
                continue
            text = difference(want[i], got[k], case.infos[k])
            assert not text, f"{who}, {f.params[k].name}: {text}\n{f}\n{case.report()}"


def check_passes(s: Schedule, f: Func, case: Case, meant: list[Array]) -> None:
    """With all passes a program means the same, to the bit."""
    with PassContext(3, config={"verify": True}):
        other = lower_ids(s, case.arg_ids)
    if str(other) == str(f):
        return
    got = _interpreted(other, case.arrays)
    for p, a, b in zip(f.params, meant, got, strict=True):
        nan = dtypes.is_float(a.dtype.name)
        same = a.tobytes() == b.tobytes() or np.array_equal(a, b, equal_nan=nan)
        assert same, f"{p.name} differs at level 3\n{f}\n{other}\n{case.report()}"


def _interpreted(f: Func, given: Sequence[Array], order: int | None = 1) -> list[Array]:
    out = [a.copy() for a in given]
    interpret(f, out, thread_order=order, races=True)
    return out


def difference(want: Array, got: Array, info: Info) -> str:
    """Where two results differ by more than ``info`` allows, or ''."""
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"expected {want.dtype}{list(want.shape)}, got {got.dtype}{list(got.shape)}"
    if info.exact or not dtypes.is_float(want.dtype.name):
        good = np.asarray(want == got)
        if dtypes.is_float(want.dtype.name):
            good |= np.isnan(want) & np.isnan(got)
    else:
        with np.errstate(all="ignore"):
            g, w = got.astype(np.float64), want.astype(np.float64)
            good = np.isclose(g, w, rtol=0, atol=4 * info.err + 1e-30, equal_nan=True)
    if good.all():
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(~good)))
    w, g = np.atleast_1d(want)[at], np.atleast_1d(got)[at]
    n = int((~good).sum())
    return f"{n} of {want.size} elements differ, first at {at}: expected {w!r}, got {g!r} ({info})"


def check_round_trips(s: Schedule, f: Func, arg_ids: Sequence[ArgId]) -> None:
    """A trace survives JSON and Python source, and gives the same text again."""
    dag = Dag.from_json(json.loads(json.dumps(s.dag.to_json())))
    assert dag.hash == s.dag.hash
    again = replay(dag, json.loads(json.dumps(s.trace_json())))
    assert str(lower_ids(again, arg_ids)) == str(f), "a replayed trace gives another program"
    scope: dict[str, Any] = {}
    exec(compile(s.as_python(), "<schedule>", "exec"), scope)
    fresh = replay(s.dag, [])
    scope["schedule"](fresh, *fresh.tensors)
    assert fresh.trace == s.trace, f"the Python source gives another trace:\n{s.as_python()}"


def check_schedule(
    s: Schedule,
    args: Sequence[Any],
    inputs: Sequence[Array],
    infos: Sequence[Info] | None = None,
    targets: Sequence[str] = ("llvm -num-threads=1", "llvm -num-threads=2"),
    checker: Checker | None = None,
) -> Func:
    """Check a schedule made by hand on all ways to run it; returns the lowered function.

    Args:
        s: the schedule.
        args: its arguments, inputs first, then outputs.
        inputs: arrays of the inputs.
        infos: what is known of each output; default: exact.
        targets: where to run it.
        checker: one to use again.
    """
    ids = s.arg_ids(args)
    given = list(inputs)
    for i in ids[len(given) :]:
        op, k = read_arg_id(i)
        given.append(poison(s.dag.ops[op].shape, s.dag.ops[op].dtypes[k]))
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
