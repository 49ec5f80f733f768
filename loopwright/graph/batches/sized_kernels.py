"""Kernels that take every batch, each with the schedule that it has for a known one.

A schedule of a known batch is a trace of steps, replayed on the same expression with a size
variable in it: loops over the batch then have as many iterations as a call needs, guarded where a
tile runs over the end. So a schedule tuned for a declared batch serves the others as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopwright import driver, te
from loopwright.errors import GraphError, InternalError, LoopwrightError
from loopwright.graph.batches.binding import bound_function
from loopwright.graph.building import records_in_force
from loopwright.graph.ir.expr import Function
from loopwright.graph.kernel_tasks import KernelTask, fastest
from loopwright.graph.kernels import expression_of, ways
from loopwright.graph.plan import SizedPlan
from loopwright.ir.sizes import SizeVar, size_vars
from loopwright.runtime import Module
from loopwright.target import Target
from loopwright.task.dispatch import schedule_of


@dataclass(frozen=True)
class SizedKernels:
    modules: dict[str, Module]  # by name
    scheduled_as: tuple[int, ...]  # the batches whose schedules they have


def sized_kernels(
    planned: SizedPlan,
    size: SizeVar,
    batches: Sequence[int],
    target: Target,
    known: dict[str, Module],
) -> SizedKernels:
    """Build the kernels of a program of any batch, under the history in force.

    The schedule is that of the first of ``batches`` that serves every batch. Kernels that do not
    depend on the batch are taken from ``known``, keyed by their tasks, or added to it.
    """
    modules, used = {}, set[int]()
    for name, (function, constants) in planned.kernels.items():
        modules[name], batch = _built(name, function, constants, size, batches, target, known)
        used |= set() if batch is None else {batch}
    return SizedKernels(modules, tuple(sorted(used)))


def _built(
    name: str,
    function: Function,
    constants: tuple[int, ...],
    size: SizeVar,
    batches: Sequence[int],
    target: Target,
    known: dict[str, Module],
) -> tuple[Module, int | None]:
    """A kernel, and the batch whose schedule it has; None where it does not depend on the batch."""
    why = ""
    for batch in batches:
        specialised = bound_function(function, size, batch)
        found = ways(specialised, constants, target)
        candidates = [KernelTask(specialised, constants, target, way) for way in found]
        chosen = fastest(candidates, records_in_force())
        way = found[candidates.index(chosen)]
        expression = expression_of(function, constants, way)
        if not size_vars(n for t in expression.args for n in t.shape):
            return _static(name, chosen, target, known), None
        try:
            schedule = te.create_schedule([t.op for t in expression.outputs])
            for step in schedule_of(chosen.task)[0].trace:
                schedule.apply_step(step)
            return driver.build(schedule, expression.args, target, name=name), batch
        except InternalError:
            raise
        except LoopwrightError as error:
            why = why or " ".join(str(error).split())
    raise GraphError(f"kernel {name!r} cannot be built for every {size.name}: {why}")


def _static(name: str, task: KernelTask, target: Target, known: dict[str, Module]) -> Module:
    if task.task.key not in known:
        schedule, args = schedule_of(task.task)
        known[task.task.key] = driver.build(schedule, args, target, name=name)
    return known[task.task.key]
