"""The primitives of `Stage` that split a loop as another one was split."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.errors import ScheduleError
from loopwright.ir.expr import IterVar
from loopwright.schedule.rules import FollowFusedSplit, FollowSplit
from loopwright.schedule.state import SplitRel
from loopwright.schedule.surface.view import StageView


class FollowingPrimitives(StageView):
    """``follow_split`` and ``follow_fused_split``."""

    def follow_split(
        self, parent: IterVar, source: IterVar, n_split: int | None = None
    ) -> tuple[IterVar, ...]:
        """Split a loop into tiles of the sizes that another loop was split into.

        The step holds no numbers, but the loop that it follows: where a replay has another factor
        there, this loop is split by it as well. Ansor's step of this name; it keeps what one stage
        computes and another one reads in tiles that fit.

        Args:
            parent: the loop.
            source: an axis of any stage, split by factor once or several times.
            n_split: how many of its splits are followed, from the outside in: what is inside the
                last one stays in one piece. None: all.

        Returns:
            The ``n_split + 1`` loops, outermost first.

        Raises:
            ScheduleError: the source was not split, or by nparts; ``n_split`` is out of range; the
                loop no longer exists, is marked, or has a stage computed at it.

        Example:
            >>> A = te.placeholder((64,), name="A")
            >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
            >>> C = te.compute((64,), lambda i: B[i] * 2, name="C")
            >>> s = te.create_schedule(C.op)
            >>> outer, inner = s[C].split(C.op.axis[0], factor=16)
            >>> middle, inner = s[C].split(inner, factor=4)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[64], C: out float32[64]):
              B = alloc(float32[64], global)
              for i in range(64):
                B[i] = A[i] + 1.0
              for i.0 in range(4):
                for i.1.0 in range(4):
                  for i.1.1 in range(4):
                    C[i.0 * 16 + i.1.0 * 4 + i.1.1] = B[i.0 * 16 + i.1.0 * 4 + i.1.1] * 2.0
            >>> loops = s[B].follow_split(B.op.axis[0], C.op.axis[0], n_split=1)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[64], C: out float32[64]):
              B = alloc(float32[64], global)
              for i.0 in range(4):
                for i.1 in range(16):
                  B[i.0 * 16 + i.1] = A[i.0 * 16 + i.1] + 1.0
              for i.0_1 in range(4):
                for i.1.0 in range(4):
                  for i.1.1 in range(4):
                    C[i.0_1 * 16 + i.1.0 * 4 + i.1.1] = B[i.0_1 * 16 + i.1.0 * 4 + i.1.1] * 2.0
        """
        loop = self.loop_id(parent, "follow_split")
        sid, followed = self.schedule.any_loop_id(source, self._who("follow_split"))
        if n_split is None:
            n_split = self._times_split(source)
        t = self.schedule.apply_step(FollowSplit(self.id, loop, sid, followed, n_split))
        return tuple(self.schedule._axis(self.id, f"{t}.{k}") for k in range(n_split + 1))

    def _times_split(self, source: IterVar) -> int:
        """Number of splits of a loop, and of the loops that came of it."""
        sid, loop = self.schedule.any_loop_id(source, "follow_split")
        parts, count = {loop}, 0
        for rel in self.schedule.state.stages[sid].relations:
            if isinstance(rel, SplitRel) and rel.parent in parts:
                parts |= {rel.outer, rel.inner}
                count += 1
        return count

    def follow_fused_split(
        self,
        parent: IterVar,
        sources: Sequence[IterVar],
        level: int,
        factor_or_nparts: bool = True,
    ) -> tuple[IterVar, IterVar]:
        """Split a loop by the product of the loops of one level of several splits.

        Where the loops of a level were fused, as into a thread axis, another stage's loop is so
        shared out among the same threads. As with `follow_split` the step holds no numbers; it is
        Ansor's step of this name.

        Args:
            parent: the loop.
            sources: axes of any stages, each split by factor.
            level: which loop of each: 0 is the one behind the outermost, 1 the next one inside.
            factor_or_nparts: True: the product is the extent of the inner loop; False: of the outer
                one.

        Returns:
            The outer and the inner loop.

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
        step = FollowFusedSplit(self.id, loop, followed, level, factor_or_nparts)
        t = self.schedule.apply_step(step)
        return self.schedule._axis(self.id, f"{t}.0"), self.schedule._axis(self.id, f"{t}.1")
