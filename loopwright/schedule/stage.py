"""`Stage`, whose methods are the primitives: each builds one step and hands it over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, SupportsIndex, TypeVar

from loopwright.errors import ScheduleError
from loopwright.ir.expr import Binary, Cast, Const, Expr, IterVar, Var
from loopwright.ir.kinds import AttachKind, MarkKind, Scope
from loopwright.ir.sizes import Symbol
from loopwright.schedule import primitives as steps
from loopwright.schedule.apply import apply, validate_bounds
from loopwright.schedule.bounds.infer import infer_bounds
from loopwright.schedule.primitives.layout import trace_map
from loopwright.schedule.primitives.loops import check_even
from loopwright.schedule.primitives.placement import group_label, members
from loopwright.schedule.primitives.sampling import Place, perfect_tiles
from loopwright.schedule.resolution import ScheduleBase, StageLike, StageOp, StageRef
from loopwright.schedule.state import FuseRel, PragmaValue, Sampled, SplitRel, StageId, StageState
from loopwright.te import (
    THREAD_TAGS,
    ComputeOp,
    Operation,
    PlaceholderOp,
    Tensor,
    TensorIntrin,
    intrinsic_from_json,
    require_equal,
)

ThreadAxis = IterVar | str | tuple[str, int | None]
_MOST_TILES = 1 << 17
_T = TypeVar("_T")
_ITER_TYPES = {
    "spatial": "DataPar",
    "reduce": "CommReduce",
    "thread": "ThreadIndex",
    "vectorized": "Vectorized",
    "unrolled": "Unrolled",
    "parallel": "Parallelized",
}


@dataclass(frozen=True, slots=True)
class IterVarAttr:
    """Mark and pragmas of a loop, under TE's names."""

    #: ``"DataPar"``, ``"CommReduce"``, ``"ThreadIndex"``, ``"Vectorized"``, ``"Unrolled"``,
    #: ``"Parallelized"`` or ``"Tensorized"``.
    iter_type: str
    bind_thread: str  #: thread axis that it is bound to, or ``""``
    pragmas: Mapping[str, PragmaValue]  #: by name


