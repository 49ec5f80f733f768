"""The mutable surface: `Schedule` and `Stage`, as in TVM's te.

Each call builds a frozen step, applies it to the immutable state and appends it to ``trace``. A call
that is refused changes nothing. Handles (axes, tensors) are looked up by identity, so they stay valid
across steps, and the axes of an operation that was cached resolve to the stage that carries them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loopwright.errors import ScheduleError
from loopwright.ir.expr import Binary, Const, IterVar, Var
from loopwright.schedule import steps as st
from loopwright.schedule.apply import apply
from loopwright.schedule.bounds import Bounds, infer_bounds
from loopwright.schedule.state import Loop, StageId, State
from loopwright.schedule.trace import trace_as_python
from loopwright.schedule.validate import validate_bounds
from loopwright.te.dag import Dag
from loopwright.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor


def create_schedule(ops: Operation | Tensor | Sequence[Operation | Tensor]) -> Schedule:
    """A schedule of everything that ``ops`` need: each stage at root, loops in the order given.

    Args:
        ops: an operation, a tensor, or a list of them: the outputs.
    """
    given = ops if isinstance(ops, list | tuple) else [ops]
    outs = []
    for x in given:
        op = x.op if isinstance(x, Tensor) else x
        if not isinstance(op, Operation):
            raise ScheduleError(f"create_schedule: expected operations or tensors, got {x!r}")
        if isinstance(op, PlaceholderOp):
            raise ScheduleError(f"create_schedule: {op.name!r} is an input; give what is computed")
        outs.append(op)
    if not outs or len(set(outs)) != len(outs):
        raise ScheduleError("create_schedule: expected one or more distinct operations")
    dag, index = Dag.from_ops(outs)
    return Schedule(dag, {op: i for op, i in index.items()})


def replay(dag: Dag, trace: Sequence[Any]) -> Schedule:
    """A fresh schedule of ``dag`` with a recorded trace (steps or their JSON) applied.

    Raises:
        ScheduleError: the trace is malformed, or a step is illegal for this DAG.
    """
    s = Schedule(dag, {})
    for x in trace:
        s._do(x if isinstance(x, st.Step) else st.Step.from_json(x))
    return s


class StageOp(Operation):
    """The present operation of a stage: `axis`, `reduce_axis`, `input_tensors`, ``output(0)``."""

    def __init__(self, schedule: Schedule, sid: StageId, tensor: Tensor | None = None) -> None:
        op = schedule.state.stages[sid].op
        super().__init__(op.name, op.shape, op.dtype, op.tag)
        self._schedule, self._sid = schedule, sid
        if tensor is not None:
            self._output = tensor
        self.axis = [schedule._handle(sid, f"a{d}") for d in range(len(op.axes))]
        self.reduce_axis = [schedule._handle(sid, f"r{d}") for d in range(len(op.reduce_axes))]

    @property
    def body(self) -> Any:
        """The expression of an element; reads name stages by id."""
        return self._schedule.state.stages[self._sid].op.body

    @property
    def input_tensors(self) -> list[Tensor]:
        """Tensors that the operation reads now."""
        reads = self._schedule.state.stages[self._sid].op.reads()
        ids = dict.fromkeys(r.source for r in reads)
        return [self._schedule._tensor(i) for i in ids]


class Schedule:
    """A schedule under construction.

    Attributes:
        dag: the program as it was before any step.
        state: the present immutable state.
        trace: the steps applied so far.
    """

    def __init__(self, dag: Dag, index: dict[Operation, int]) -> None:
        self.dag = dag
        self.state = State.initial(dag)
        self.trace: tuple[st.Step, ...] = ()
        self._ops: dict[Operation, StageId] = dict(index)
        self._tensors: dict[StageId, Tensor] = {i: op.output(0) for op, i in index.items()}
        self._by_axis: dict[IterVar, tuple[StageId, str]] = {}
        self._handles: dict[tuple[StageId, str], IterVar] = {}
        self._bounds: tuple[State, Bounds] | None = None
        for i, op in enumerate(dag.ops):
            self._own_axes(i, op.axes, op.reduce_axes)

    # ------------------------------------------------------------ looking things up

    def __getitem__(self, key: Any) -> Stage:
        """The stage of a tensor or operation.

        Raises:
            ScheduleError: it does not belong to this schedule.
        """
        return Stage(self, self._stage_id(key, "schedule"))

    @property
    def stages(self) -> list[Stage]:
        """All stages in topological order."""
        return [Stage(self, i) for i in self.state.order]

    @property
    def outputs(self) -> list[Operation]:
        """Operations of the outputs."""
        return [self._tensor(i).op for i in self.state.outputs]

    @property
    def tensors(self) -> list[Tensor]:
        """Tensors of the original DAG, in its order."""
        return [self._tensor(i) for i in range(len(self.dag.ops))]

    def _stage_id(self, key: Any, who: str) -> StageId:
        if isinstance(key, Stage):
            if key.schedule is not self:
                raise ScheduleError(f"{who}: {key!r} belongs to another schedule")
            return key.id
        op = key.op if isinstance(key, Tensor) else key
        if isinstance(op, StageOp) and op._schedule is self:
            return op._sid
        if isinstance(op, Operation) and op in self._ops:
            return self._ops[op]
        known = ", ".join(self.state.label(i) for i in self.state.order)
        raise ScheduleError(f"{who}: {key!r} is not part of this schedule; stages: {known}")

    def _tensor(self, sid: StageId) -> Tensor:
        if sid not in self._tensors:
            op = self.state.stages[sid].op
            made: Operation = (
                PlaceholderOp(op.name, op.shape, op.dtype)
                if op.is_placeholder
                else StageOp(self, sid)
            )
            self._tensors[sid] = made.output(0)
            self._ops[made] = sid
        return self._tensors[sid]

    def _own_axes(
        self, sid: StageId, axes: Sequence[IterVar], reduce: Sequence[IterVar]
    ) -> None:
        for kind, group in (("a", axes), ("r", reduce)):
            for d, axis in enumerate(group):
                self._by_axis[axis] = (sid, f"{kind}{d}")
                self._handles[sid, f"{kind}{d}"] = axis

    def _handle(self, sid: StageId, loop: str) -> IterVar:
        key = (sid, loop)
        if key not in self._handles:
            x: Loop = self.state.stages[sid].loops[loop]
            axis = IterVar(Var(x.name), x.nominal, x.kind)
            self._handles[key] = axis
            self._by_axis[axis] = key
        return self._handles[key]

    def _loop_id(self, sid: StageId, axis: Any, who: str) -> str:
        if not isinstance(axis, IterVar):
            raise ScheduleError(f"{who}: expected an axis of the stage, got {axis!r}")
        label = self.state.label(sid)
        if axis not in self._by_axis:
            raise ScheduleError(f"{who}: axis {axis.name!r} is not known in this schedule")
        owner, loop = self._by_axis[axis]
        if owner != sid:
            raise ScheduleError(
                f"{who}: axis {axis.name!r} belongs to stage {self.state.label(owner)!r}, not to "
                f"{label!r} (loops: {self.state.loop_list(self.state.stages[sid])})"
            )
        return loop

    # ------------------------------------------------------------ steps

    def _do(self, step: st.Step) -> int:
        """Apply a step; returns its index."""
        before = self.state
        self.state = apply(before, step)
        self.trace = (*self.trace, step)
        if isinstance(step, st.CacheRead | st.CacheWrite):
            new_id = f"s{before.steps}"
            op = self.state.stages[new_id].op
            self._own_axes(new_id, op.axes, op.reduce_axes)
        return before.steps

    def cache_read(self, tensor: Any, scope: str, readers: Any) -> Tensor:
        """Copy ``tensor`` into a buffer of ``scope`` which the ``readers`` use instead.

        Before::

            for i, k: C[i] += A[i, k]

        After ``AL = s.cache_read(A, "local", [C])``::

            for i, k: A.local[i, k] = A[i, k]
            for i, k: C[i] += A.local[i, k]

        With ``s[AL].compute_at(s[C], i)`` the copy shrinks to what one i needs.

        Args:
            tensor: the tensor to copy (an input or a stage).
            scope: ``"global"``, ``"shared"`` or ``"local"``.
            readers: a tensor, operation or stage that reads it, or a list of them.

        Returns:
            The tensor of the new stage.

        Raises:
            ScheduleError: a reader does not read the tensor; unknown scope.
        """
        group = readers if isinstance(readers, list | tuple) else [readers]
        ids = tuple(self._stage_id(r, "cache_read") for r in group)
        t = self._do(st.CacheRead(self._stage_id(tensor, "cache_read"), scope, ids))
        return self._tensor(f"s{t}")

    def cache_write(self, tensor: Any, scope: str) -> Tensor:
        """Compute ``tensor`` in a buffer of ``scope`` and copy the result.

        Before::

            for i, j, k: C[i, j] += A[i, k] * B[k, j]

        After ``CL = s.cache_write(C, "local")``::

            for i, j, k: C.local[i, j] += A[i, k] * B[k, j]
            for i, j:    C[i, j] = C.local[i, j]

        ``C.op.axis`` stay axes of C; ``C.op.reduce_axis`` now belong to the new stage.

        Args:
            tensor: the tensor to cache; its loops must be untouched.
            scope: ``"global"``, ``"shared"`` or ``"local"``.

        Returns:
            The tensor of the new stage.

        Raises:
            ScheduleError: the loops of the stage are transformed already; it is a placeholder.
        """
        t = self._do(st.CacheWrite(self._stage_id(tensor, "cache_write"), scope))
        return self._tensor(f"s{t}")

    # ------------------------------------------------------------ results

    def bounds(self) -> Bounds:
        """Bounds of all stages in the present state (inferred once a state)."""
        if self._bounds is None or self._bounds[0] is not self.state:
            self._bounds = (self.state, infer_bounds(self.state))
        return self._bounds[1]

    def validate(self) -> Bounds:
        """Check the rules that need extents; returns the bounds.

        Raises:
            ScheduleError: a stage is attached where its readers do not run, a vector is too long,
                unrolling makes too many copies.
        """
        bounds = self.bounds()
        validate_bounds(self.state, bounds)
        return bounds

    def trace_json(self) -> list[list[Any]]:
        """The trace as JSON-able lists; `replay` applies it to the DAG again."""
        return [step.to_json() for step in self.trace]

    def as_python(self) -> str:
        """The trace as a Python function of a fresh schedule and its tensors."""
        return trace_as_python(self.dag, self.trace)

    def arg_ids(self, args: Sequence[Tensor]) -> list[int]:
        """Indices in the DAG of the tensors ``args``.

        Raises:
            ScheduleError: one of them is not a tensor of the original DAG.
        """
        out: list[int] = []
        for t in args:
            sid = self._stage_id(t, "arguments")
            if not isinstance(sid, int):
                raise ScheduleError(
                    f"arguments: {t.name!r} was made by a schedule primitive; arguments are "
                    "tensors of the program"
                )
            out.append(sid)
        return out


class Stage:
    """One stage of a schedule; its methods are the primitives."""

    def __init__(self, schedule: Schedule, sid: StageId) -> None:
        self.schedule, self.id = schedule, sid

    def __repr__(self) -> str:
        return f"Stage({self.schedule.state.label(self.id)})"

    @property
    def op(self) -> Operation:
        """The operation as it is now (after caching steps)."""
        t = self.schedule._tensor(self.id)
        original = isinstance(t.op, ComputeOp)
        unchanged = original and (
            self.schedule.state.stages[self.id].op is self.schedule.dag.ops[int(self.id)]
        )
        if unchanged or isinstance(t.op, PlaceholderOp):
            return t.op
        return StageOp(self.schedule, self.id, t)

    @property
    def leaf_iter_vars(self) -> list[IterVar]:
        """Handles of the present loops, outermost first."""
        st_ = self.schedule.state.stages[self.id]
        return [self.schedule._handle(self.id, x) for x in st_.leaves]

    def _loop(self, axis: Any, who: str) -> str:
        return self.schedule._loop_id(self.id, axis, who)

    def split(
        self, parent: IterVar, factor: int | None = None, nparts: int | None = None
    ) -> tuple[IterVar, IterVar]:
        """Split a loop in two.

        Before::

            for i in range(n): f(i)

        After ``io, ii = s[C].split(i, factor=8)``::

            for io in range(ceil(n / 8)):
              for ii in range(8):
                if io * 8 + ii < n: f(io * 8 + ii)      # no test when 8 divides n

        Args:
            parent: the loop.
            factor: extent of the inner loop (at most that of the parent), or
            nparts: extent of the outer loop. Exactly one of the two.

        Returns:
            The outer and the inner loop.

        Raises:
            ScheduleError: the loop no longer exists, is marked, or has a stage computed at it.
        """
        t = self.schedule._do(st.Split(self.id, self._loop(parent, "split"), factor, nparts))
        return self.schedule._handle(self.id, f"{t}.0"), self.schedule._handle(self.id, f"{t}.1")

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: int, y_factor: int
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and put both outer ones outside.

        Before::

            for x in range(n): for y in range(m): f(x, y)

        After ``xo, yo, xi, yi = s[C].tile(x, y, 4, 8)``::

            for xo: for yo: for xi in range(4): for yi in range(8): f(xo*4 + xi, yo*8 + yi)

        Returns:
            ``(x outer, y outer, x inner, y inner)``.

        Raises:
            ScheduleError: as `split` and `reorder`.
        """
        self._loop(y_parent, "tile")
        xo, xi = self.split(x_parent, factor=x_factor)
        yo, yi = self.split(y_parent, factor=y_factor)
        self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    def fuse(self, *axes: Any) -> IterVar:
        """Fuse adjacent loops of one kind, outermost first.

        Before::

            for i in range(n): for j in range(m): f(i, j)

        After ``f = s[C].fuse(i, j)``::

            for f in range(n * m): f(f // m, f % m)

        Raises:
            ScheduleError: the loops are not adjacent in this order, or of different kinds.
        """
        group = axes[0] if len(axes) == 1 and isinstance(axes[0], list | tuple) else axes
        if not group:
            raise ScheduleError("fuse: expected at least one loop")
        out: IterVar = group[0]
        self._loop(out, "fuse")
        for nxt in group[1:]:
            step = st.Fuse(self.id, self._loop(out, "fuse"), self._loop(nxt, "fuse"))
            t = self.schedule._do(step)
            out = self.schedule._handle(self.id, f"{t}.0")
        return out

    def reorder(self, *axes: IterVar) -> None:
        """Put loops into the given order, in the places that they occupy together.

        Before::

            for i: for j: for k: ...

        After ``s[C].reorder(k, i)``::

            for k: for j: for i: ...

        Raises:
            ScheduleError: a loop is given twice or no longer exists.
        """
        group = axes[0] if len(axes) == 1 and isinstance(axes[0], list | tuple) else axes
        order = tuple(self._loop(a, "reorder") for a in group)
        self.schedule._do(st.Reorder(self.id, order))

    def vectorize(self, axis: IterVar) -> None:
        """Run the iterations of a spatial loop as lanes of vectors.

        Before::

            for i in range(16): C[i] = A[i] + 1

        After ``s[C].vectorize(i)``::

            C[0:16] = A[0:16] + 1

        Raises:
            ScheduleError: the loop is a reduction; (when lowering) it is too long.
        """
        self._annotate(axis, "vectorized", "vectorize")

    def unroll(self, axis: IterVar) -> None:
        """Write a loop's iterations out one after the other.

        Before::

            for i in range(2): C[i] = A[i]

        After ``s[C].unroll(i)``::

            C[0] = A[0]
            C[1] = A[1]

        Raises:
            ScheduleError: (when lowering) it would make too many copies.
        """
        self._annotate(axis, "unrolled", "unroll")

    def parallel(self, axis: IterVar) -> None:
        """Distribute the iterations of a spatial loop over the thread pool.

        Before::

            for i in range(n): f(i)

        After ``s[C].parallel(i)``::

            parallel for i in range(n): f(i)

        Raises:
            ScheduleError: the loop is a reduction.
        """
        self._annotate(axis, "parallel", "parallel")

    def _annotate(self, axis: IterVar, kind: str, verb: str) -> None:
        self.schedule._do(st.Annotate(self.id, self._loop(axis, verb), kind))

    def bind(self, ivar: IterVar, thread_ivar: Any) -> None:
        """Bind a spatial loop to a GPU thread axis (recorded; CPU targets refuse it).

        Before::

            for i in range(256): f(i)

        After ``s[C].bind(i, te.thread_axis("threadIdx.x"))``::

            f(threadIdx.x)      # launched with threadIdx.x in range(256)

        Raises:
            ScheduleError: the loop is a reduction, or bound already.
        """
        tag = thread_ivar if isinstance(thread_ivar, str) else getattr(thread_ivar, "thread_tag", "")
        if not tag:
            raise ScheduleError(f"bind: expected te.thread_axis(...), got {thread_ivar!r}")
        self.schedule._do(st.Bind(self.id, self._loop(ivar, "bind"), tag))

    def pragma(self, axis: IterVar, pragma_type: str, pragma_value: Any = True) -> None:
        """Attach a hint to a loop.

        ``auto_unroll_max_step`` (int): below this loop, innermost loops are unrolled as long as the
        copies of the body stay within the value. ``unroll_explicit`` (bool) is accepted as in TE.

        Before::

            for i in range(4): for j in range(2): f(i, j)

        After ``s[C].pragma(i, "auto_unroll_max_step", 2)``::

            for i in range(4): f(i, 0); f(i, 1)

        Raises:
            ScheduleError: unknown pragma.
        """
        step = st.Pragma(self.id, self._loop(axis, "pragma"), pragma_type, pragma_value)
        self.schedule._do(step)

    def compute_at(self, parent: Any, scope: IterVar) -> None:
        """Compute this stage inside a loop of a stage that uses it, only as much as is needed there.

        Before::

            for i: B[i] = f(A[i])
            for i: C[i] = B[i] + 1

        After ``s[B].compute_at(s[C], i)``::

            for i:
              B' = f(A[i])
              C[i] = B' + 1

        Args:
            parent: the stage, tensor or operation whose loop it is.
            scope: the loop.

        Raises:
            ScheduleError: the stage is an output or an input; ``parent`` does not use it; (when
                lowering) another reader runs outside that loop.
        """
        pid = self.schedule._stage_id(parent, "compute_at")
        loop = self.schedule._loop_id(pid, scope, "compute_at")
        self.schedule._do(st.ComputeAt(self.id, pid, loop))

    def compute_inline(self) -> None:
        """Substitute this stage's expression into its readers.

        Before::

            for i: B[i] = A[i] * 2
            for i: C[i] = B[i] + 1

        After ``s[B].compute_inline()``::

            for i: C[i] = A[i] * 2 + 1

        Raises:
            ScheduleError: the stage is a reduction, an output or an input.
        """
        self.schedule._do(st.ComputeInline(self.id))

    def compute_root(self) -> None:
        """Compute the stage on its own before its readers (undoes compute_at and compute_inline).

        Before::

            for i:
              B' = f(A[i])
              C[i] = B' + 1

        After ``s[B].compute_root()``::

            for i: B[i] = f(A[i])
            for i: C[i] = B[i] + 1
        """
        self.schedule._do(st.ComputeRoot(self.id))

    def transform_layout(self, index_map: Callable[..., Any]) -> None:
        """Choose the order in which the stage's buffer is stored.

        Before::

            B.local: [K, N];  B.local[k, j] at  k * N + j

        After ``s[BL].transform_layout(lambda k, j: (j // 16, k, j % 16))``::

            B.local: [N / 16, K, 16];  B.local[k, j] at  ((j // 16) * K + k) * 16 + j % 16

        Args:
            index_map: gets one index a dimension and returns the new indices: permutations and
                splits ``i // f``, ``i % f``, ``(i // f) % g``. It must be a bijection. Indices count
                from the first element that the stage covers.

        Raises:
            ScheduleError: the map is no bijection or not of this form; the stage is an input or an
                output, whose memory belongs to the caller.
        """
        ndim = len(self.schedule.state.stages[self.id].op.shape)
        self.schedule._do(st.TransformLayout(self.id, _trace_map(index_map, ndim)))


def _trace_map(index_map: Callable[..., Any], ndim: int) -> tuple[tuple[int, int, int | None], ...]:
    axes = [Var(f"i{d}") for d in range(ndim)]
    try:
        result = index_map(*axes)
    except TypeError as e:
        raise ScheduleError(f"transform_layout: the map must take {ndim} indices: {e}") from e
    parts = result if isinstance(result, list | tuple) else (result,)
    return tuple(_digit(e, axes) for e in parts)


def _digit(e: Any, axes: list[Var]) -> tuple[int, int, int | None]:
    mod: int | None = None
    div = 1
    if isinstance(e, Binary) and e.op == "%" and isinstance(e.b, Const):
        e, mod = e.a, int(e.b.value)
    if isinstance(e, Binary) and e.op == "//" and isinstance(e.b, Const):
        e, div = e.a, int(e.b.value)
    if not isinstance(e, Var) or e not in axes or div < 1 or (mod is not None and mod < 1):
        raise ScheduleError(
            "transform_layout: each new index must be i, i // f, i % f or (i // f) % g of one old "
            "index"
        )
    return axes.index(e), div, mod


