"""Programs of which some extents become size variables: one function, run for several sizes.

`symbolise` takes any program and replaces an extent, and those that are near it or twice it, by
expressions over a size variable. For the old size the program means what it meant. For another it
may read outside its tensors, which the NumPy reference notices; such sizes are left out.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.driver import compile as compile_trace
from loopwright.errors import InternalError, ScheduleError, TensorError
from loopwright.ir.interp import interpret
from loopwright.ir.sizes import size_vars
from loopwright.lower import lower_ids
from loopwright.schedule.schedule import replay
from loopwright.target import Target
from loopwright.te.dag import ArgId, Dag, arg_id, read_arg_id
from loopwright.testing.differential import Array, Case
from loopwright.testing.guarded import GuardedRunner
from loopwright.testing.numpy_eval import evaluate
from loopwright.testing.random_values import Draw, poison, random_array

#: How far an extent may be from a size to be written as the size plus or minus a number.
NEAR = 2
_VAR = ["var", "s0"]


def symbolise(d: Draw, dag: dict[str, Any]) -> tuple[dict[str, Any], int] | None:
    """The JSON of a program with one size variable in it, and the value that it had."""
    out = copy.deepcopy(dag)
    places = [(op[key], k) for op in out["ops"] for key in ("shape", "reduce_extents")
              for k in range(len(op.get(key, ())))]  # fmt: skip
    extents = sorted({x[k] for x, k in places if x[k] > 1})
    if not extents:
        return None
    size = d.pick(extents)
    for x, k in places:
        x[k] = _extent(d, x[k], size)
    return out | {"sizes": [["n", "int32", d.chance(50)]]}, size


def _extent(d: Draw, n: int, size: int) -> Any:
    if n == size:
        return _VAR
    if n == 2 * size and d.chance(70):
        return ["bin", "*", _VAR, ["const", 2, "int32"], "int32"]
    if abs(n - size) <= NEAR and n > 1 and d.chance(70):
        op = "+" if n > size else "-"
        return ["bin", op, _VAR, ["const", abs(n - size), "int32"], "int32"]
    return n


class SymbolicChecker:
    """Runs a program with its schedule for several sizes; owns the guarded process.

    Attributes:
        runs: how often compiled code ran.
        skipped: sizes for which the program means nothing.
    """

    def __init__(self) -> None:
        self.runner = GuardedRunner()
        self.runs = self.skipped = 0

    def close(self) -> None:
        """End the guarded process."""
        self.runner.close()

    def check(self, case: Case, d: Draw, targets: Sequence[str]) -> str:
        """Check one case.

        Returns:
            ``"ran"``; ``"refused"`` where the schedule needs constant extents; ``"constant"`` where
            there is nothing to replace.

        Raises:
            AssertionError: results differ from NumPy's, or what the program may not touch changed.
        """
        made = symbolise(d, case.dag)
        if made is None:
            return "constant"
        dag, size = Dag.from_json(made[0]), made[1]
        try:
            f = lower_ids(replay(dag, case.trace), case.arg_ids)
        except ScheduleError:
            return "refused"
        kernel = " in thread(" in str(f)  # the interpreter alone runs it
        artifacts = []
        for t in () if kernel or not _told(dag, case.arg_ids) else targets:
            artifacts.append(compile_trace(dag, case.trace, case.arg_ids, Target(t)))
        for n in dict.fromkeys((size, 1, size - 1, size + 1, 2 * size, size + 7)):
            run = self._arrays(dag, case.arg_ids, n, d)
            if run is None:
                assert n != size, "the size that the program had gives another program"
                self.skipped += 1
                continue
            arrays, want = run
            where = f"n = {n}\n{f}\n{made[0]}\n{case.trace}"
            out = [a.copy() for a in arrays]
            interpret(f, out, {"n": n})
            _compare("interpreter", case.arg_ids, want, out, where)
            for k, artifact in enumerate(artifacts):
                got = self.runner.run(artifact, arrays, "start" if k % 2 else "end")
                _compare(targets[k], case.arg_ids, want, got, where)
                self.runs += 1
        return "ran"

    def _arrays(
        self, dag: Dag, arg_ids: Sequence[ArgId], n: int, d: Draw
    ) -> tuple[list[Array], Mapping[Any, Array]] | None:
        """Arrays for a size and what NumPy makes of them; None where the program has no meaning."""
        try:
            bound = dag.bind({"n": n})
        except TensorError:
            return None
        rng, arrays, inputs = np.random.default_rng(d.integer(0, 1 << 16)), [], {}
        for i, k in map(read_arg_id, arg_ids):
            op = bound.ops[i]
            if op.is_placeholder:
                inputs[i] = random_array(rng, op.shape, op.dtype, False)
                arrays.append(inputs[i])
            else:
                arrays.append(poison(op.shape, op.dtypes[k]))
        try:
            return arrays, evaluate(bound, inputs)
        except InternalError:
            return None


def _told(dag: Dag, arg_ids: Sequence[ArgId]) -> bool:
    """Whether an argument has a dimension that tells the size."""
    return any(size_vars(dag.ops[read_arg_id(a)[0]].shape) for a in arg_ids)


def _compare(
    who: str, arg_ids: Sequence[ArgId], want: Mapping[Any, Any], got: list[Array], where: str
) -> None:
    for a, x in zip(arg_ids, got, strict=True):
        wanted = want[arg_id(*read_arg_id(a))]
        with np.errstate(all="ignore"):
            close = np.allclose(x.astype("float64"), wanted.astype("float64"), 2e-2, 1e-3, True)
        assert close, f"{who}: argument {a} differs: expected {wanted}, got {x}; {where}"