class Stage(StageRef):
    """One stage of a schedule; its methods are the primitives.

    Example:
        >>> A = te.placeholder((16,), name="A")
        >>> B = te.compute((16,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].parallel(B.op.axis[0])
        >>> print(s[B], s[B].leaf_iter_vars)
        Stage(B) [IterVar(i, extent=16, spatial)]
    """

    def __repr__(self) -> str:
        return f"Stage({self.schedule.state.label(self.id)})"

    def _who(self, verb: str) -> str:
        return self.schedule._who(verb)

    def loop_id(self, axis: object, verb: str) -> str:
        """The loop that an axis means (or a ScheduleError, by the primitive ``verb``)."""
        return self.schedule.loop_id(self.id, axis, self._who(verb))

    @property
    def _state(self) -> StageState:
        return self.schedule.state.stages[self.id]

    @property
    def op(self) -> Operation:
        """The operation as it is now (after caching steps)."""
        op = self.schedule._operation(self.id)
        original = isinstance(op, ComputeOp)
        unchanged = original and self._state.op is self.schedule.dag.ops[int(self.id)]
        if unchanged or isinstance(op, PlaceholderOp):
            return op
        return StageOp(self.schedule, self.id, op._outputs)

    @property
    def origin_op(self) -> Operation:
        """The operation as the user defined it; the present one for stages made by a step."""
        return self.schedule._operation(self.id)

    @property
    def leaf_iter_vars(self) -> list[IterVar]:
        """Axes of the present loops, outermost first."""
        return [self.schedule._axis(self.id, x) for x in self._state.leaves]

    @property
    def all_iter_vars(self) -> list[IterVar]:
        """Axes of all loops that ever were: those of the operation, and those that steps made."""
        return [self.schedule._axis(self.id, x) for x in self._state.loops]

    @property
    def iter_var_attrs(self) -> dict[IterVar, IterVarAttr]:
        """Marks and pragmas of present loops; loops without any are left out."""
        st = self._state
        out = {}
        for x in st.leaves:
            mark = st.marks.get(x)
            pragmas = {key: value for loop, key, value in st.pragmas if loop == x}
            kind = _ITER_TYPES[mark.kind if mark else st.loops[x].kind]
            if st.tensorized is not None and st.tensorized.loop == x:
                kind = "Tensorized"
            elif mark is None and not pragmas:
                continue
            axis = self.schedule._axis(self.id, x)
            out[axis] = IterVarAttr(kind, mark.tag if mark else "", pragmas)
        return out

    @property
    def relations(self) -> tuple[SplitRel | FuseRel, ...]:
        """Splits and fusions of loops, in the order of the steps."""
        return self._state.relations

    @property
    def attach_type(self) -> AttachKind:
        """Place where it is computed: ``"root"``, ``"inline"`` or ``"at"``."""
        return self._state.attach.kind

    @property
    def attach_stage(self) -> Stage | None:
        """The stage in whose loop it is computed, or None."""
        a = self._state.attach
        return type(self)(self.schedule, a.stage) if a.kind == "at" else None

    @property
    def attach_ivar(self) -> IterVar | None:
        """The loop at which it is computed, or None."""
        a = self._state.attach
        return self.schedule._axis(a.stage, a.loop) if a.kind == "at" else None

    @property
    def scope(self) -> Scope:
        """Memory scope of its buffer: ``"global"``, ``"shared"`` or ``"local"``."""
        return self._state.scope

    @property
    def is_output(self) -> bool:
        """True when it is one of the schedule's outputs."""
        return self.id in self.schedule.state.outputs

    # ------------------------------------------------------------ loops

    def split(
        self,
        parent: IterVar,
        factor: int | None = None,
        nparts: int | None = None,
        disable_predication: bool = False,
    ) -> tuple[IterVar, IterVar]:
        """Split a loop into an outer and an inner one.

        Args:
            factor: extent of the inner loop (at most that of the parent), or
            nparts: extent of the outer loop (at most that of the parent, unless it becomes
                threads). Exactly one of the two.
            disable_predication: insist that the split is even, so that it needs no test. (TE takes
                the caller's word for that, and runs over the end where it is not so.)

        Raises:
            ScheduleError: the loop no longer exists, is marked, or has a stage computed at it; with
                ``disable_predication`` the split is not even.

        Example:
            >>> A = te.placeholder((30,), name="A")
            >>> B = te.compute((30,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[30], B: out float32[30]):
              for i in range(30):
                B[i] = A[i] + 1.0

            Eight does not divide thirty: whole tiles run without a test, the last one with it.

            >>> io, ii = s[B].split(B.op.axis[0], factor=8)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[30], B: out float32[30]):
              for i.0 in range(4):
                if i.0 * 8 + 7 < 30:
                  for i.1 in range(8):
                    B[i.0 * 8 + i.1] = A[i.0 * 8 + i.1] + 1.0
                else:
                  for i.1 in range(8):
                    if i.0 * 8 + i.1 < 30:
                      B[i.0 * 8 + i.1] = A[i.0 * 8 + i.1] + 1.0
        """
        loop = self.loop_id(parent, "split")
        with self.schedule.all_or_nothing():
            t = self.schedule.apply_step(
                steps.Split(self.id, loop, sampled(factor), sampled(nparts))
            )
            if disable_predication:
                check_even(self.schedule.state, self._state, t)
        return self.schedule._axis(self.id, f"{t}.0"), self.schedule._axis(self.id, f"{t}.1")

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: int, y_factor: int
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops, put both outer ones outside: ``(x outer, y outer, x inner, y inner)``.

        Raises:
            ScheduleError: as `split` and `reorder`.

        Example:
            >>> A = te.placeholder((8, 32), name="A")
            >>> B = te.compute((8, 32), lambda x, y: A[x, y] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[8, 32], B: out float32[8, 32]):
              for x in range(8):
                for y in range(32):
                  B[x, y] = A[x, y] + 1.0
            >>> xo, yo, xi, yi = s[B].tile(*B.op.axis, 4, 8)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[8, 32], B: out float32[8, 32]):
              for x.0 in range(2):
                for y.0 in range(4):
                  for x.1 in range(4):
                    for y.1 in range(8):
                      B[x.0 * 4 + x.1, y.0 * 8 + y.1] = A[x.0 * 4 + x.1, y.0 * 8 + y.1] + 1.0
        """
        with self.schedule.all_or_nothing():
            xo, xi = self.split(x_parent, factor=x_factor)
            yo, yi = self.split(y_parent, factor=y_factor)
            self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    def fuse(self, *axes: IterVar | Sequence[IterVar]) -> IterVar:
        """Fuse adjacent loops of one kind, outermost first.

        Raises:
            ScheduleError: the loops are not adjacent in this order, or of different kinds.

        Example:
            >>> A = te.placeholder((4, 8), name="A")
            >>> B = te.compute((4, 8), lambda i, j: A[i, j] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[4, 8], B: out float32[4, 8]):
              for i in range(4):
                for j in range(8):
                  B[i, j] = A[i, j] + 1.0
            >>> f = s[B].fuse(*B.op.axis)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[4, 8], B: out float32[4, 8]):
              for i.j in range(32):
                i.j.q = i.j // 8
                i.j.r = i.j % 8
                B[i.j.q, i.j.r] = A[i.j.q, i.j.r] + 1.0
        """
        group = _listed(axes)
        if not group:
            raise ScheduleError(f"{self._who('fuse')}: expected at least one loop")
        loop = self.loop_id(group[0], "fuse")
        with self.schedule._naming("fuse"):
            self.schedule.state.leaf(self._state, loop)
        with self.schedule.all_or_nothing():
            for x in group[1:]:
                t = self.schedule.apply_step(steps.Fuse(self.id, loop, self.loop_id(x, "fuse")))
                loop = f"{t}.0"
        return self.schedule._axis(self.id, loop)

    def reorder(self, *axes: IterVar | Sequence[IterVar]) -> None:
        """Put loops into the given order, in the places that they occupy together.

        Raises:
            ScheduleError: a loop is given twice or no longer exists.

        Example:
            >>> A = te.placeholder((4, 8), name="A")
            >>> B = te.compute((4, 8), lambda i, j: A[i, j] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[4, 8], B: out float32[4, 8]):
              for i in range(4):
                for j in range(8):
                  B[i, j] = A[i, j] + 1.0
            >>> i, j = B.op.axis
            >>> s[B].reorder(j, i)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[4, 8], B: out float32[4, 8]):
              for j in range(8):
                for i in range(4):
                  B[i, j] = A[i, j] + 1.0
        """
        order = tuple(self.loop_id(a, "reorder") for a in _listed(axes))
        self.schedule.apply_step(steps.Reorder(self.id, order))

    def follow_split(
        self, parent: IterVar, source: IterVar, n_split: int | None = None
    ) -> tuple[IterVar, ...]:
        """Split a loop into tiles of the sizes that another loop was split into.

        The step holds no numbers, but the loop that it follows: a replay with another factor there
        splits this loop by it as well. Ansor's step of this name; it keeps what one stage computes
        and another one reads in tiles that fit. Returns ``n_split + 1`` loops, outermost first.

        Args:
            source: an axis of any stage, split by factor once or several times.
            n_split: how many of its splits are followed, from the outside in: what is inside the
                last one stays in one piece. None: all.

        Raises:
            ScheduleError: the source was not split, or by nparts; ``n_split`` is out of range; the
                loop no longer exists, is marked, or has a stage computed at it.

        Example:
            >>> A = te.placeholder((64,), name="A")
            >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
            >>> C = te.compute((64,), lambda i: B[i] * 2, name="C")
            >>> s = te.create_schedule(C.op)
            >>> outer, inner = s[C].split(C.op.axis[0], factor=16)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[64], C: out float32[64]):
              B = alloc(float32[64], global)
              for i in range(64):
                B[i] = A[i] + 1.0
              for i.0 in range(4):
                for i.1 in range(16):
                  C[i.0 * 16 + i.1] = B[i.0 * 16 + i.1] * 2.0
            >>> loops = s[B].follow_split(B.op.axis[0], C.op.axis[0])
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[64], C: out float32[64]):
              B = alloc(float32[64], global)
              for i.0 in range(4):
                for i.1 in range(16):
                  B[i.0 * 16 + i.1] = A[i.0 * 16 + i.1] + 1.0
              for i.0_1 in range(4):
                for i.1_1 in range(16):
                  C[i.0_1 * 16 + i.1_1] = B[i.0_1 * 16 + i.1_1] * 2.0
        """
        loop = self.loop_id(parent, "follow_split")
        sid, followed = self.schedule.any_loop_id(source, self._who("follow_split"))
        if n_split is None:  # all splits of the loop, and of the loops that came of it
            parts, n_split = {followed}, 0
            for rel in self.schedule.state.stages[sid].relations:
                if isinstance(rel, SplitRel) and rel.parent in parts:
                    parts |= {rel.outer, rel.inner}
                    n_split += 1
        t = self.schedule.apply_step(steps.FollowSplit(self.id, loop, sid, followed, n_split))
        return tuple(self.schedule._axis(self.id, f"{t}.{k}") for k in range(n_split + 1))

    def follow_fused_split(
        self, parent: IterVar, sources: Sequence[IterVar], level: int, factor_or_nparts: bool = True
    ) -> tuple[IterVar, IterVar]:
        """Split a loop by the product of the loops of one level of several splits.

        Another stage's loop is so shared out among the same threads where the loops of a level were
        fused into a thread axis. The step holds no numbers; it is Ansor's step of this name.
        Returns the outer and the inner loop.

        Args:
            sources: axes of any stages, each split by factor.
            level: which loop of each: 0 is the one behind the outermost, 1 the next one inside.
            factor_or_nparts: True: the product is the extent of the inner loop; False: of the outer
                one.

        Raises:
            ScheduleError: a source was not split, or by nparts; the level is out of range; there is
                no source; the loop no longer exists, is marked, or has a stage computed at it.

        Example:
            >>> A = te.placeholder((8, 16), name="A")
            >>> B = te.compute((8, 16), lambda i, j: A[i, j] + 1, name="B")
            >>> C = te.compute((8, 16), lambda i, j: B[i, j] * 2, name="C")
            >>> s = te.create_schedule(C.op)
            >>> io, jo, ii, ji = s[C].tile(*C.op.axis, 2, 4)
            >>> threads = s[C].fuse(ii, ji)
            >>> fused = s[B].fuse(*B.op.axis)
            >>> print(s[C].leaf_iter_vars[-1].extent, s[B].leaf_iter_vars)
            8 [IterVar(i.j, extent=128, spatial)]
            >>> each, thread = s[B].follow_fused_split(fused, C.op.axis, level=0)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8, 16], C: out float32[8, 16]):
              B = alloc(float32[8, 16], global)
              for i.j.0 in range(16):
                i.j.q = i.j.0 // 2
                i.j.r = i.j.0 % 2
                for i.j.1 in range(8):
                  B[i.j.q, i.j.r * 8 + i.j.1] = A[i.j.q, i.j.r * 8 + i.j.1] + 1.0
              for i.0 in range(4):
                for j.0 in range(4):
                  for i.1.j.1 in range(8):
                    i.1.j.1.q = i.1.j.1 // 4
                    i.1.j.1.r = i.1.j.1 % 4
                    C[i.0 * 2 + i.1.j.1.q, j.0 * 4 + i.1.j.1.r] = ...
        """
        loop = self.loop_id(parent, "follow_fused_split")
        who = self._who("follow_fused_split")
        if not isinstance(sources, Sequence):
            raise ScheduleError(
                f"{who}: expected a list of axes, got {sources!r}; follow_split follows one"
            )
        followed = tuple(self.schedule.any_loop_id(x, who) for x in sources)
        step = steps.FollowFusedSplit(self.id, loop, followed, level, factor_or_nparts)
        t = self.schedule.apply_step(step)
        return self.schedule._axis(self.id, f"{t}.0"), self.schedule._axis(self.id, f"{t}.1")

    def vectorize(self, axis: IterVar) -> None:
        """Run the iterations of a loop as lanes of vectors.

        A reduction loop gets one accumulator per lane; they are combined once, after the outermost
        reduction loop of the stage: in another order than before. Several vector registers run side
        by side when the loop is longer than one: 64 lanes of float32 are four sums that do not wait
        for each other where a vector holds 16.

        Raises:
            ScheduleError: (when lowering) the loop is too long, or lies in another vector.

        Example:
            >>> A = te.placeholder((64,), name="A")
            >>> k = te.reduce_axis((0, 64), name="k")
            >>> B = te.compute((1,), lambda i: te.sum(A[k], axis=k), name="B")
            >>> s = te.create_schedule(B.op)
            >>> ko, ki = s[B].split(k, factor=4)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[1]):
              B[0] = 0.0
              for k.0 in range(16):
                for k.1 in range(4):
                  B[0] = B[0] + A[k.0 * 4 + k.1]
            >>> s[B].vectorize(ki)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[1]):
              B.lanes = alloc(float32[4], local)
              for k.1 in vectorized(4):
                B.lanes[k.1] = 0.0
              for k.0 in range(16):
                for k.1_1 in vectorized(4):
                  B.lanes[k.1_1] = B.lanes[k.1_1] + A[k.0 * 4 + k.1_1]
              for k.1_2 in vectorized(2):
                B.lanes[k.1_2] = B.lanes[k.1_2] + B.lanes[k.1_2 + 2]
              B[0] = B.lanes[0] + B.lanes[1]
        """
        self._annotate(axis, "vectorized", "vectorize")

    def unroll(self, axis: IterVar) -> None:
        """Write a loop's iterations out one after the other.

        Raises:
            ScheduleError: (when lowering) it would make too many copies.

        Example:
            >>> A = te.placeholder((2,), name="A")
            >>> B = te.compute((2,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[2], B: out float32[2]):
              for i in range(2):
                B[i] = A[i] + 1.0
            >>> s[B].unroll(B.op.axis[0])
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[2], B: out float32[2]):
              for i in unrolled(2):
                B[i] = A[i] + 1.0
        """
        self._annotate(axis, "unrolled", "unroll")

    def parallel(self, axis: IterVar) -> None:
        """Distribute the iterations of a spatial loop over the thread pool.

        Raises:
            ScheduleError: the loop is a reduction.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[8], B: out float32[8]):
              for i in range(8):
                B[i] = A[i] + 1.0
            >>> s[B].parallel(B.op.axis[0])
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[8], B: out float32[8]):
              for i in parallel(8):
                B[i] = A[i] + 1.0
        """
        self._annotate(axis, "parallel", "parallel")

    def _annotate(self, axis: IterVar, kind: MarkKind, verb: str) -> None:
        self.schedule.apply_step(steps.Annotate(self.id, self.loop_id(axis, verb), kind))

    def pragma(self, axis: IterVar, pragma_type: str, pragma_value: PragmaValue = True) -> None:
        """Attach a hint to a loop.

        ``auto_unroll_max_step`` (int): below this loop, innermost loops are unrolled as long as the
        copies of the body stay within the value. ``unroll_explicit`` (bool, default True): whether
        the pragma writes the iterations out itself, or leaves that to the compiler as a hint.
        ``loop_partition_hint`` (True, or an int): the loop is the inside of a tile; where tiles do
        not divide the extent, the last one is written out by itself with the iterations that it
        has, rounded up to a multiple of the int, and needs no tests where rounding adds none. This
        holds on CPUs, for two loops of a stage, in constant sizes; elsewhere nothing changes.
        ``nontemporal`` (bool): what the stage stores is not needed soon, so that whole vectors go
        past the caches, where they lie on multiples of their size in memory and the CPU has such
        stores (x86); others go the usual way. A line that is written as a whole is then not read
        before, which pays for results much larger than the last cache, and costs elsewhere.
        Names that begin with ``user.`` are yours: their values (a number, a text, a bool or None)
        stand in `For.pragmas`, where passes of your own find them.

        Raises:
            ScheduleError: unknown pragma, or a value that it does not take.

        Example:
            >>> A = te.placeholder((4, 2), name="A")
            >>> B = te.compute((4, 2), lambda i, j: A[i, j] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[4, 2], B: out float32[4, 2]):
              for i in range(4):
                for j in range(2):
                  B[i, j] = A[i, j] + 1.0
            >>> s[B].pragma(B.op.axis[0], "auto_unroll_max_step", 2)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[4, 2], B: out float32[4, 2]):
              # auto_unroll_max_step = 2
              for i in range(4):
                for j in unrolled(2):
                  B[i, j] = A[i, j] + 1.0
        """
        loop = self.loop_id(axis, "pragma")
        step = steps.Pragma(self.id, loop, pragma_type, sampled(pragma_value))
        self.schedule.apply_step(step)

    # ------------------------------------------------------------ place

    def compute_at(self, parent: StageLike, scope: IterVar) -> None:
        """Compute this stage inside a loop of a stage that uses it, as much as is needed there.

        Raises:
            ScheduleError: the stage is an output or an input; ``parent`` does not use it; (when
                lowering) another reader runs outside that loop.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] * 2, name="B")
            >>> C = te.compute((8,), lambda i: B[i] + 1, name="C")
            >>> s = te.create_schedule(C.op)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[8]):
              B = alloc(float32[8], global)
              for i in range(8):
                B[i] = A[i] * 2.0
              for i_1 in range(8):
                C[i_1] = B[i_1] + 1.0
            >>> s[B].compute_at(s[C], C.op.axis[0])
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[8]):
              for i in range(8):
                B = alloc(float32[1], global)
                B[0] = A[i] * 2.0
                C[i] = B[0] + 1.0
        """
        pid = self.schedule.stage_id(parent, self._who("compute_at"))
        loop = self.schedule.loop_id(pid, scope, self._who("compute_at"))
        self.schedule.apply_step(steps.ComputeAt(self.id, pid, loop))

    def compute_inline(self) -> None:
        """Substitute this stage's expression into its readers.

        Where the expression of a reader would pass 32 768 nodes, as after ``x = x + x`` forty
        times, large stages that are read more than once are computed once: in the reader's
        innermost loop, or at root if several elements are read.

        Raises:
            ScheduleError: the stage is a reduction, an output or an input; (when lowered) the
                expression is too large all the same.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] * 2, name="B")
            >>> C = te.compute((8,), lambda i: B[i] + 1, name="C")
            >>> s = te.create_schedule(C.op)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[8]):
              B = alloc(float32[8], global)
              for i in range(8):
                B[i] = A[i] * 2.0
              for i_1 in range(8):
                C[i_1] = B[i_1] + 1.0
            >>> s[B].compute_inline()
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[8]):
              for i in range(8):
                C[i] = A[i] * 2.0 + 1.0
        """
        self.schedule.apply_step(steps.ComputeInline(self.id))

    def compute_root(self) -> None:
        """Compute the stage on its own before its readers (undoes compute_at and compute_inline).

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] * 2, name="B")
            >>> C = te.compute((8,), lambda i: B[i] + 1, name="C")
            >>> s = te.create_schedule(C.op)
            >>> s[B].compute_at(s[C], C.op.axis[0])
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[8]):
              for i in range(8):
                B = alloc(float32[1], global)
                B[0] = A[i] * 2.0
                C[i] = B[0] + 1.0
            >>> s[B].compute_root()
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[8]):
              B = alloc(float32[8], global)
              for i in range(8):
                B[i] = A[i] * 2.0
              for i_1 in range(8):
                C[i_1] = B[i_1] + 1.0
        """
        self.schedule.apply_step(steps.ComputeRoot(self.id))

    # ------------------------------------------------------------ memory

    def transform_layout(
        self, index_map: Callable[..., object], pad_value: float | None = None
    ) -> Tensor | None:
        """Choose where the elements of the stage's buffer lie.

        The memory of an input belongs to the caller. Of a constant input
        (`loopwright.te.placeholder`) a copy in the new layout is made at the root, and all stages
        that read the input read the copy: it is computed once for many calls
        (`loopwright.runtime.Module.with_constants`). Each call returns the tensor of a copy of its
        own, which further primitives, and another layout, take; for other stages it returns None.

        Args:
            index_map: gets one index per dimension and returns the new indices, made with ``+``,
                ``-``, and ``*``, ``//``, ``%`` by constants: permutations, splits ``i // f``,
                ``i % f``, fusions ``i * m + j``, and what these give together. It must be a
                bijection from the elements that the stage covers onto elements of the new buffer.
                The buffer is the smallest box around those; where a split does not divide it holds
                whole blocks. Elements that no index reaches are padding, never read. Indices count
                from the first element that the stage covers.
            pad_value: a number that fills the padding, written each time before the stage is
                computed (all of the buffer is filled); default: it is left as it is.

        Raises:
            ScheduleError: the map is no bijection (with two indices that collide, or an element to
                which none goes), or is not of this form; ``pad_value`` is no number; the stage is
                inlined, an output, or an input that is no constant or that nothing reads; (when
                lowering) the map is none for the extents that the stage covers.

        Example:
            >>> A = te.placeholder((64,), name="A")
            >>> B = te.compute((64,), lambda i: A[i] * 2, name="B")
            >>> C = te.compute((64,), lambda i: B[i] + 1, name="C")
            >>> s = te.create_schedule(C.op)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[64], C: out float32[64]):
              B = alloc(float32[64], global)
              for i in range(64):
                B[i] = A[i] * 2.0
              for i_1 in range(64):
                C[i_1] = B[i_1] + 1.0
            >>> s[B].transform_layout(lambda i: (i % 16, i // 16))
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[64], C: out float32[64]):
              B = alloc(float32[16, 4], global)
              for i in range(64):
                B[i % 16, i // 16] = A[i] * 2.0
              for i_1 in range(64):
                C[i_1] = B[i_1 % 16, i_1 // 16] + 1.0
        """
        schedule, who = self.schedule, self._who("transform_layout")
        op = schedule.state.stages[self.id].op
        dims = trace_map(index_map, len(op.shape), who)
        if not op.constant:
            schedule.apply_step(steps.TransformLayout(self.id, dims, plain(pad_value)))
            return None
        readers = tuple(schedule.state.consumers(self.id))
        with schedule.all_or_nothing():
            copy = f"s{schedule.apply_step(steps.CacheRead(self.id, 'global', readers))}"
            schedule.apply_step(steps.TransformLayout(copy, dims, plain(pad_value)))
        return schedule._tensor(copy)

    def store_at(self, parent: StageLike, scope: IterVar) -> None:
        """Let the buffer of a stage exist outside of the loop where the stage is computed.

        The buffer then covers what all iterations of the loops between need, and keeps what earlier
        ones wrote. Elements that overlap are computed again all the same: it is no sliding window.

        Args:
            scope: the loop: that of `compute_at`, or one around it.

        Raises:
            ScheduleError: the stage is computed at root or inlined; the loop is not around that of
                `compute_at`; (when lowering) a loop between is parallel, vectorized or bound to
                threads, whose iterations would write into one buffer at once.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] * 2, name="B")
            >>> C = te.compute((2, 3), lambda i, j: B[i + j] + B[i + j + 2], name="C")
            >>> s = te.create_schedule(C.op)
            >>> i, j = C.op.axis
            >>> s[B].compute_at(s[C], j)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[2, 3]):
              for i in range(2):
                for j in range(3):
                  B = alloc(float32[3], global)
                  for i_1 in range(3):
                    B[i_1] = A[i + j + i_1] * 2.0
                  C[i, j] = B[0] + B[2]
            >>> s[B].store_at(s[C], i)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[2, 3]):
              for i in range(2):
                B = alloc(float32[5], global)
                for j in range(3):
                  for i_1 in range(3):
                    B[j + i_1] = A[i + j + i_1] * 2.0
                  C[i, j] = B[j] + B[j + 2]
        """
        pid = self.schedule.stage_id(parent, self._who("store_at"))
        loop = self.schedule.loop_id(pid, scope, self._who("store_at"))
        self.schedule.apply_step(steps.StoreAt(self.id, pid, loop))

    def store_root(self) -> None:
        """Let the buffer exist outside of all loops of the stage where this one is computed.

        Raises:
            ScheduleError: as `store_at`.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] * 2, name="B")
            >>> C = te.compute((6,), lambda i: B[i] + B[i + 2], name="C")
            >>> s = te.create_schedule(C.op)
            >>> s[B].compute_at(s[C], C.op.axis[0])
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[6]):
              for i in range(6):
                B = alloc(float32[3], global)
                for i_1 in range(3):
                  B[i_1] = A[i + i_1] * 2.0
                C[i] = B[0] + B[2]
            >>> s[B].store_root()
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[6]):
              B = alloc(float32[8], global)
              for i in range(6):
                for i_1 in range(3):
                  B[i + i_1] = A[i + i_1] * 2.0
                C[i] = B[i] + B[i + 2]
        """
        self.schedule.apply_step(steps.StoreRoot(self.id))

    def double_buffer(self, stages: int = 2) -> None:
        """Give the buffer several places: some are filled for later iterations while one is read.

        With two of them each iteration fills one for the next. With more it fills ``stages - 1``
        iterations ahead: a software pipeline, which hides more of the time of fetches and takes
        more memory. At a loop of one iteration it changes nothing; there are never more places than
        iterations.

        Args:
            stages: how many iterations have a place in the buffer, from 2 to 8.

        Raises:
            ScheduleError: another number of stages; the stage is inlined, an input or an output;
                (when lowering) it is at root, at a loop that is not serial, or stored elsewhere, or
                reads a stage computed at that loop whose ``stages`` differ.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] * 2, name="B")
            >>> C = te.compute((8,), lambda i: B[i] + 1, name="C")
            >>> s = te.create_schedule(C.op)
            >>> s[B].compute_at(s[C], C.op.axis[0])
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[8]):
              for i in range(8):
                B = alloc(float32[1], global)
                B[0] = A[i] * 2.0
                C[i] = B[0] + 1.0
            >>> s[B].double_buffer()
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[8]):
              B = alloc(float32[2, 1], global)
              B[0, 0] = A[0] * 2.0
              for i in range(8):
                if i + 1 < 8:
                  i_1 = i + 1
                  half = i_1 % 2
                  B[half, 0] = A[i_1] * 2.0
                half_1 = i % 2
                C[i] = B[half_1, 0] + 1.0
        """
        self.schedule.apply_step(steps.DoubleBuffer(self.id, plain(stages)))

    def set_scope(self, scope: Scope) -> None:
        """Put the stage's buffer into another memory scope.

        Args:
            scope: ``"global"``, ``"shared"`` (a copy for each thread block), ``"shared.dyn"`` (as
                ``"shared"``; on CUDA it always lies in the memory that a block gets when it is
                launched, where those of ``"shared"`` lie only when a kernel cannot declare as
                much), ``"local"`` (one for each thread) or ``"warp"`` (spread over the registers of
                32 threads, see ``te.intrinsics.fragment_layout``).

        Raises:
            ScheduleError: unknown scope; the stage is inlined, an input or an output.

        Example:
            >>> A = te.placeholder((64,), name="A")
            >>> B = te.compute((64,), lambda i: A[i] * 2, name="B")
            >>> C = te.compute((64,), lambda i: B[63 - i] + 1, name="C")
            >>> s = te.create_schedule(C.op)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[64], C: out float32[64]):
              B = alloc(float32[64], global)
              for i in range(64):
                B[i] = A[i] * 2.0
              for i_1 in range(64):
                C[i_1] = B[i_1 * -1 + 63] + 1.0
            >>> s[B].set_scope("local")
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[64], C: out float32[64]):
              B = alloc(float32[64], local)
              for i in range(64):
                B[i] = A[i] * 2.0
              for i_1 in range(64):
                C[i_1] = B[i_1 * -1 + 63] + 1.0
        """
        self.schedule.apply_step(steps.SetScope(self.id, scope))

    def storage_align(self, axis: IterVar | int, factor: int, offset: int) -> None:
        """Leave gaps in the stage's buffer so that a stride is ``k * factor + offset`` elements.

        Rows whose stride is odd fall into different banks of shared memory, and rows whose stride
        is no power of two into different sets of a cache.

        Args:
            axis: an axis of the operation, or the number of a dimension of the buffer (needed after
                `transform_layout`, which gives the buffer dimensions of its own).
            factor: a positive number of elements.
            offset: elements, 0 or more. The smallest stride of this form that fits is taken.

        Raises:
            ScheduleError: the axis is no axis of the operation, or there is no such dimension; the
                factor or the offset is out of range; the stage is inlined, an input or an output.

        Example:
            >>> A = te.placeholder((8, 16), name="A")
            >>> B = te.compute((8, 16), lambda i, j: A[i, j] * 2, name="B")
            >>> C = te.compute((16, 8), lambda i, j: B[j, i] + 1, name="C")
            >>> s = te.create_schedule(C.op)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8, 16], C: out float32[16, 8]):
              B = alloc(float32[8, 16], global)
              for i in range(8):
                for j in range(16):
                  B[i, j] = A[i, j] * 2.0
              for i_1 in range(16):
                for j_1 in range(8):
                  C[i_1, j_1] = B[j_1, i_1] + 1.0
            >>> s[B].storage_align(B.op.axis[0], 16, 1)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8, 16], C: out float32[16, 8]):
              B = alloc(float32[8, 16], global, strides=[17, 1])
              for i in range(8):
                for j in range(16):
                  B[i, j] = A[i, j] * 2.0
              for i_1 in range(16):
                for j_1 in range(8):
                  C[i_1, j_1] = B[j_1, i_1] + 1.0
        """
        who, name = self._who("storage_align"), self.schedule.state.label(self.id)
        if hasattr(axis, "__index__"):
            dim = int(axis.__index__())
        elif not isinstance(axis, IterVar):
            raise ScheduleError(
                f"{who}: expected an axis or the number of a dimension, got {axis!r}"
            )
        elif not (loop := self.loop_id(axis, "storage_align")).startswith("a"):
            raise ScheduleError(
                f"{who}: {axis.name!r} is a loop, not an axis of {name!r}; give one of "
                f"s[{name}].op.axis"
            )
        elif self._state.layout is not None:
            raise ScheduleError(
                f"{who}: transform_layout gave the buffer of {name!r} dimensions of its own; give "
                "the number of one"
            )
        else:
            dim = int(loop[1:])
        self.schedule.apply_step(steps.StorageAlign(self.id, dim, plain(factor), plain(offset)))

    def prefetch(self, tensor: StageLike, var: IterVar, offset: int) -> None:
        """Prefetch the data of a tensor that a later iteration of a loop will read.

        Each iteration begins with prefetches of the region that the one ``offset`` later reads, in
        this stage or in those computed inside the loop, one for each line (64 bytes) of a row. They
        change no value. Beyond the last iteration addresses are those of the next one of the loop
        around, where that goes on; addresses outside of the tensor are not touched.

        Args:
            tensor: what to prefetch: an input, or a tensor that is computed outside of the loop.
            offset: how many iterations ahead, 1 or more.

        Raises:
            ScheduleError: the loop no longer exists, the offset is not positive; (when lowering)
                nothing inside the loop reads the tensor, or not at an affine index; it is inlined
                or computed there; the loop is vectorized or runs in a GPU kernel.

        Example:
            >>> A = te.placeholder((64,), name="A")
            >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[64]):
              for i in range(64):
                B[i] = A[i] + 1.0
            >>> s[B].prefetch(A, B.op.axis[0], 4)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[64]):
              for i in range(64):
                prefetch A[i + 4]
                B[i] = A[i] + 1.0
        """
        who = self._who("prefetch")
        loop, source = self.loop_id(var, "prefetch"), self.schedule.stage_id(tensor, who)
        step = steps.Prefetch(self.id, loop, source, plain(offset), output_of(tensor, who))
        self.schedule.apply_step(step)

    def prefetch_next(
        self, tensor: StageLike, var: IterVar, parent: StageLike, scope: IterVar, offset: int = 1
    ) -> None:
        """Prefetch the data of a tensor that a loop further out reads next, a share at a time.

        As `prefetch` for the loop ``scope``, but each iteration of ``var`` makes its share of them,
        evenly, so that memory is read while something is computed. Where ``scope`` is fused and the
        tensor stands still along inner parts of it, all iterations until the outer parts move have
        a share: while the rows of one panel of a packed operand are computed, the next panel is
        fetched (Goto and van de Geijn, ACM TOMS 2008).

        Args:
            tensor: what to prefetch: an input, or a tensor that is computed outside of ``scope``,
                of constant shape. Where it does not move with ``scope``, or the fused parts of that
                have no constant extents, nothing is prefetched.
            parent: the stage of ``scope``: this one, or one that this one is computed in.
            scope: a loop around ``var``; the extents of loops between are constants.
            offset: how many iterations ahead; 0: nothing is prefetched, so that a knob can choose.

        Raises:
            ScheduleError: a loop no longer exists, the offset is negative; (when lowering) as for
                `prefetch`, or ``scope`` is not around ``var``, or an extent is not known.

        Example:
            >>> A = te.placeholder((8, 64), name="A")
            >>> B = te.compute((8, 64), lambda i, j: A[i, j] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> jo, ji = s[B].split(B.op.axis[1], factor=8)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[8, 64], B: out float32[8, 64]):
              for i in range(8):
                for j.0 in range(8):
                  for j.1 in range(8):
                    B[i, j.0 * 8 + j.1] = A[i, j.0 * 8 + j.1] + 1.0
            >>> s[B].prefetch_next(A, jo, B, B.op.axis[0])
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[8, 64], B: out float32[8, 64]):
              for i in range(8):
                for j.0 in range(8):
                  prefetch A[i + 1, j.0 * 4 // 8 * 16]
                  for j.1 in range(8):
                    B[i, j.0 * 8 + j.1] = A[i, j.0 * 8 + j.1] + 1.0
        """
        who = self._who("prefetch_next")
        loop, source = self.loop_id(var, "prefetch_next"), self.schedule.stage_id(tensor, who)
        around = self.schedule.stage_id(parent, who)
        outer, output = self.schedule.loop_id(around, scope, who), output_of(tensor, who)
        step = steps.PrefetchNext(self.id, loop, source, around, outer, plain(offset), output)
        self.schedule.apply_step(step)

    # ------------------------------------------------------------ threads and intrinsics

    def bind(self, ivar: IterVar, thread_ivar: ThreadAxis) -> None:
        """Run the iterations of a loop as GPU threads; the interpreter runs them too.

        All stages of one kernel (a root stage and those computed inside it) share the axes by
        name. The first stage with the axis, the root first, gives it its extent; a shorter loop
        runs under ``if threadIdx.x < n``. A stage in shared memory that does not use an axis runs
        on its thread 0.

        A reduction loop may be bound to threadIdx: each thread accumulates what it runs over, the
        threads combine the results in shared memory, and one of them stores
        (`set_store_predicate`)::

            for threadIdx.x in thread(64):
              C.acc = sum of A[i, threadIdx.x + ko * 64] over ko
              C.acc = sum over threadIdx.x of C.acc      # a tree, with barriers
              if threadIdx.x < 1: C[i] = C.acc

        ``vthread`` makes virtual threads: the body is repeated for each, buffers inside that
        differ between them get one more dimension, and what they share runs once::

            for v in vthread(2):                    C.local = alloc([2, 4])
              C.local = alloc([4])                  for k:
              for k:                         ->       S[...] = A[...]           # shared, once
                S[...] = A[...]                       for v in unrolled(2):
                C.local[j] += S[k, v * 4 + j]           C.local[v, j] += S[k, v * 4 + j]

        Virtual threads without launch axes around them are an unrolled loop, on a CPU too. Code for
        a CPU has no blockIdx and threadIdx: ``llvm`` and ``c`` refuse them by name.

        Args:
            thread_ivar: ``te.thread_axis(...)``, its tag, or ``(tag, extent)``. A declared extent
                must be that of the launch.

        Raises:
            ScheduleError: unknown axis; the stage has a loop on it already; a reduction is bound
                to blockIdx or vthread; (when lowering) extents do not agree, thread extents depend
                on sizes, a loop of a stage in local memory is bound, or blockIdx inside a kernel.
            LowerError: (when lowering) threads would have to wait for others that do not come.
            CodegenError: (when building for a CPU) blockIdx or threadIdx.

        Example:
            >>> A = te.placeholder((2, 64), name="A")
            >>> B = te.compute((2, 64), lambda i, j: A[i, j] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[2, 64], B: out float32[2, 64]):
              for i in range(2):
                for j in range(64):
                  B[i, j] = A[i, j] + 1.0
            >>> i, j = B.op.axis
            >>> s[B].bind(i, te.thread_axis("blockIdx.x"))
            >>> s[B].bind(j, te.thread_axis("threadIdx.x"))
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[2, 64], B: out float32[2, 64]):
              # bound = B.i
              for blockIdx.x in thread(2):
                # bound = B.j
                for threadIdx.x in thread(64):
                  B[blockIdx.x, threadIdx.x] = A[blockIdx.x, threadIdx.x] + 1.0
        """
        tag, extent = self._thread_axis(thread_ivar, "bind")
        self.schedule.apply_step(steps.Bind(self.id, self.loop_id(ivar, "bind"), tag, extent))

    def env_threads(self, threads: ThreadAxis | Sequence[ThreadAxis]) -> None:
        """Launch the kernel of this root stage with thread axes that its own loops need not use.

        Stages computed inside bind their loops to these axes and so share the work.

        Args:
            threads: thread axes; one without an extent takes it from the first loop bound to it.

        Raises:
            ScheduleError: the stage is not at root, has thread axes already, or an axis is no
                launch axis or given twice; (when lowering) an axis whose extent nobody gives.

        Example:
            >>> A = te.placeholder((2,), name="A")
            >>> B = te.compute((2,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[2], B: out float32[2]):
              # bound = B.i
              for blockIdx.x in thread(2):
                B[blockIdx.x] = A[blockIdx.x] + 1.0
            >>> s[B].env_threads([te.thread_axis((0, 64), "threadIdx.x")])
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[2], B: out float32[2]):
              # bound = B.i
              for blockIdx.x in thread(2):
                # bound = env_threads of B
                for threadIdx.x in thread(64):
                  if threadIdx.x < 1:
                    B[blockIdx.x] = A[blockIdx.x] + 1.0
        """
        group = threads if isinstance(threads, list | tuple) else [threads]
        axes = tuple(self._thread_axis(x, "env_threads") for x in group)
        self.schedule.apply_step(steps.EnvThreads(self.id, axes))

    def set_store_predicate(self, predicate: Expr | list[tuple[str, int]]) -> None:
        """Choose which of the threads that reduce together stores the result.

        Args:
            predicate: ``axis.var.equal(n)`` of a thread axis that the reduction is bound to, or
                several joined by ``te.all``; or a list of ``(tag, n)``.

        Raises:
            ScheduleError: another kind of condition; no reduction loop is bound to the axis (the
                test would leave elements unset).

        Example:
            >>> A = te.placeholder((4, 64), name="A")
            >>> k = te.reduce_axis((0, 64), name="k")
            >>> B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B")
            >>> s = te.create_schedule(B.op)
            >>> tx = te.thread_axis("threadIdx.x")
            >>> s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
            >>> s[B].bind(k, tx)
            >>> print(str(lw.lower(s, [A, B])).splitlines()[-2].strip())
            if threadIdx.x == 0:
            >>> s[B].set_store_predicate(tx.var.equal(3))
            >>> print(str(lw.lower(s, [A, B])).splitlines()[-2].strip())
            if threadIdx.x == 3:
        """
        equal = predicate if isinstance(predicate, list) else self._equalities(predicate)
        self.schedule.apply_step(steps.SetStorePredicate(self.id, tuple(equal)))

    def _thread_axis(self, axis: object, verb: str) -> tuple[str, int | None]:
        """Tag and declared extent of a thread axis or its name."""
        match axis:
            case str():
                return axis, None
            case (str(tag), int() | None as extent):
                return tag, extent
            case IterVar(thread_tag=tag, extent=int() as extent) if tag:
                self.schedule._thread_vars[axis.var] = tag
                return tag, extent or None
        raise ScheduleError(f"{self._who(verb)}: expected te.thread_axis(...), got {axis!r}")

    def _equalities(self, e: object) -> list[tuple[str, int]]:
        match e:
            case Binary(op="and", a=a, b=b):
                return [*self._equalities(a), *self._equalities(b)]
            case Binary(op="==", a=a, b=b):
                var, value = (x.value if isinstance(x, Cast) else x for x in (a, b))
                if isinstance(var, Var) and isinstance(value, Const):
                    tag = self.schedule._thread_vars.get(var)
                    tag = tag or (var.name if var.name in THREAD_TAGS else "")
                    if tag:
                        return [(tag, int(value.value))]
                    raise ScheduleError(
                        f"{self._who('set_store_predicate')}: {var.name!r} is no thread axis of "
                        "this schedule; bind a loop to it first"
                    )
        raise ScheduleError(
            f"{self._who('set_store_predicate')}: expected axis.var.equal(n) of thread axes, "
            f"joined by te.all; got {e!r}"
        )

    def tensorize(self, var: IterVar, tensor_intrin: TensorIntrin | dict[str, Any]) -> None:
        """Let an intrinsic do what stands inside a loop, the loop included.

        The nest is compared with the description of the intrinsic: extents of the loops, the
        expression, element types, and how the elements of every operand lie in memory. Loops of
        the reduction may stand outside: then the intrinsic's ``reset`` stands where the reduction
        starts (the ordinary nest where it has none) and ``update`` in the place of the loop;
        otherwise ``body``. Where a tile is not whole, the nest stays as it was: the loops around
        are partitioned, and only whole tiles are given to the intrinsic.

        Args:
            tensor_intrin: what `te.decl_tensor_intrin` made, or its JSON.

        Raises:
            ScheduleError: the stage is tensorized already, or has several outputs; (when lowering)
                the nest does not match: where, what the intrinsic wants and what the nest has.
            TensorError: the intrinsic gives another result than its description; malformed JSON, or
                JSON of an intrinsic that this program has not declared and that is not proved
                harmless (`loopwright.te.intrin_proof`).

        Example:
            >>> A = te.placeholder((16,), name="A")
            >>> B = te.compute((16,), lambda i: A[i] * 2, name="B")
            >>> s = te.create_schedule(B.op)
            >>> io, ii = s[B].split(B.op.axis[0], factor=4)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[16], B: out float32[16]):
              for i.0 in range(4):
                for i.1 in range(4):
                  B[i.0 * 4 + i.1] = A[i.0 * 4 + i.1] * 2.0

            An intrinsic that doubles four elements at once, declared here:

            >>> x = te.placeholder((4,), name="x")
            >>> y = te.compute((4,), lambda i: x[i] * 2, name="y")
            >>> def double(inputs, outputs):
            ...     ib = te.ir_builder()
            ...     with ib.for_range(4, "l", "vectorized") as l:
            ...         ib.emit(outputs[0].store(l, inputs[0][l] * 2))
            ...     return ib.get()
            ...
            >>> s[B].tensorize(ii, te.decl_tensor_intrin(y.op, double, name="double4"))
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[16], B: out float32[16]):
              for i.0 in range(4):
                for l in vectorized(4):
                  B[i.0 * 4 + l] = A[i.0 * 4 + l] * 2.0
        """
        loop = self.loop_id(var, "tensorize")
        if isinstance(tensor_intrin, dict):
            tensor_intrin = intrinsic_from_json(tensor_intrin)
        if not isinstance(tensor_intrin, TensorIntrin):
            raise ScheduleError(
                f"{self._who('tensorize')}: expected an intrinsic of te.decl_tensor_intrin, got "
                f"{tensor_intrin!r}"
            )
        require_equal(tensor_intrin)
        self.schedule.apply_step(steps.Tensorize(self.id, loop, tensor_intrin))

    # ------------------------------------------------------------ sampling

    def sample_categorical(
        self,
        candidates: Sequence[int],
        probs: Sequence[float] | None = None,
        decision: int | None = None,
    ) -> Sampled:
        """Choose one of some numbers, for a factor of `split` or the value of `pragma`.

        The step records the candidates and the choice; steps that use the number record that it
        comes from this step. A replay with another decision makes another schedule
        (`loopwright.space.structure_of` makes knobs of decisions). The schedule's generator draws,
        which `Schedule.seed` sets. Returns the number, everywhere an int. MetaSchedule's primitive
        of this name.

        Args:
            probs: their weights; None: all alike.
            decision: the choice, where it is made already.

        Raises:
            ScheduleError: there is no candidate, the probabilities do not fit, or the decision is
                none of the candidates.

        Example:
            >>> A = te.placeholder((32,), name="A")
            >>> B = te.compute((32,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[32], B: out float32[32]):
              for i in range(32):
                B[i] = A[i] + 1.0
            >>> factor = s[B].sample_categorical([4, 8], decision=8)
            >>> io, ii = s[B].split(B.op.axis[0], factor=factor)
            >>> trace = s.trace_json()
            >>> print(trace)
            [['sample_categorical', 1, [4, 8], 8], ['split', 1, 'a0', {'sampled': [0, 0]}, None]]
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[32], B: out float32[32]):
              for i.0 in range(4):
                for i.1 in range(8):
                  B[i.0 * 8 + i.1] = A[i.0 * 8 + i.1] + 1.0
            >>> trace[0][3] = 4
            >>> again = lw.schedule.replay(s.dag, trace)
            >>> print(lw.lower(again, again.tensors))
            def main(A: float32[32], B: out float32[32]):
              for i.0 in range(8):
                for i.1 in range(4):
                  B[i.0 * 4 + i.1] = A[i.0 * 4 + i.1] + 1.0
        """
        who = self._who("sample_categorical")
        numbers = tuple(plain(x) for x in candidates)
        if not numbers or not all(type(x) is int for x in numbers):
            raise ScheduleError(f"{who}: candidates are whole numbers, got {list(candidates)}")
        fit = probs is None or (
            len(probs) == len(numbers) and all(p >= 0 for p in probs) and sum(probs) > 0
        )
        if probs is not None and not fit:
            raise ScheduleError(
                f"{who}: probs are {len(numbers)} numbers that are not negative, one for each "
                f"candidate, got {list(probs)}"
            )
        weights = None if probs is None else tuple(map(float, probs))
        if decision is None:
            decision = self.schedule.random.choices(numbers, weights)[0]
        t = self.schedule.apply_step(
            steps.SampleCategorical(self.id, numbers, plain(decision), weights)
        )
        return Sampled(decision, t)

    def sample_perfect_tile(
        self,
        loop: IterVar,
        n: int,
        max_innermost_factor: int = 16,
        decision: Sequence[int] | None = None,
    ) -> tuple[Sampled, ...]:
        """Choose factors, outermost first, of the extent of a loop, all with equal probability.

        Nothing is split yet: `split` takes the factors, from the inside out. As with
        `sample_categorical` the trace tells the choice and what follows from it.

        Args:
            max_innermost_factor: the largest last factor.
            decision: the factors, where they are chosen already.

        Raises:
            ScheduleError: the extent is not known, there are too many tiles to list them or none at
                all, or the decision is none of them.

        Example:
            >>> A = te.placeholder((64,), name="A")
            >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[64]):
              for i in range(64):
                B[i] = A[i] + 1.0
            >>> a, b, c = s[B].sample_perfect_tile(B.op.axis[0], 3, decision=[4, 2, 8])
            >>> outer, inner = s[B].split(B.op.axis[0], factor=c)
            >>> outer, middle = s[B].split(outer, factor=b)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[64]):
              for i.0.0 in range(4):
                for i.0.1 in range(2):
                  for i.1 in range(8):
                    B[i.0.0 * 16 + i.0.1 * 8 + i.1] = A[i.0.0 * 16 + i.0.1 * 8 + i.1] + 1.0
        """
        who, n, largest = "sample_perfect_tile", plain(n), plain(max_innermost_factor)
        x = self.loop_id(loop, who)
        if decision is None:
            with self.schedule._naming(who):
                extent = self.schedule.state.leaf(self._state, x).nominal
            decision = self._drawn_tile(extent, n, largest)
        chosen = tuple(plain(f) for f in decision)
        t = self.schedule.apply_step(steps.SamplePerfectTile(self.id, x, n, largest, chosen))
        return tuple(Sampled(f, t, part) for part, f in enumerate(chosen))

    def _drawn_tile(self, extent: object, n: int, largest: int) -> tuple[int, ...]:
        if not isinstance(extent, int) or not 1 <= n <= 16 or largest < 1:
            raise ScheduleError(
                f"{self._who('sample_perfect_tile')}: expected a loop of known extent, 1 to 16 "
                f"factors and a largest one of at least 1, got {extent}, {n} and {largest}"
            )
        tiles = list(islice(perfect_tiles(extent, n, largest), _MOST_TILES + 1))
        if not 1 <= len(tiles) <= _MOST_TILES:
            raise ScheduleError(
                f"{self._who('sample_perfect_tile')}: {extent} has "
                f"{'more tiles than can be listed' if tiles else 'no tile'} of {n} factors, the "
                f"last at most {largest}; take another n, or give the decision"
            )
        return self.schedule.random.choice(tiles)

    def sample_compute_location(self, decision: str | tuple[Stage, IterVar] | None = None) -> None:
        """Compute the stage at a place that is chosen: at root, inline, or at a loop of a reader.

        All places that are legal now are equally likely. The step records the place and puts the
        stage there, as `compute_root`, `compute_inline` and `compute_at` do.

        Args:
            decision: ``"root"``, ``"inline"``, or a stage with its loop; None: it is drawn.

        Raises:
            ScheduleError: the stage is an input or an output, or the decision is illegal.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
            >>> C = te.compute((8,), lambda i: B[i] * 2, name="C")
            >>> s = te.create_schedule(C.op)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[8]):
              B = alloc(float32[8], global)
              for i in range(8):
                B[i] = A[i] + 1.0
              for i_1 in range(8):
                C[i_1] = B[i_1] * 2.0
            >>> s[B].sample_compute_location(decision=(s[C], C.op.axis[0]))
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8], C: out float32[8]):
              for i in range(8):
                B = alloc(float32[1], global)
                B[0] = A[i] + 1.0
                C[i] = B[0] * 2.0
        """
        who = self._who("sample_compute_location")
        place: Place
        if decision is None:
            place = self._drawn_place()
        elif decision == "root":
            place = ("root",)
        elif decision == "inline":
            place = ("inline",)
        elif isinstance(decision, tuple) and len(decision) == 2:
            sid = self.schedule.stage_id(decision[0], who)
            place = ("at", sid, self.schedule.loop_id(sid, decision[1], who))
        else:
            raise ScheduleError(
                f"{who}: a place is 'root', 'inline' or a stage with its loop, got {decision!r}"
            )
        self.schedule.apply_step(steps.SampleComputeLocation(self.id, place))

    def _drawn_place(self) -> Place:
        state = self.schedule.state
        places: list[Place] = []
        if self.id not in state.outputs:
            readers = state.consumers(self.id)
            places = [("root",), ("inline",)]
            places += [("at", sid, x) for sid in readers for x in state.stages[sid].leaves]
        legal = [place for place in places if self._is_legal(place)]
        if not legal:
            apply(state, steps.SampleComputeLocation(self.id, ("root",)))
            raise ScheduleError(
                f"{self._who('sample_compute_location')}: {self!r} cannot be moved; only stages "
                "that others read are"
            )
        return self.schedule.random.choice(legal)

    def _is_legal(self, place: Place) -> bool:
        try:
            new = apply(self.schedule.state, steps.SampleComputeLocation(self.id, place))
            validate_bounds(new, infer_bounds(new))
        except ScheduleError:
            return False
        return True


def sampled(v: _T) -> _T | int:
    """A number as a step takes it that keeps where the number comes from."""
    return v if isinstance(v, Sampled) else plain(v)


def plain(v: _T) -> _T | int:
    """NumPy's integers as Python's, so that a trace is JSON; the rules judge what is no number."""
    if v is None or type(v) is int:
        return v  # most are, and asking for a protocol takes 4 us
    if isinstance(v, bool | Symbol) or not isinstance(v, SupportsIndex):
        return v
    return v.__index__()


def _listed(axes: Sequence[object]) -> Sequence[object]:
    """Axes that were given one by one, or as one list."""
    first = axes[0] if len(axes) == 1 else None
    return first if isinstance(first, list | tuple) else axes


def output_of(key: StageLike, who: str) -> int:
    """Index of the output that a tensor is; an operation or a stage means its only one."""
    if isinstance(key, Tensor):
        return key.value_index
    op = key.schedule._operation(key.id) if isinstance(key, StageRef) else key
    if op.num_outputs > 1:
        raise ScheduleError(f"{who}: {op.name!r} has {op.num_outputs} outputs; name one: output(k)")
    return 0


class Group:
    """A group of stages. It has a place, and no loops or buffer of its own.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] * 2, name="B")
        >>> C = te.compute((8,), lambda i: B[i] + 1, name="C")
        >>> D = te.compute((8,), lambda i: C[i] * C[i], name="D")
        >>> s = te.create_schedule(D.op)
        >>> g = s.create_group(outputs=C, inputs=A)
        >>> g.compute_at(s[D], D.op.axis[0])
        >>> print(g, g.members, g.attach_type)
        Group(B, C) [Stage(B), Stage(C)] at
        >>> print(lw.lower(s, [A, D]))
        def main(A: float32[8], D: out float32[8]):
          for i in range(8):
            B = alloc(float32[1], global)
            B[0] = A[i] * 2.0
            C = alloc(float32[1], global)
            C[0] = B[0] + 1.0
            D[i] = C[0] * C[0]
        >>> g.compute_root()
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
    """

    def __init__(self, schedule: ScheduleBase, gid: StageId) -> None:
        self.schedule, self.id = schedule, gid

    def __repr__(self) -> str:
        return f"Group({group_label(self.schedule.state, self.id).removeprefix('group of ')})"

    @property
    def members(self) -> list[Stage]:
        """Its stages and those of groups inside it, in topological order."""
        return [Stage(self.schedule, sid) for sid in members(self.schedule.state, self.id)]

    @property
    def attach_type(self) -> AttachKind:
        """Place where it is computed: ``"root"`` (or with the group around it) or ``"at"``."""
        return self.schedule.state.groups[self.id].attach.kind

    def compute_at(self, parent: StageLike, scope: IterVar) -> None:
        """Compute all stages that follow the group inside a loop of a stage that uses them.

        `Schedule.create_group` shows the nest before and after.

        Args:
            parent: the stage, tensor or operation whose loop it is; not one of the group.
            scope: the loop.

        Raises:
            ScheduleError: a stage of the group is an output, or ``parent`` does not use it; the
                group lies in another one, to which ``parent`` does not belong; (when lowering) a
                reader outside of the group runs outside that loop.
        """
        who = self.schedule._who("compute_at")
        pid = self.schedule.stage_id(parent, who)
        self.schedule.apply_step(
            steps.ComputeAt(self.id, pid, self.schedule.loop_id(pid, scope, who))
        )

    def compute_root(self) -> None:
        """Compute the group on its own again: at root, or where the group around it is."""
        self.schedule.apply_step(steps.ComputeRoot(self.id))
