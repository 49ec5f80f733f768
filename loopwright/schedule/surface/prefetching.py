"""The primitives of `Stage` that prefetch data."""

from __future__ import annotations

from loopwright.ir.expr import IterVar
from loopwright.schedule.rules import Prefetch, PrefetchNext
from loopwright.schedule.surface.memory import plain
from loopwright.schedule.surface.resolution import StageLike
from loopwright.schedule.surface.view import StageView, output_of


class PrefetchPrimitives(StageView):
    """`prefetch` and `prefetch_next`."""

    def prefetch(self, tensor: StageLike, var: IterVar, offset: int) -> None:
        """Prefetch the data of a tensor that a later iteration of a loop will read.

        Each iteration begins with prefetches of the region that the one ``offset`` later reads, in
        this stage or in those computed inside the loop, one for each line (64 bytes) of a row.
        They change no value. The iteration ahead may lie beyond the last one: its addresses are
        computed all the same. They are those of the next iteration of the loop around, where that
        goes on; addresses outside of the tensor are not touched.

        Args:
            tensor: what to prefetch: an input, or a tensor that is computed outside of the loop.
            var: a loop of this stage.
            offset: how many iterations ahead, 1 or more.

        Raises:
            ScheduleError: the loop no longer exists, the offset is not positive; (when lowering)
                nothing inside the loop reads the tensor, or it does at an index that is not affine;
                the tensor is inlined or computed inside the loop; the loop is vectorized or runs in
                a GPU kernel.

        Example:
            >>> A = te.placeholder((64, 32), name="A")
            >>> B = te.compute((64, 32), lambda i, j: A[i, j] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64, 32], B: out float32[64, 32]):
              for i in range(64):
                for j in range(32):
                  B[i, j] = A[i, j] + 1.0
            >>> s[B].prefetch(A, B.op.axis[0], 4)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64, 32], B: out float32[64, 32]):
              for i in range(64):
                for p1 in unrolled(2):
                  prefetch A[i + 4, p1 * 16]
                for j in range(32):
                  B[i, j] = A[i, j] + 1.0
        """
        who = self._who("prefetch")
        loop, source = self.loop_id(var, "prefetch"), self.schedule.stage_id(tensor, who)
        step = Prefetch(self.id, loop, source, plain(offset), output_of(tensor, who))
        self.schedule.apply_step(step)

    def prefetch_next(
        self,
        tensor: StageLike,
        var: IterVar,
        parent: StageLike,
        scope: IterVar,
        offset: int = 1,
    ) -> None:
        """Prefetch the data of a tensor that a loop further out reads next, a share at a time.

        As `prefetch` for the loop ``scope``, but its prefetches are not made all at once: each
        iteration of ``var`` makes its share of them, evenly, so that memory is read while
        something is computed. Where ``scope`` is fused and the tensor stands still along inner
        parts of it, what comes next is what the outer parts read next, and all iterations until
        then have a share: while the rows of one panel of a packed operand are computed, the next
        panel is fetched. So kernels of matrix products hide the time that memory takes (Goto and
        van de Geijn, ACM TOMS 2008).

        Args:
            tensor: what to prefetch: an input, or a tensor that is computed outside of ``scope``,
                of constant shape. Where it does not move with ``scope``, or the fused parts of that
                have no constant extents, nothing is prefetched.
            var: a loop of this stage.
            parent: the stage of ``scope``: this one, or one that this one is computed in.
            scope: a loop around ``var``; the extents of loops between are constants.
            offset: how many iterations ahead; 0: nothing is prefetched, so that a knob can choose.

        Raises:
            ScheduleError: a loop no longer exists, the offset is negative; (when lowering) as for
                `prefetch`, or ``scope`` is not around ``var``, or shares are not known since an
                extent is not.

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
        step = PrefetchNext(self.id, loop, source, around, outer, plain(offset), output)
        self.schedule.apply_step(step)
