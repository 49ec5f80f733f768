"""Refusal of times beyond the reach of the machine: the kernel did not do its work."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from math import prod

from loopwright import dtypes, runtime
from loopwright.measure.building import Candidate
from loopwright.measure.equipment import Equipment
from loopwright.measure.result import ErrorKind, MeasureError
from loopwright.runtime.peak import assumed_peak, out_of_reach
from loopwright.te.dag import call_work

#: A time that a CPU of so few cycles a second reaches needs no closer look.
_SLOW_HZ = 1.5e9
#: Seconds of the measurement of the FMA peak, where a time needs one.
_SAMPLE_S = 0.02


def time_out_of_reach(
    equipment: Equipment, candidate: Candidate, times: Sequence[float]
) -> MeasureError | None:
    """An error where no call can take so little time, in seconds per call; None for devices.

    The operations are those of the expression, and where these are too many, the ones that are left
    in the lowered program, against the FMA peak measured now: the runner must be idle, the device
    held.
    """
    if not equipment.on_cpu or not times:
        return None
    seconds = statistics.median(times)
    stored, shortest, flop = call_work(candidate.dag, candidate.arg_ids)
    target = equipment.task.target
    threads = target.canonical.get("num_threads") or runtime.get_num_threads()
    unit = target.vector_unit
    peak = assumed_peak(threads, unit, _SLOW_HZ)
    if not out_of_reach(seconds, stored, flop, shortest, peak):
        return None
    with runtime.pinned(threads):
        peak = runtime.fma_peak(threads, _SAMPLE_S, unit)
    if out_of_reach(seconds, stored, flop, shortest, peak):
        left = min(flop, _operations(candidate))
        problem = out_of_reach(seconds, stored, left, shortest, peak)
        if problem:
            return MeasureError(ErrorKind.RUN_ERROR, f"no machine is so fast: {problem}")
    return None


def _operations(c: Candidate) -> int:
    """Arithmetic of the lowered program; each operation counts as often as its operands change.

    An operation that does not change in a loop may be computed once, and compilers replace sums of
    integers that depend on the loop variable alone by a formula.
    """
    from loopwright.driver import lower_trace  # not at the top: runners import no compiler
    from loopwright.ir.buffer import Load
    from loopwright.ir.expr import Binary, Call, Expr, Unary, Var
    from loopwright.ir.node import Node
    from loopwright.ir.stmt import For, Let, Store
    from loopwright.ir.traversal import contains, free_vars

    extents: dict[Var, int] = {}
    depends: dict[Var, set[Var]] = {}
    total = 0

    def loads_in(e: Node) -> list[Node]:
        if isinstance(e, Load):
            return [e]
        return [load for child in e.children() for load in loads_in(child)]

    def count(e: Node) -> None:
        nonlocal total
        if isinstance(e, Load):
            return
        if isinstance(e, Binary | Unary | Call) and contains(e, Load):
            changing = loads_in(e) if dtypes.is_int(e.dtype) else [e]
            loops = {loop for x in changing for v in free_vars(x) for loop in depends.get(v, ())}
            total += prod(extents[loop] for loop in loops)
        for child in e.children():
            count(child)

    def visit(s: Node) -> None:
        match s:
            case For(var=v, extent=int(n)):
                extents[v], depends[v] = n, {v}
            case Let(var=v, value=e):
                depends[v] = {loop for x in free_vars(e) for loop in depends.get(x, ())}
                count(e)
            case Store(value=e):
                count(e)
        for child in s.children():
            if not isinstance(child, Expr):
                visit(child)

    visit(lower_trace(c.dag, c.trace, c.arg_ids, c.name, c.passes or None).func.body)
    return total
