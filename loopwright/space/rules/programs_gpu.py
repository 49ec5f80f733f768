"""Any expression on GPUs: into kernels, each scheduled by the rule that its access maps allow.

Every stage is part of a kernel, so that nothing runs unbound. Kernels are reductions with the
elementwise stages over them, stages too large to be recomputed for each reader, and the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopwright import te
from loopwright.space.access import accesses, extents
from loopwright.space.rules.contraction_gpu import contraction_of, schedule_contraction
from loopwright.space.rules.device_gpu import Device
from loopwright.space.rules.injective_gpu import (
    schedule_injective,
    schedule_transpose,
    turned_axis,
)
from loopwright.space.rules.kernel_gpu import (
    Kernel,
    is_elementwise_over,
    kernel_of,
    last_elementwise,
    whole_program,
)
from loopwright.space.rules.knobs_gpu import Knobs, Names, every_structure
from loopwright.space.rules.rows_gpu import (
    Rows,
    is_long,
    rows_of,
    schedule_alone,
    schedule_rows,
    schedule_several,
)
from loopwright.space.structure import Structure

#: Elements of a window from which on several threads sum it, and threads that keep a processor
#: busy, each with a window of its own.
_WINDOW, _BUSY = 32, 1024
#: Most stages, counted once per read, that are inlined into one.
_MOST_INLINED = 64
#: Names of structures, and their reasons.
_NAMES = {
    "contraction": ("tiles in shared memory", "each operand stays along some loop of the result"),
    "window": ("windows in registers", "a thread reduces what its element needs"),
    "rows": ("rows of a block", "every stage needs its own row of the others alone"),
    "transpose": ("squares through shared memory", "an input lies in memory along another loop"),
    "injective": ("threads along memory", "no reduction: each element is computed where it is"),
    "apart": ("several kernels", "not all can be computed where it is read"),
}


def programs(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """Structures of any expression: all of its stages in kernels."""
    if len(outputs) > 1:
        return every_structure(
            outputs, args, *_NAMES["apart"], lambda k: _schedule_apart(k, outputs)
        )
    (out,) = outputs
    kind = kind_of(out)
    found = every_structure(outputs, args, *_NAMES[kind], lambda k: schedule_program(k, out, kind))
    chain = rows_of(out)
    if kind == "rows" and chain is not None and len(chain.reductions) > 1:
        name = _NAMES["apart"][0]
        why = "each reduction may take as many threads as it likes"
        found += every_structure(
            outputs, args, name, why, lambda k: schedule_program(k, out, "apart")
        )
    return found


def kind_of(out: te.Tensor) -> str:
    """Rule of an expression: "contraction", "window", "rows", "transpose" or "injective" of
    programs of one kernel; "apart" of others.
    """
    kernel = whole_program(out)
    if _heavy(kernel.stages, [out]) or any(t.op.num_outputs > 1 for t in kernel.stages):
        return "apart"
    if not kernel.reductions:
        return "injective" if turned_axis(kernel) is None else "transpose"
    if len(kernel.reductions) == 1 and is_elementwise_over(kernel, kernel.reductions[0]):
        found = _tiled_or_window(kernel)
        if found is not None:
            return found
    rows = rows_of(out)
    return "apart" if rows is None or is_long(rows) else "rows"


def schedule_program(knobs: Knobs, out: te.Tensor, kind: str) -> None:
    """Schedule an expression by a rule that applies; see `kind_of`."""
    if kind == "apart":
        _schedule_apart(knobs, [out])
    elif kind == "rows":
        rows = rows_of(out)
        assert isinstance(rows, Rows)
        schedule_rows(knobs, rows)
    else:
        _schedule_kernel(knobs, whole_program(out), "")


def _schedule_apart(knobs: Knobs, outs: Sequence[te.Tensor]) -> None:
    """Make a kernel for each reduction, and one for each result that comes after them."""
    for kernel, prefix in knobs.once("kernels", lambda: _kernels(outs)):
        _schedule_kernel(knobs, kernel, prefix)


def _kernels(outs: Sequence[te.Tensor]) -> list[tuple[Kernel, str]]:
    """Kernels of a program, inputs first, and the prefixes of the names of their knobs."""
    program = whole_program(*outs).stages
    results = _results(outs, program)
    names = Names()
    prefixes = ["" if t is outs[-1] else names.of(t.name) + "_" for t in results]
    return [
        (kernel_of(t, program, results), prefix)
        for t, prefix in zip(results, prefixes, strict=True)
    ]


def _results(outs: Sequence[te.Tensor], program: Sequence[te.Tensor]) -> list[te.Tensor]:
    """Tensors that kernels leave in global memory, in the order of the program."""
    reductions = [t for t in program if t.op.reduce_axis]
    several = [t for t in program if t.op.num_outputs > 1]
    found = {*outs, *_heavy(program, outs), *several}
    ends: set[te.Tensor] = set()
    for r in reductions:
        last = last_elementwise(r, program)
        kernel = kernel_of(last, program, [t for t in {*reductions, *found} if t is not r])
        # A stage over several reductions is computed by the kernel of the first; a result that is
        # read on has its own.
        alone = last not in ends and r in kernel.stages and (r is last or r not in found)
        if alone and _tiled_or_window(kernel) is not None:
            ends.add(last)
        else:
            found.add(r)
    return [t for t in program if t in found | ends]


def _schedule_kernel(knobs: Knobs, kernel: Kernel, prefix: str) -> None:
    """Schedule a kernel of one reduction at most."""
    if kernel.out.op.num_outputs > 1:
        schedule_several(knobs, kernel, prefix)
        return
    if not kernel.reductions:
        turned = turned_axis(kernel)
        if turned is None:
            schedule_injective(knobs, kernel, prefix=prefix)
        else:
            schedule_transpose(knobs, kernel, *turned, prefix)
        return
    (reduction,) = kernel.reductions
    contraction = knobs.once(f"{prefix}contraction", lambda: contraction_of(kernel, reduction))
    if contraction is not None:
        schedule_contraction(knobs, contraction, prefix)
    elif _tiled_or_window(kernel) is not None:
        schedule_injective(knobs, kernel, reduction, prefix)
    else:
        schedule_alone(knobs, kernel, prefix)


def _tiled_or_window(kernel: Kernel) -> str | None:
    """Rule for the one reduction of a kernel that also computes its epilogue, or None."""
    (reduction,) = kernel.reductions
    if not reduction.shape or reduction.op.num_outputs > 1:
        return None
    if contraction_of(kernel, reduction) is not None:
        return "contraction"
    return "window" if _is_window(reduction) else None


def _is_window(reduction: te.Tensor) -> bool:
    """Whether one thread sums all of an element: little work, or enough threads."""
    points, elements = extents(reduction.op.reduce_axis), extents(reduction.op.axis)
    along = [a.contiguous for a in accesses(reduction)]
    slides = set(reduction.op.reduce_axis).isdisjoint(along)
    return points < _WINDOW or (slides and elements >= _BUSY * Device.current().processors)


def _heavy(program: Sequence[te.Tensor], outs: Sequence[te.Tensor]) -> list[te.Tensor]:
    """Stages without a reduction that are computed once because too much would be inlined into
    them: each reader recomputes inlined stages, and their inputs as often.
    """
    size: dict[te.Tensor, int] = {}
    found = []
    for t in program:
        if t in outs:
            continue
        size[t] = 0 if t.op.reduce_axis else 1 + sum(size.get(a.tensor, 0) for a in accesses(t))
        if size[t] > _MOST_INLINED:
            size[t] = 0
            found.append(t)
    return found
