"""From a schedule to a function: the nest is built, then the passes of `PIPELINE` run in order.

The current `PassContext` decides which of the passes run, and can add a user's passes after each
phase.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from loopwright.errors import LowerError
from loopwright.ir.buffer import Buffer
from loopwright.ir.sizes import SizeVar
from loopwright.ir.stmt import Func, SplitFunc
from loopwright.ir.verify import verify
from loopwright.lowering.constants import check_constants, split
from loopwright.lowering.context import Pass, PassContext, as_pass, func_pass
from loopwright.lowering.gpu_limits import verify_target_limits
from loopwright.lowering.nest.builder import NestBuilder
from loopwright.lowering.nest.partition import PARTITION_CAP
from loopwright.lowering.passes.allreduce import lower_thread_allreduce
from loopwright.lowering.passes.bound_checkers import instrument_bound_checkers
from loopwright.lowering.passes.common_subexpr import common_subexpr_elim
from loopwright.lowering.passes.constant_folding import constant_folding  # noqa: F401  (registers it)
from loopwright.lowering.passes.double_buffer import inject_double_buffer
from loopwright.lowering.passes.loop_invariant import loop_invariant_code_motion
from loopwright.lowering.passes.place_shared import place_shared
from loopwright.lowering.passes.remove_no_op import remove_no_op
from loopwright.lowering.passes.simplify import simplify
from loopwright.lowering.passes.skip_vectorize import skip_vectorize
from loopwright.lowering.passes.storage_rewrite import storage_rewrite
from loopwright.lowering.passes.thread_sync import thread_sync
from loopwright.lowering.passes.unroll import unroll_loop
from loopwright.lowering.passes.vectorize import vectorize_loop
from loopwright.lowering.passes.vthread import inject_virtual_thread
from loopwright.lowering.passes.warp_memory import lower_warp_memory
from loopwright.lowering.work_limit import check_work
from loopwright.schedule.schedule import Schedule
from loopwright.schedule.state import StageId, StageState, State
from loopwright.te.dag import ArgId, read_arg_id
from loopwright.te.tensor import Tensor
from loopwright.te.tensor_intrin import OperandBuffer


@func_pass(opt_level=1, name="LoopPartition")
def loop_partition(f: Func) -> Func:
    """Stands for the partition by the nest's builder (`loopwright.lowering.nest.partition`), so
    that contexts can disable it by name as they disable passes."""
    return f


#: The passes in order. After each phase run the passes that `add_lower_pass` puts there.
PIPELINE: tuple[tuple[Pass, ...], ...] = (
    # 0: complete the nest. Barriers go last, when all accesses of shared memory are there.
    (
        inject_double_buffer,
        inject_virtual_thread,
        lower_warp_memory,
        lower_thread_allreduce,
        place_shared,
        thread_sync,
    ),
    # 1: clean up.
    (simplify, remove_no_op),
    # 2: bring loops into the form in which they will run.
    (
        vectorize_loop,
        skip_vectorize,
        unroll_loop,
        loop_invariant_code_motion,
        common_subexpr_elim,
    ),
    # 3: arrange storage, and insert checks that watch the program.
    (storage_rewrite, instrument_bound_checkers),
)


def lower(
    s: Schedule,
    args: Sequence[Tensor | SizeVar],
    name: str = "main",
    binds: Mapping[Tensor, OperandBuffer] | None = None,
    simple_mode: bool = False,
) -> Func:
    """Lower a schedule to a loop nest.

    Args:
        s: the schedule.
        args: inputs and outputs in calling order; size variables among them change nothing. An
            intermediate result that is computed inside another stage exists in no array, and is
            left out of the arguments of the function.
        name: name of the function.
        binds: for scripts of TVM, see `loopwright.build`; it changes nothing.
        simple_mode: stop after the nest is built (no unrolling by pragma).

    Returns:
        The function; ``print`` it to read the nest. Where stages at the root depend on constant
        tensors alone it has two parts, ``name_prepare``, which computes these stages, and
        ``name_prepared``, which takes their results behind the other arguments
        (`loopwright.ir.stmt.SplitFunc`); both are printed.

    Raises:
        ScheduleError: a rule that needs extents is broken.
        LowerError: an input that is read, a constant tensor, or an output, is missing from
            ``args``; or a kernel exceeds a limit of the target in force (``with Target("cuda"):``).

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> print(lw.lower(s, [A, B], name="add_one"))
        def add_one(A: float32[8], B: out float32[8]):
          for i in range(8):
            B[i] = A[i] + 1.0
    """
    if not isinstance(s, Schedule):
        raise LowerError(f"lower: expected a schedule and its arguments, got {s!r} first")
    tensors = [a for a in args if not isinstance(a, SizeVar)]
    ids = [i for i in s.arg_ids(tensors) if not _is_inside(s.state, read_arg_id(i)[0])]
    f = lower_ids(s, ids, name, simple_mode)
    verify_target_limits(f, s)
    return f


def _is_inside(state: State, sid: StageId) -> bool:
    """Whether a stage is computed inside another one, so that no array holds its result."""
    return (
        sid in state.stages
        and sid not in state.outputs
        and state.stages[sid].attach.kind
        in (
            "at",
            "inline",
        )
    )


def lower_ids(
    s: Schedule, arg_ids: Sequence[ArgId], name: str = "main", simple_mode: bool = False
) -> Func:
    """`lower` with arguments given as data: see `loopwright.te.dag.ArgId`.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> print(lw.lowering.lower_ids(s, s.arg_ids([A, B]), name="add_one"))
        def add_one(A: float32[4], B: out float32[4]):
          for i in range(4):
            B[i] = A[i] + 1.0
    """
    try:
        f = build_nest(s, arg_ids, name)
        return f if simple_mode else run_passes(f)
    except RecursionError:
        raise too_deep(s) from None


def too_deep(s: Schedule) -> LowerError:
    """The error of a program whose stages or expressions nest beyond Python's recursion limit."""
    return LowerError(
        f"lower: {len(s.state.order)} stages nest too deeply for Python's recursion limit "
        f"({sys.getrecursionlimit()}); build them as several functions, inline fewer of them, or "
        "raise the limit with sys.setrecursionlimit"
    )


