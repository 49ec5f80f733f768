"""`Schedule`, the mutable surface, as in TVM's te; `Stage` stands beside this file.

Each call applies a frozen step to the immutable state; one that is refused changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, overload

from loopwright.errors import ScheduleError
from loopwright.ir.expr import IterVar
from loopwright.ir.kinds import Scope
from loopwright.schedule.apply import trace_as_python, validate_bounds
from loopwright.schedule.bounds.infer import infer_bounds
from loopwright.schedule.bounds.results import Bounds
from loopwright.schedule.primitives import BlockedScan, CacheRead, CacheWrite, CreateGroup, RFactor
from loopwright.schedule.resolution import ScheduleBase, StageLike, StageRef
from loopwright.schedule.stage import Group, Stage, output_of, plain
from loopwright.schedule.state import StageId, StageState, State, initial_stage
from loopwright.schedule.steps import Step, check_trace
from loopwright.te import ArgId, Dag, Operation, PlaceholderOp, Tensor, arg_id, read_arg_id


def create_schedule(ops: Operation | Tensor | Sequence[Operation | Tensor]) -> Schedule:
    """A schedule of everything that ``ops`` need: each stage at root, loops in the order given.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> C = te.compute((4,), lambda i: B[i] * 2, name="C")
        >>> s = lw.create_schedule(C.op)
        >>> print(s)
        Schedule(stages A, B, C; 0 step(s))
        >>> print(lw.lower(s, [A, C]))
        def main(A: float32[4], C: out float32[4]):
          B = alloc(float32[4], global)
          for i in range(4):
            B[i] = A[i] + 1.0
          for i_1 in range(4):
            C[i_1] = B[i_1] * 2.0
    """
    results = _listed(ops)
    outs = []
    for x in results:
        op = x.op if isinstance(x, Tensor) else x
        if not isinstance(op, Operation):
            raise ScheduleError(f"create_schedule: expected operations or tensors, got {x!r}")
        if isinstance(op, PlaceholderOp):
            raise ScheduleError(f"create_schedule: {op.name!r} is an input; give what is computed")
        outs.append(op)
    if not outs:
        raise ScheduleError("create_schedule: expected one or more operations")
    dag, index = Dag.from_ops(list(dict.fromkeys(outs)))
    return Schedule(dag, {op: i for op, i in index.items()})


def replay(dag: Dag, trace: Sequence[Step | list[Any]]) -> Schedule:
    """A fresh schedule of ``dag`` with a recorded trace (steps or their JSON) applied.

    JSON may come from a log that somebody else wrote: it has limits
    (`loopwright.schedule.steps.check_trace`), and an intrinsic in it is used only if this program
    has declared it or if it is proved harmless (`loopwright.te.intrin_proof`).

    Raises:
        ScheduleError: the trace is malformed, or a step or an intrinsic is refused.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].parallel(B.op.axis[0])
        >>> again = lw.schedule.replay(s.dag, s.trace_json())
        >>> print(again, again.trace == s.trace)
        Schedule(stages A, B; 1 step(s)) True
    """
    is_list = isinstance(trace, list | tuple)
    check_trace([x for x in trace if not isinstance(x, Step)] if is_list else trace)
    s = Schedule(dag, {})
    for x in trace:
        s.apply_step(x if isinstance(x, Step) else Step.from_json(x))
    return s


class Schedule(ScheduleBase):
    """A schedule under construction.

    Attributes:
        dag: the program as it was before any step.
        origin: its source, such as the history of a log; None: it is written by hand.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> io, ii = s[B].split(B.op.axis[0], factor=4)
        >>> s[B].vectorize(ii)
        >>> print(s)
        Schedule(stages A, B; 2 step(s))
        >>> print(s.trace_json())
        [['split', 1, 'a0', 4, None], ['annotate', 1, '0.1', 'vectorized']]
        >>> print(s.as_python())
        def schedule(s, A, B):
            [i] = s[B].op.axis
            i_0, i_1 = s[B].split(i, factor=4)
            s[B].vectorize(i_1)
            return s
        <BLANKLINE>
    """

    def __init__(self, dag: Dag, index: dict[Operation, int]) -> None:
        super().__init__(dag, index)
        self.origin: object | None = None
        self._bounds: tuple[State, Bounds] | None = None

    def __repr__(self) -> str:
        names = ", ".join(self.state.label(i) for i in self.state.order)
        return f"Schedule(stages {names}; {len(self.trace)} step(s))"

    def _repr_html_(self) -> str:
        from loopwright.presenting import html_block, html_folded, html_text

        count = f"{len(self.trace)} step{'s' * (len(self.trace) != 1)}"
        names = ", ".join(self.state.label(i) for i in self.state.order)
        expression = html_folded("Tensor expression", html_text(self.dag.as_python()))
        return html_block(f"Schedule of {names}: {count}", html_text(self.as_python()), expression)

    def __getitem__(self, key: StageLike) -> Stage:
        """The stage of a tensor or operation; a ScheduleError if it is none of this schedule."""
        return Stage(self, self.stage_id(key, "schedule"))

    def copy(self) -> Schedule:
        """An independent copy: steps of one of the two are not steps of the other.

        Axes, and tensors that there were before, mean the same in both; what a step of one of the
        two makes afterwards is its own.
        """
        other = copy(self)
        other._detach(self)
        return other

    def normalize(self) -> Schedule:
        """A `copy`, as scripts for TVM ask for it: loops begin at 0 here."""
        return self.copy()

    def with_arguments(self, args: Sequence[object]) -> Schedule:
        """Itself, or a copy with stages for those placeholders of ``args`` that nothing reads.

        The only read of an argument may fold away, as that of ``A[i] * 0`` does.

        Example:
            >>> A = te.placeholder((4,), "int32", name="A")
            >>> B = te.compute((4,), lambda i: A[i] * 0, name="B")
            >>> print(lw.create_schedule(B.op).with_arguments([A, B]))
            Schedule(stages B, A; 0 step(s))
        """
        tensors = [a for a in args if isinstance(a, Tensor)]
        unread = [t.op for t in tensors if type(t.op) is PlaceholderOp]
        new = [op for op in dict.fromkeys(unread) if op not in self._stage_of_op]
        if not new:
            return self
        other = self.copy()
        numbers = range(len(self.dag.ops), len(self.dag.ops) + len(new))
        other.dag = self.dag.with_inputs(new)
        stages: dict[StageId, StageState] = {i: initial_stage(i, other.dag.ops[i]) for i in numbers}
        other.state = replace(
            self.state,
            stages={**self.state.stages, **stages},
            order=(*self.state.order, *numbers),
        )
        other._operations |= dict(zip(numbers, new, strict=True))
        other._stage_of_op |= dict(zip(new, numbers, strict=True))
        return other

    @property
    def stages(self) -> list[Stage]:
        """All stages in topological order."""
        return [Stage(self, i) for i in self.state.order]

    @property
    def groups(self) -> list[Group]:
        """All groups of stages, in the order in which they were made."""
        return [Group(self, i) for i in self.state.groups]

    @property
    def outputs(self) -> list[Operation]:
        """Operations of the outputs."""
        return [self._operation(i) for i in self.state.outputs]

    @property
    def tensors(self) -> list[Tensor]:
        """The tensor (of several outputs the first) of each operation of the original DAG."""
        return [self._tensor(i) for i in range(len(self.dag.ops))]

    def tensor(self, arg_id: ArgId) -> Tensor:
        """The tensor of the original DAG with an id as in `arg_ids`."""
        return self._tensor(*read_arg_id(arg_id))

    def seed(self, number: int) -> None:
        """Seed the generator of the sampling primitives; the seed is 0 at first."""
        self.random.seed(number)

    # ------------------------------------------------------------ primitives

    def cache_read(
        self, tensor: StageLike, scope: Scope, readers: StageLike | Sequence[StageLike]
    ) -> Tensor:
        """Copy ``tensor`` into a buffer of ``scope`` which the ``readers`` use instead.

        Returns the tensor of the copy: with ``s[AL].compute_at(s[C], i)`` it shrinks to what one i
        needs.

        Args:
            tensor: the tensor to copy (an input, or a tensor that a stage makes).
            scope: as of `Stage.set_scope`.
            readers: a tensor, operation or stage that reads it, or a list of them.

        Raises:
            ScheduleError: a reader does not read the tensor; unknown scope.

        Example:
            >>> A = te.placeholder((4, 8), name="A")
            >>> k = te.reduce_axis((0, 8), name="k")
            >>> C = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="C")
            >>> s = te.create_schedule(C.op)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[4, 8], C: out float32[4]):
              for i in range(4):
                C[i] = 0.0
                for k in range(8):
                  C[i] = C[i] + A[i, k]
            >>> AL = s.cache_read(A, "local", [C])
            >>> s[AL].compute_at(s[C], C.op.axis[0])
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[4, 8], C: out float32[4]):
              for i in range(4):
                A.local = alloc(float32[1, 8], local)
                for ax1 in range(8):
                  A.local[0, ax1] = A[i, ax1]
                C[i] = 0.0
                for k in range(8):
                  C[i] = C[i] + A.local[0, k]
        """
        who = self._who("cache_read")
        ids = self._stage_ids(readers, who)
        t = self.apply_step(
            CacheRead(self.stage_id(tensor, who), scope, ids, output_of(tensor, who))
        )
        return self._tensor(f"s{t}")

    @overload
    def cache_write(self, tensor: Tensor, scope: Scope) -> Tensor: ...

    @overload
    def cache_write(self, tensor: Sequence[Tensor], scope: Scope) -> list[Tensor]: ...

    @overload
    def cache_write(self, tensor: Operation | StageRef, scope: Scope) -> Tensor | list[Tensor]: ...

    def cache_write(
        self, tensor: StageLike | Sequence[Tensor], scope: Scope
    ) -> Tensor | list[Tensor]:
        """Compute ``tensor`` in a buffer of ``scope`` and copy the result.

        ``C.op.axis`` stay axes of C; ``C.op.reduce_axis`` now belong to the new stage, whose tensor
        is returned: a list of them where there are several, or a list was given.

        Args:
            tensor: the tensor to cache; its loops must be untouched. Of an operation with several
                outputs a list of all of them (or the operation): one stage caches them together.
            scope: as of `Stage.set_scope`.

        Raises:
            ScheduleError: the loops of the stage are transformed already; it is a placeholder; of
                several outputs only some are given.

        Example:
            >>> A = te.placeholder((4, 8), name="A")
            >>> k = te.reduce_axis((0, 8), name="k")
            >>> C = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="C")
            >>> s = te.create_schedule(C.op)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[4, 8], C: out float32[4]):
              for i in range(4):
                C[i] = 0.0
                for k in range(8):
                  C[i] = C[i] + A[i, k]
            >>> CL = s.cache_write(C, "local")
            >>> s[CL].compute_at(s[C], C.op.axis[0])
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[4, 8], C: out float32[4]):
              for i in range(4):
                C.local = alloc(float32[1], local)
                C.local[0] = 0.0
                for k in range(8):
                  C.local[0] = C.local[0] + A[i, k]
                C[i] = C.local[0]
        """
        who = self._who("cache_write")
        outputs = _listed(tensor)
        if not outputs:
            raise ScheduleError(f"{who}: expected a tensor or all outputs of an operation")
        sid = self.stage_id(outputs[0], who)
        for other in (self.stage_id(x, who) for x in outputs[1:]):
            if other != sid:
                raise ScheduleError(
                    f"{who}: {self.state.label(sid)!r} and {self.state.label(other)!r} are not "
                    "outputs of one operation; cache them one after the other"
                )
        n = self.state.stages[sid].op.num_outputs
        is_whole = len(outputs) == 1 and not isinstance(outputs[0], Tensor)
        if not is_whole and {x.value_index for x in outputs if isinstance(x, Tensor)} != {
            *range(n)
        }:
            names = ", ".join(self.state.output_label(sid, k) for k in range(n))
            raise ScheduleError(
                f"{who}: {self.state.label(sid)!r} makes {n} outputs in one nest; give all of "
                f"them: cache_write([{names}], scope)"
            )
        new = self._operation(f"s{self.apply_step(CacheWrite(sid, scope))}")
        many = new.num_outputs > 1 or outputs[0] is not tensor
        return list(new._outputs) if many else new.output(0)

    def rfactor(
        self, tensor: StageLike, axis: IterVar, factor_axis: int = 0
    ) -> Tensor | list[Tensor]:
        """Compute partial results along a reduction loop in a new stage, then combine them.

        The loop becomes a spatial axis of the new stage, so that it can be parallel, bound or
        vectorized there; what is left of the reduction stays a reduction of the new stage, whose
        tensor is returned: a list of its outputs for a reduction of tuples.

        Where the split has a tail, the points beyond the axis are left out of the partial results.
        ``init=`` of the reduction enters when they are combined. The spatial loops of ``tensor``
        stay as they are (TE takes splits of them back). Reduction loops move to the new stage:
        ``ko`` and, as a spatial one, ``ki``; ``s[B].op.reduce_axis[0]`` runs over the results.
        Elements are combined in another order than before.

        Args:
            tensor: a reduction, or any output of one of tuples; its reduction loops may be split,
                fused and reordered, not marked.
            factor_axis: where its axis stands among those of the new stage; negative ones count
                from the end, as in TE.

        Raises:
            ScheduleError: the stage is no reduction, the loop is none of its reduction loops, one
                of these is marked or has a stage computed at it; ``factor_axis`` is out of range.

        Example:
            >>> A = te.placeholder((64,), name="A")
            >>> k = te.reduce_axis((0, 64), name="k")
            >>> B = te.compute((), lambda: te.sum(A[k], axis=k), name="B")
            >>> s = te.create_schedule(B.op)
            >>> ko, ki = s[B].split(k, factor=8)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[]):
              B[] = 0.0
              for k.0 in range(8):
                for k.1 in range(8):
                  B[] = B[] + A[k.0 * 8 + k.1]
            >>> BF = s.rfactor(B, ki)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[]):
              B.rf = alloc(float32[8], global)
              for k.1 in range(8):
                B.rf[k.1] = 0.0
                for k.0 in range(8):
                  B.rf[k.1] = B.rf[k.1] + A[k.0 * 8 + k.1]
              B[] = 0.0
              for k.1_1 in range(8):
                B[] = B[] + B.rf[k.1_1]
        """
        who = self._who("rfactor")
        sid = self.stage_id(tensor, who)
        with self._naming("rfactor"):
            self.state.compute_stage(sid)
        loop = self.loop_id(sid, axis, who)
        at = plain(factor_axis)
        if isinstance(at, bool) or not isinstance(at, int):
            raise ScheduleError(f"{who}: factor_axis must be an integer, got {factor_axis!r}")
        n = len(self.state.stages[sid].op.shape) + 1
        t = self.apply_step(RFactor(sid, loop, at + n if -n <= at < 0 else at))
        new = self._operation(f"s{t}")
        return new.output(0) if new.num_outputs == 1 else list(new._outputs)

    def blocked_scan(self, tensor: StageLike, axis: IterVar, factor: int) -> tuple[Tensor, Tensor]:
        """Compute running sums, or another scan, by blocks: a place starts from the blocks before.

        A scan is a reduction of ``select(k <= j, element, identity)``, or of the element with
        ``where=k <= j``; j is an axis of the result on which the element does not depend. Instead
        of ``<=`` there may be any comparison, and an offset. As a reduction it takes quadratic
        work. Afterwards a place starts from the running totals of blocks, which are a scan over
        blocks themselves, and combines at most ``factor`` elements (Blelloch, Prefix Sums and Their
        Applications, 1990), in another order than before.

        Args:
            tensor: the scan, whose loops are untouched.
            axis: the reduction loop along which it runs, ``k``.
            factor: elements of a block, at least 2.

        Returns:
            The tensors of two new stages: the running totals of blocks, and the totals, each with
            an element for a block. Reduction loops are new in all three stages, as in
            ``s[tensor].op.reduce_axis``.

        Raises:
            ScheduleError: the stage is no such scan along the loop, its loops are transformed, a
                stage is computed inside, or a block is no part of the elements.

        Example:
            >>> A = te.placeholder((64,), name="A")
            >>> k = te.reduce_axis((0, 64), name="k")
            >>> B = te.compute((64,), lambda j: te.sum(A[k], axis=k, where=k <= j), name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[64]):
              for j in range(64):
                B[j] = 0.0
                for k in range(64):
                  if k <= j:
                    B[j] = B[j] + A[k]
            >>> running, totals = s.blocked_scan(B, k, 8)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[64]):
              B.totals = alloc(float32[8], global)
              for j in range(8):
                B.totals[j] = 0.0
                for k in range(8):
                  B.totals[j] = B.totals[j] + A[j * 8 + k]
              B.blocks = alloc(float32[8], global)
              for j_1 in range(8):
                B.blocks[j_1] = 0.0
                for k_1 in range(8):
                  B.blocks[j_1] = B.blocks[j_1] + select(k_1 <= j_1, B.totals[k_1], 0.0)
              for j_2 in range(64):
                B[j_2] = (B.blocks[j_2 // 8 - 1] if j_2 // 8 - 1 >= 0 else 0.0)
                for k_2 in range(8):
                  B[j_2] = B[j_2] + select(k_2 <= j_2 - j_2 // 8 * 8, A[j_2 // 8 * 8 + k_2], 0.0)
        """
        who = self._who("blocked_scan")
        sid = self.stage_id(tensor, who)
        with self._naming("blocked_scan"):
            self.state.compute_stage(sid)
        loop, block = self.loop_id(sid, axis, who), plain(factor)
        if isinstance(block, bool) or not isinstance(block, int):
            raise ScheduleError(f"{who}: factor must be an integer, got {factor!r}")
        t = self.apply_step(BlockedScan(sid, loop, block))
        return self._tensor(f"s{t}"), self._tensor(f"s{t}.0")

    def create_group(
        self,
        outputs: StageLike | Sequence[StageLike],
        inputs: StageLike | Sequence[StageLike],
        include_inputs: bool = False,
    ) -> Group:
        """Group the stages between some tensors, so that they are moved together.

        A stage belongs to the group when an output is, or needs, it and it needs an input. Its
        stages are computed where the group is, in their order; one that has a place of its own
        (inside another stage of the group, or inlined) keeps that, and `compute_root` gives it back
        to the group. Stages that a step makes of one in the group belong to it as well. A group of
        stages of a group lies inside that and follows it.

        Args:
            outputs: tensors, operations or stages (or one): the last stages of the group.
            inputs: tensors (or one) from which the group begins.
            include_inputs: whether the stages of the inputs belong to it, too.

        Raises:
            ScheduleError: an output is an input of the program; no stage lies between; another
                group has some of the stages and not all; a stage is computed inside one that would
                not belong to the group (TE moves it back to root with a warning).

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] * 2, name="B")
            >>> C = te.compute((8,), lambda i: B[i] + 1, name="C")
            >>> D = te.compute((8,), lambda i: C[i] * C[i], name="D")
            >>> s = te.create_schedule(D.op)
            >>> print(lw.lower(s, [A, D]))
            def main(A: float32[8], D: out float32[8]):
              B = alloc(float32[8], global)
              for i in range(8):
                B[i] = A[i] * 2.0
              C = alloc(float32[8], global)
              for i_1 in range(8):
                C[i_1] = B[i_1] + 1.0
              for i_2 in range(8):
                D[i_2] = C[i_2] * C[i_2]
            >>> g = s.create_group(outputs=C, inputs=A)
            >>> print(g)
            Group(B, C)
            >>> g.compute_at(s[D], D.op.axis[0])
            >>> print(lw.lower(s, [A, D]))
            def main(A: float32[8], D: out float32[8]):
              for i in range(8):
                B = alloc(float32[1], global)
                B[0] = A[i] * 2.0
                C = alloc(float32[1], global)
                C[0] = B[0] + 1.0
                D[i] = C[0] * C[0]
        """
        who = self._who("create_group")
        ends = self._stage_ids(outputs, who)
        if not ends:
            raise ScheduleError(f"{who}: name at least one output")
        begins = self._stage_ids(inputs, who)
        t = self.apply_step(CreateGroup(ends[0], ends[1:], begins, bool(include_inputs)))
        return Group(self, f"s{t}")

    def _stage_ids(self, keys: StageLike | Sequence[StageLike], who: str) -> tuple[StageId, ...]:
        """Stages of a list of tensors, or of one; each once."""
        return tuple(dict.fromkeys(self.stage_id(x, who) for x in _listed(keys)))

    # ------------------------------------------------------------ results

    def bounds(self) -> Bounds:
        """Bounds of all stages in the present state (inferred once for each state)."""
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

    def arg_ids(self, args: Sequence[Tensor]) -> list[ArgId]:
        """Indices in the DAG of the tensors ``args``; ``(index, k)`` for output k > 0.

        Raises:
            ScheduleError: one of them is not a tensor of the original DAG.
        """
        out: list[ArgId] = []
        for t in args:
            sid = self.stage_id(t, "arguments")
            if not isinstance(sid, int):
                raise ScheduleError(
                    f"arguments: {t.name!r} was made by a schedule primitive; arguments are "
                    "tensors of the program"
                )
            out.append(arg_id(sid, output_of(t, "arguments")))
        return out


def _listed(keys: object) -> Sequence[object]:
    """A list or tuple as it is, anything else in a list."""
    return keys if isinstance(keys, list | tuple) else [keys]
