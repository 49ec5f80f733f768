"""The passes from a schedule to a function, in order."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from loopwright.errors import LowerError
from loopwright.ir.buffer import Buffer
from loopwright.ir.stmt import Func
from loopwright.lower.nest import NestBuilder
from loopwright.lower.unroll import apply_unroll_pragmas
from loopwright.schedule.schedule import Schedule
from loopwright.schedule.state import StageId
from loopwright.te.tensor import Tensor


def lower(
    s: Schedule, args: Sequence[Tensor], name: str = "main", simple_mode: bool = False
) -> Func:
    """Lower a schedule to a loop nest.

    Args:
        s: the schedule.
        args: inputs and outputs in calling order.
        name: name of the function.
        simple_mode: stop after the nest is built (no unrolling by pragma).

    Returns:
        The function; ``print`` it to read the nest.

    Raises:
        ScheduleError: a rule that needs extents is broken.
        LowerError: an input that is read, or an output, is missing from ``args``.
    """
    return lower_ids(s, s.arg_ids(args), name, simple_mode)


def lower_ids(
    s: Schedule, arg_ids: Sequence[int], name: str = "main", simple_mode: bool = False
) -> Func:
    """`lower` with arguments given as indices of the DAG's operations."""
    try:
        return _lower(s, arg_ids, name, simple_mode)
    except RecursionError:
        raise too_deep(s) from None


def too_deep(s: Schedule) -> LowerError:
    """The error of a program whose stages or expressions nest beyond Python's recursion limit."""
    return LowerError(
        f"lower: {len(s.state.order)} stages nest too deeply for Python's recursion limit "
        f"({sys.getrecursionlimit()}); build them as several functions, inline fewer of them, or "
        "raise the limit with sys.setrecursionlimit"
    )


def _lower(s: Schedule, arg_ids: Sequence[int], name: str, simple_mode: bool) -> Func:
    bounds = s.validate()
    params = _parameters(s, arg_ids)
    body = NestBuilder(s.state, bounds, params).build()
    outputs = tuple(not s.dag.ops[i].is_placeholder for i in arg_ids)
    f = Func(name, tuple(params[i] for i in arg_ids), outputs, body)
    return f if simple_mode else apply_unroll_pragmas(f)


def _parameters(s: Schedule, arg_ids: Sequence[int]) -> dict[StageId, Buffer]:
    if len(set(arg_ids)) != len(arg_ids):
        raise LowerError("lower: a tensor is given twice in the arguments")
    for i in s.state.outputs:
        if i not in arg_ids:
            raise LowerError(f"lower: the output {s.state.label(i)!r} is not in the arguments")
    params: dict[StageId, Buffer] = {}
    for i in arg_ids:
        stage = s.state.stages[i]
        if stage.attach.kind != "root":
            raise LowerError(
                f"lower: {s.state.label(i)!r} is an argument, so it must be computed at root "
                f"(it is computed {stage.attach.kind})"
            )
        if stage.layout is not None:
            raise LowerError(f"lower: the layout of the argument {s.state.label(i)!r} is fixed")
        params[i] = Buffer(s.state.label(i), stage.op.shape, stage.op.dtype)
    return params
