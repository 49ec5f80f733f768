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
from loopwright.schedule.surface.memory import MemoryPrimitives, plain
from loopwright.schedule.surface.resolution import StageLike
from loopwright.schedule.surface.tensorize import TensorizePrimitive
from loopwright.schedule.surface.threads import ThreadPrimitives


class Stage(MemoryPrimitives, ThreadPrimitives, TensorizePrimitive):
    """One stage of a schedule; its methods are the primitives."""

    def split(
        self,
        parent: IterVar,
        factor: int | None = None,
        nparts: int | None = None,
        disable_predication: bool = False,
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
            disable_predication: insist that the split is even, so that it needs no test. (TE takes
                the caller's word for that, and runs over the end where it is not so.)

        Returns:
            The outer and the inner loop.

        Raises:
            ScheduleError: the loop no longer exists, is marked, or has a stage computed at it; with
                ``disable_predication`` the split is not even.
        """
        loop = self.loop_id(parent, "split")
        with self.schedule.all_or_nothing():
            t = self.schedule.apply_step(Split(self.id, loop, plain(factor), plain(nparts)))
            if disable_predication:
                check_even(self.schedule.state, self._state, t)
        return self.schedule._axis(self.id, f"{t}.0"), self.schedule._axis(self.id, f"{t}.1")

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
        with self.schedule.all_or_nothing():
            xo, xi = self.split(x_parent, factor=x_factor)
            yo, yi = self.split(y_parent, factor=y_factor)
            self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    def fuse(self, *axes: IterVar | Sequence[IterVar]) -> IterVar:
        """Fuse adjacent loops of one kind, outermost first.

        Before::

            for i in range(n): for j in range(m): f(i, j)

        After ``f = s[C].fuse(i, j)``::

            for f in range(n * m): f(f // m, f % m)

        Raises:
            ScheduleError: the loops are not adjacent in this order, or of different kinds.
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

        Before::

            for i: for j: for k: ...

        After ``s[C].reorder(k, i)``::

            for k: for j: for i: ...

        Raises:
            ScheduleError: a loop is given twice or no longer exists.
        """
        order = tuple(self.loop_id(a, "reorder") for a in _listed(axes))
        self.schedule.apply_step(Reorder(self.id, order))

    def vectorize(self, axis: IterVar) -> None:
        """Run the iterations of a loop as lanes of vectors.

        Before::

            for i in range(16): C[i] = A[i] + 1

        After ``s[C].vectorize(i)``::

            C[0:16] = A[0:16] + 1

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

    def _annotate(self, axis: IterVar, kind: MarkKind, verb: str) -> None:
        self.schedule.apply_step(Annotate(self.id, self.loop_id(axis, verb), kind))

    def pragma(self, axis: IterVar, pragma_type: str, pragma_value: PragmaValue = True) -> None:
        """Attach a hint to a loop.

        ``auto_unroll_max_step`` (int): below this loop, innermost loops are unrolled as long as the
        copies of the body stay within the value. ``unroll_explicit`` (bool, default True): whether
        the pragma writes the iterations out itself, or leaves that to the compiler as a hint.
        Names that begin with ``user.`` are yours: their values (a number, a text, a bool or None)
        stand in `For.pragmas`, where passes of your own find them.

        Before::

            for i in range(4): for j in range(2): f(i, j)

        After ``s[C].pragma(i, "auto_unroll_max_step", 2)``::

            for i in range(4): f(i, 0); f(i, 1)

        Raises:
            ScheduleError: unknown pragma, or a value that it does not take.
        """
        loop = self.loop_id(axis, "pragma")
        step = Pragma(self.id, loop, pragma_type, plain(pragma_value))
        self.schedule.apply_step(step)

    def compute_at(self, parent: StageLike, scope: IterVar) -> None:
        """Compute this stage inside a loop of a stage that uses it, as much as is needed there.

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
        pid = self.schedule.stage_id(parent, self._who("compute_at"))
        loop = self.schedule.loop_id(pid, scope, self._who("compute_at"))
        self.schedule.apply_step(ComputeAt(self.id, pid, loop))

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
        self.schedule.apply_step(ComputeInline(self.id))

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
        self.schedule.apply_step(ComputeRoot(self.id))


def _listed(axes: Sequence[object]) -> Sequence[object]:
    """Axes that were given one by one, or as one list."""
    first = axes[0] if len(axes) == 1 else None
    return first if isinstance(first, list | tuple) else axes