def build_nest(s: Schedule, arg_ids: Sequence[ArgId], name: str) -> Func:
    """The loop nest of a schedule, as it is before the first pass."""
    context = PassContext.current()
    bounds = s.validate()
    params = _parameters(s, [read_arg_id(a) for a in arg_ids])
    check_constants(s.state, params)
    partition = context.enabled(loop_partition)
    cap = context.count("partition_cap", PARTITION_CAP) if partition else 0
    body = NestBuilder(s.state, bounds, params, cap).build()
    outputs = tuple(not s.state.stages[sid].op.is_placeholder for sid, _ in params)
    f = Func(name, tuple(params.values()), outputs, body, s.dag.sizes)
    if s.dag.constants:
        f = split(f, s.state, bounds, params, cap) or f
    if context.verify:
        verify(f, "after the nest was built")
    return f


def run_passes(f: Func) -> Func:
    """Run the pipeline of the current context on a function, with the passes that a user added.

    Raises:
        LowerError: the result would be written out to too much code.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> f = lw.lower(te.create_schedule(B.op), [A, B])
        >>> print(lw.transform.run_passes(f))
        def main(A: float32[4], B: out float32[4]):
          for i in range(4):
            B[i] = A[i] + 1.0
    """
    if isinstance(f, SplitFunc):
        parts = _run_pipeline(f.prepare), _run_pipeline(f.main)
        f = SplitFunc(f, *parts, f.kept)
    else:
        f = _run_pipeline(f)
    check_work(f)
    return f


def _run_pipeline(f: Func) -> Func:
    context = PassContext.current()
    for phase, passes in enumerate(PIPELINE):
        added = (as_pass(p) for after, p in context.added_passes if after == phase)
        for p in (*passes, *added):
            f = p(f) if context.enabled(p) else f
    return f


def pass_order() -> list[list[str]]:
    """Names of the passes that the current context runs: for each phase a list, in order.

    Example:
        >>> for phase in lw.transform.pass_order()[1:]:
        ...     print(phase)
        ...
        ['Simplify', 'RemoveNoOp']
        ['VectorizeLoop', 'UnrollLoop']
        ['StorageRewrite']
    """
    context = PassContext.current()
    phases = [(loop_partition, *PIPELINE[0]), *PIPELINE[1:]]
    order = [[p.name for p in passes if context.enabled(p)] for passes in phases]
    for phase, added in context.added_passes:
        p = as_pass(added)
        order[phase] += [p.name] if context.enabled(p) else []
    return order


def _parameters(
    s: Schedule, arg_ids: Sequence[tuple[int, int]]
) -> dict[tuple[StageId, int], Buffer]:
    """Buffers of the arguments in calling order, by stage and output. One output of several
    suffices: the others live inside the function."""
    state = s.state
    if len(set(arg_ids)) != len(arg_ids):
        raise LowerError("lower: a tensor is given twice in the arguments")
    given = {i for i, _ in arg_ids}
    for i in state.outputs:
        if i not in given:
            raise LowerError(f"lower: the output {state.label(i)!r} is not in the arguments")
    params: dict[tuple[StageId, int], Buffer] = {}
    for i, k in arg_ids:
        if i not in state.stages or k not in range(state.stages[i].op.num_outputs):
            raise LowerError(f"lower: the program has no tensor {[i, k] if k else i}")
        stage = state.stages[i]
        _check_argument(stage, state.label(i))
        params[i, k] = Buffer(
            state.output_label(i, k),
            stage.op.shape,
            stage.op.dtypes[k],
            constant=stage.op.constant,
        )
    return params


def _check_argument(stage: StageState, label: str) -> None:
    """Refuse a stage whose buffer cannot be the caller's array."""
    if stage.attach.kind != "root":
        raise LowerError(
            f"lower: {label!r} is an argument, so it must be computed at root "
            f"(it is computed {stage.attach.kind})"
        )
    if stage.align:
        raise LowerError(f"lower: the strides of the argument {label!r} are fixed")
    if stage.layout is not None:
        raise LowerError(f"lower: the layout of the argument {label!r} is fixed")
    if stage.scope != "global":
        raise LowerError(
            f"lower: the argument {label!r} lies in global memory, and set_scope asked for "
            f"{stage.scope}; leave one of the two out"
        )
