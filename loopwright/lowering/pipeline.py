"""From a schedule to a function: the nest is built, then the passes of `PIPELINE` run in order."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loopwright.errors import LowerError, TooMuchCodeError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr
from loopwright.ir.node import Node
from loopwright.ir.sizes import SizeVar, size_vars
from loopwright.ir.stmt import (
    PREPARE,
    PREPARED,
    UNROLL_HINT,
    Allocate,
    CallPacked,
    For,
    Func,
    Prefetch,
    SplitFunc,
    Stmt,
)
from loopwright.ir.verify import verify
from loopwright.ir.visitor import free_vars, nodes
from loopwright.lowering.context import Pass, PassContext, as_pass, func_pass
from loopwright.lowering.gpu_limits import verify_target_limits
from loopwright.lowering.nest.buffers import Buffers
from loopwright.lowering.nest.builder import NestBuilder
from loopwright.lowering.nest.tiles import PARTITION_CAP
from loopwright.lowering.passes.bound_checkers import instrument_bound_checkers
from loopwright.lowering.passes.double_buffer import inject_double_buffer
from loopwright.lowering.passes.redundancy import common_subexpr_elim, loop_invariant_code_motion
from loopwright.lowering.passes.simplify import remove_no_op, simplify
from loopwright.lowering.passes.storage_rewrite import place_shared, storage_rewrite
from loopwright.lowering.passes.thread_sync import thread_sync
from loopwright.lowering.passes.threads import (
    inject_virtual_thread,
    lower_thread_allreduce,
    lower_warp_memory,
)
from loopwright.lowering.passes.vectorize import skip_vectorize, unroll_loop, vectorize_loop
from loopwright.schedule import Bounds, Schedule, StageId, StageState, State, share_inlined
from loopwright.te import ArgId, OperandBuffer, Tensor, read_arg_id

# ---------------------------------------------------------------- constant operands
#
# A function ``prepare`` computes the root stages that depend on these alone, a packed copy of
# weights say, before calls, and ``main`` takes its results as further arguments.

#: Buffers of arguments by stage and output.
Params = Mapping[tuple[StageId, int], Buffer]


def constant_stages(state: State, arguments: frozenset[StageId] = frozenset()) -> set[StageId]:
    """Stages whose values constant placeholders determine, these included.

    A stage whose buffer cannot be handed over (of another scope than global memory, or with aligned
    strides) counts as one that varies, and so do its readers. The results of ``arguments`` are the
    caller's, and vary as well.
    """
    constants: set[StageId] = set()
    if not any(stage.op.constant for stage in state.stages.values()):
        return constants
    for sid in state.order:
        stage = state.stages[sid]
        if stage.op.is_placeholder:
            fixed = stage.op.constant
        else:
            movable = stage.attach.kind != "root" or (stage.scope == "global" and not stage.align)
            sources = {r.source for r in stage.op.reads()}
            fixed = movable and sid not in arguments and sources <= constants
        constants |= {sid} if fixed else set()
    return constants


def prepared_stages(state: State, arguments: frozenset[StageId] = frozenset()) -> set[StageId]:
    """The stages at the root that are computed once for many calls; arguments as of
    `constant_stages`.
    """
    stages = ((sid, state.stages[sid]) for sid in constant_stages(state, arguments))
    return {sid for sid, x in stages if x.attach.kind == "root" and not x.op.is_placeholder}


def split(whole: Func, bounds: Bounds, params: Params, partition_cap: int) -> SplitFunc | None:
    # Sizes come with a call: a program with size variables is left whole where the part before
    # calls depends on one, or an argument that varies does not determine it.
    first = prepared_stages(bounds.state, frozenset(sid for sid, _ in params))
    if not first:
        return None
    kept = _kept(bounds, params, first)
    if not kept:
        return None
    builder = NestBuilder(bounds, {**params, **kept}, partition_cap)
    prepare = builder.build(first)
    main = builder.build([i for i in bounds.stages if i not in first])
    buffers = tuple(kept.values())
    read, also = _touched(prepare), _touched(main)
    shapes = [n for b in (*buffers, *read) for n in b.shape]
    if size_vars(shapes) or any(isinstance(v, SizeVar) for v in free_vars(prepare)):
        return None
    of_first = tuple(b for b in whole.params if b in read)
    pairs = zip(whole.params, whole.outputs, strict=True)
    second = [(b, is_output) for b, is_output in pairs if not b.constant or b in also]
    of_second = tuple(b for b, _ in second)
    determined = {n for b in of_second for n in b.shape if isinstance(n, SizeVar)}
    if not determined.issuperset(whole.sizes):
        return None
    writes, reads = (True,) * len(buffers), (False,) * len(buffers)
    outputs = tuple(is_output for _, is_output in second) + reads
    return SplitFunc(
        whole,
        Func(whole.name + PREPARE, of_first + buffers, (False,) * len(of_first) + writes, prepare),
        Func(whole.name + PREPARED, of_second + buffers, outputs, main, whole.sizes),
        buffers,
    )


def _kept(bounds: Bounds, params: Params, first: set[StageId]) -> dict[tuple[StageId, int], Buffer]:
    state = bounds.state

    def root_of(sid: StageId) -> StageId:
        while state.stages[sid].attach.kind == "at":
            sid = state.stages[sid].attach.stage
        return sid

    inside = {i for i in bounds.stages if root_of(i) in first}
    reads = [r for i in bounds.stages if i not in inside for r in bounds.ops[i].reads()]
    wanted = {(r.source, r.value_index) for r in reads}
    buffers = Buffers(bounds, dict(params)).of
    return {
        (i, k): b
        for i in state.order
        if i in first
        for k, b in enumerate(buffers[i])
        if (i, k) in wanted
    }


def _touched(s: Stmt) -> set[Buffer]:
    read = {n.buffer for n in nodes(s) if isinstance(n, Load | Prefetch)}
    return read.union(*(n.buffers for n in nodes(s) if isinstance(n, CallPacked)))


@func_pass(opt_level=1, name="LoopPartition")
def loop_partition(f: Func) -> Func:
    # Stands for the partition by the nest's builder (`loopwright.lowering.nest.tiles`), so that
    # contexts can disable it by name as they disable passes.
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
    (vectorize_loop, skip_vectorize, unroll_loop, loop_invariant_code_motion, common_subexpr_elim),
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
        args: inputs and outputs in calling order; size variables among them change nothing. An
            intermediate result that is computed inside another stage exists in no array, and is
            left out of the arguments of the function.
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
    s = s.with_arguments(tensors)
    # No array holds what is computed inside another stage.
    inside = {
        sid
        for sid, stage in s.state.stages.items()
        if sid not in s.state.outputs and stage.attach.kind in ("at", "inline")
    }
    ids = [i for i in s.arg_ids(tensors) if read_arg_id(i)[0] not in inside]
    f = lower_ids(s, ids, name, simple_mode)
    verify_target_limits(f, s)
    return f


def lower_ids(
    s: Schedule, arg_ids: Sequence[ArgId], name: str = "main", simple_mode: bool = False
) -> Func:
    """`lower` with arguments given as data: see `loopwright.te.dag.ArgId`."""
    try:
        f = build_nest(s, arg_ids, name)
        return f if simple_mode else run_passes(f)
    except TooMuchCodeError:
        shared = s.copy()
        shared.state = share_inlined(s.state)
        if shared.state is s.state:
            raise
        return lower_ids(shared, arg_ids, name)
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
    context = PassContext.current()
    bounds = s.validate()
    params = _parameters(s, [read_arg_id(a) for a in arg_ids])
    for sid, stage in s.state.stages.items():
        if stage.op.constant and (sid, 0) not in params:
            raise LowerError(
                f"lower: the constant tensor {s.state.label(sid)!r} is not in the arguments; its "
                "values come with a call, or by with_constants"
            )
    cap = context.count("partition_cap", PARTITION_CAP) if context.enabled(loop_partition) else 0
    body = NestBuilder(bounds, params, cap).build()
    outputs = tuple(not s.state.stages[sid].op.is_placeholder for sid, _ in params)
    f = Func(name, tuple(params.values()), outputs, body, s.dag.sizes)
    if s.dag.constants:
        f = split(f, bounds, params, cap) or f
    if context.verify:
        verify(f, "after the nest was built")
    return f


def run_passes(f: Func) -> Func:
    """Run the pipeline of the current context on a function, with the passes that a user added.

    Raises:
        LowerError: the result would be written out to too much code.
    """
    if isinstance(f, SplitFunc):
        f = SplitFunc(f, _run_pipeline(f.prepare), _run_pipeline(f.main), f.kept)
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
    """Buffers of the arguments in calling order; of several outputs one suffices."""
    state = s.state
    if len(set(arg_ids)) != len(arg_ids):
        raise LowerError("lower: a tensor is given twice in the arguments")
    arguments = {sid for sid, _ in arg_ids}
    for i in state.outputs:
        if i not in arguments:
            raise LowerError(f"lower: the output {state.label(i)!r} is not in the arguments")
    params: dict[tuple[StageId, int], Buffer] = {}
    for i, k in arg_ids:
        if i not in state.stages or k not in range(state.stages[i].op.num_outputs):
            raise LowerError(f"lower: the program has no tensor {[i, k] if k else i}")
        stage = state.stages[i]
        _check_argument(stage, state.label(i))
        params[i, k] = Buffer(
            state.output_label(i, k), stage.op.shape, stage.op.dtypes[k], constant=stage.op.constant
        )
    return params


def _check_argument(stage: StageState, label: str) -> None:
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
            f"lower: the argument {label!r} lies in global memory, and set_scope says "
            f"{stage.scope}; leave one of the two out"
        )


# ---------------------------------------------------------------- work limit
#
# The setting ``code_limit`` of a `PassContext`. A few words of a trace, such as a loop unrolled
# 10**9 times by a pragma, can ask for more than any compiler finishes. So every node of the loop IR
# is counted, for each copy that unrolled and vectorized loops make of it, before a code generator
# writes it. Primitives have limits of their own, which name the step:
# `loopwright.schedule.primitives.annotate`, `loopwright.schedule.bounds.infer`.

#: Most nodes of a program that is written out, unless the context says otherwise. Kernels of the
#: operators have up to 116 000 (conv2d, dense and others under random configurations). LLVM needs
#: 0.1 to 0.3 ms for each node: a program at the limit takes it about a minute.
CODE_LIMIT = 1 << 18
#: Largest buffer inside of a program, in bytes: the memory that one process can address.
BUFFER_LIMIT = 1 << 47
#: A vectorized loop is written out in pieces of the native length, which is at least about this.
_PIECE = 16


@dataclass(frozen=True, slots=True)
class _Copies:
    """Number of times a statement is written, and the loop that makes most copies of it."""

    number: int = 1
    loop: str = ""
    most: int = 1

    def inside(self, s: For) -> _Copies:
        unrolled = s.kind == "unrolled" or UNROLL_HINT in s.pragmas
        if not isinstance(s.extent, int) or not (unrolled or s.kind == "vectorized"):
            return self
        n = s.extent if unrolled else -(-s.extent // _PIECE)
        if n <= self.most:
            return _Copies(self.number * n, self.loop, self.most)
        kind = "unrolled" if unrolled else "vectorized"
        return _Copies(self.number * n, f"{kind} loop {s.var.name!r} of {s.extent}", n)


def check_work(f: Func) -> None:
    """Refuse a function of too much code; the error names the loop with most copies."""
    _Count(f.name, PassContext.current().count("code_limit", CODE_LIMIT)).stmt(f.body, _Copies())


class _Count:
    def __init__(self, name: str, limit: int) -> None:
        self.name, self.limit = name, limit
        self.nodes = 0
        # The sizes of expressions, which programs share; they are kept so that ids stay theirs.
        self.sizes: dict[int, tuple[Expr, int]] = {}

    def stmt(self, s: Node, copies: _Copies) -> None:
        self.add(1, copies)
        if isinstance(s, Allocate):
            self.buffer(s.buffer)
        inside = copies.inside(s) if isinstance(s, For) else copies
        for c in s.children():
            if isinstance(c, Stmt):
                self.stmt(c, inside)
            elif isinstance(c, Expr):
                self.add(self.size(c), copies)

    def add(self, nodes: int, copies: _Copies) -> None:
        self.nodes += nodes * copies.number
        if self.nodes <= self.limit:
            return
        most = f"; most copies are made by the {copies.loop}" if copies.loop else ""
        raise TooMuchCodeError(
            f"lower: {self.name!r} would be written out to more than {self.limit} nodes of the IR"
            f"{most}; unroll, vectorize or inline less, or raise the limit with "
            "PassContext(config={'code_limit': ...})"
        )

    def size(self, e: Expr) -> int:
        """Nodes of an expression, written out where parts of it are shared."""
        if id(e) not in self.sizes:
            parts = [c for c in e.children() if isinstance(c, Expr)]
            self.sizes[id(e)] = e, 1 + sum(map(self.size, parts))
        return self.sizes[id(e)][1]

    def buffer(self, b: Buffer) -> None:
        if not b.symbolic and b.nbytes > BUFFER_LIMIT:
            raise LowerError(
                f"lower: the buffer {b.name!r} of {self.name!r} would take {b.nbytes} bytes (limit "
                f"{BUFFER_LIMIT}); compute it at a loop further inside, or align it to less"
            )
