"""`Stage`, whose methods are the primitives.

Made by `loopwright.schedule.surface.schedule`; each method builds one step and hands it over.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.errors import ScheduleError
from loopwright.ir.expr import IterVar
from loopwright.ir.kinds import MarkKind
from loopwright.schedule.rules import (
    Annotate,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    Fuse,
    Pragma,
    Reorder,
    Split,
)
from loopwright.schedule.rules.loops import check_even
from loopwright.schedule.state import PragmaValue
from loopwright.schedule.surface.following import FollowingPrimitives
from loopwright.schedule.surface.memory import MemoryPrimitives
from loopwright.schedule.surface.prefetching import PrefetchPrimitives
from loopwright.schedule.surface.resolution import StageLike
from loopwright.schedule.surface.sampling import SamplingPrimitives, sampled
from loopwright.schedule.surface.tensorize import TensorizePrimitive
from loopwright.schedule.surface.threads import ThreadPrimitives


class Stage(
    FollowingPrimitives,
    SamplingPrimitives,
    MemoryPrimitives,
    PrefetchPrimitives,
    ThreadPrimitives,
    TensorizePrimitive,
):
    """One stage of a schedule; its methods are the primitives.

    Example:
        >>> A = te.placeholder((16,), name="A")
        >>> B = te.compute((16,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].parallel(B.op.axis[0])
        >>> print(s[B], s[B].leaf_iter_vars)
        Stage(B) [IterVar(i, extent=16, spatial)]
    """

    def split(
        self,
        parent: IterVar,
        factor: int | None = None,
        nparts: int | None = None,
        disable_predication: bool = False,
    ) -> tuple[IterVar, IterVar]:
        """Split a loop in two.

        Args:
            parent: the loop.
            factor: extent of the inner loop (at most that of the parent), or
            nparts: extent of the outer loop. Exactly one of the two.
            disable_predication: insist that the split is even, so that it needs no test. (TE takes
                the caller's word for that, and runs over the end where it is not so.)

        Returns:
            The outer and the inner loop.

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
            t = self.schedule.apply_step(Split(self.id, loop, sampled(factor), sampled(nparts)))
            if disable_predication:
                check_even(self.schedule.state, self._state, t)
        return self.schedule._axis(self.id, f"{t}.0"), self.schedule._axis(self.id, f"{t}.1")

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: int, y_factor: int
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and put both outer ones outside.

        Returns:
            ``(x outer, y outer, x inner, y inner)``.

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
        self.schedule.state.leaf(self._state, loop, "fuse")
        with self.schedule.all_or_nothing():
            for x in group[1:]:
                t = self.schedule.apply_step(Fuse(self.id, loop, self.loop_id(x, "fuse")))
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
        self.schedule.apply_step(Reorder(self.id, order))

    def vectorize(self, axis: IterVar) -> None:
        """Run the iterations of a loop as lanes of vectors.

        A reduction loop gets one accumulator per lane; they are combined once, after the outermost
        reduction loop of the stage. Before::

            for i:
              for ko in range(n / 16): for ki in range(16): C[i] += A[i, ko * 16 + ki]

        After ``s[C].vectorize(ki)``::

            for i:
              lanes[0:16] = 0
              for ko in range(n / 16): lanes[0:16] += A[i, ko * 16 : ko * 16 + 16]
              lanes[0:8] += lanes[8:16]
              lanes[0:4] += lanes[4:8]
              lanes[0:2] += lanes[2:4]
              C[i] = lanes[0] + lanes[1]

        So the elements of a reduction are combined in another order than before. Several vector
        registers run side by side when the loop is longer than one: 64 lanes of float32 are four
        sums that do not wait for each other where a vector holds 16.

        Raises:
            ScheduleError: (when lowering) the loop is too long, or lies in another vector.

        Example:
            >>> A = te.placeholder((64,), name="A")
            >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> io, ii = s[B].split(B.op.axis[0], factor=16)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[64]):
              for i.0 in range(4):
                for i.1 in range(16):
                  B[i.0 * 16 + i.1] = A[i.0 * 16 + i.1] + 1.0
            >>> s[B].vectorize(ii)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[64]):
              for i.0 in range(4):
                for i.1 in vectorized(16):
                  B[i.0 * 16 + i.1] = A[i.0 * 16 + i.1] + 1.0
        """
        self._annotate(axis, "vectorized", "vectorize")

    def unroll(self, axis: IterVar) -> None:
        """Write a loop's iterations out one after the other.

        Raises:
            ScheduleError: (when lowering) it would make too many copies.

        Example:
            >>> A = te.placeholder((8, 2), name="A")
            >>> B = te.compute((8, 2), lambda i, j: A[i, j] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[8, 2], B: out float32[8, 2]):
              for i in range(8):
                for j in range(2):
                  B[i, j] = A[i, j] + 1.0
            >>> s[B].unroll(B.op.axis[1])
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[8, 2], B: out float32[8, 2]):
              for i in range(8):
                for j in unrolled(2):
                  B[i, j] = A[i, j] + 1.0
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
        self.schedule.apply_step(Annotate(self.id, self.loop_id(axis, verb), kind))

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
            >>> s[B].pragma(B.op.axis[1], "nontemporal")
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[4, 2], B: out float32[4, 2]):
              # auto_unroll_max_step = 2
              for i in range(4):
                for j in unrolled(2):
                  nontemporal B[i, j] = A[i, j] + 1.0

            >>> A = te.placeholder((6,), name="A")
            >>> B = te.compute((6,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> outer, inner = s[B].split(B.op.axis[0], factor=4)
            >>> s[B].pragma(inner, "loop_partition_hint")
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[6], B: out float32[6]):
              for i.0 in range(2):
                if i.0 * 4 + 3 < 6:
                  for i.1 in range(4):
                    B[i.0 * 4 + i.1] = A[i.0 * 4 + i.1] + 1.0
                else:
                  for i.1 in range(2):
                    B[i.0 * 4 + i.1] = A[i.0 * 4 + i.1] + 1.0
        """
        loop = self.loop_id(axis, "pragma")
        step = Pragma(self.id, loop, pragma_type, sampled(pragma_value))
        self.schedule.apply_step(step)

    def compute_at(self, parent: StageLike, scope: IterVar) -> None:
        """Compute this stage inside a loop of a stage that uses it, as much as is needed there.

        Args:
            parent: the stage, tensor or operation whose loop it is.
            scope: the loop.

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
        self.schedule.apply_step(ComputeAt(self.id, pid, loop))

    def compute_inline(self) -> None:
        """Substitute this stage's expression into its readers.

        Raises:
            ScheduleError: the stage is a reduction, an output or an input.

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
        self.schedule.apply_step(ComputeInline(self.id))

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
        self.schedule.apply_step(ComputeRoot(self.id))


def _listed(axes: Sequence[object]) -> Sequence[object]:
    """Axes that were given one by one, or as one list."""
    first = axes[0] if len(axes) == 1 else None
    return first if isinstance(first, list | tuple) else axes
