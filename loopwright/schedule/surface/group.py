"""`Group`: stages that are moved together, as `Schedule.create_group` makes them."""

from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.expr import IterVar
from loopwright.ir.kinds import AttachKind
from loopwright.schedule.rules import ComputeAt, ComputeRoot
from loopwright.schedule.rules.grouping import group_label, members
from loopwright.schedule.state import StageId
from loopwright.schedule.surface.resolution import ScheduleBase, StageLike
from loopwright.schedule.surface.view import StageView


class Group:
    """A group of stages. It has a place, and no loops or buffer of its own.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] * 2, name="B")
        >>> C = te.compute((8,), lambda i: B[i] + 1, name="C")
        >>> D = te.compute((8,), lambda i: C[i] * C[i], name="D")
        >>> s = te.create_schedule(D.op)
        >>> g = s.create_group(outputs=C, inputs=A)
        >>> print(g, g.members, g.attach_type)
        Group(B, C) [Stage(B), Stage(C)] root
    """

    def __init__(
        self, schedule: ScheduleBase, gid: StageId, stage: Callable[[StageId], StageView]
    ) -> None:
        self.schedule, self.id, self._stage = schedule, gid, stage

    def __repr__(self) -> str:
        return f"Group({group_label(self.schedule.state, self.id).removeprefix('group of ')})"

    @property
    def members(self) -> list[StageView]:
        """Its stages and those of groups inside it, in topological order."""
        return [self._stage(sid) for sid in members(self.schedule.state, self.id)]

    @property
    def attach_type(self) -> AttachKind:
        """Place where it is computed: ``"root"`` (or with the group around it) or ``"at"``."""
        return self.schedule.state.groups[self.id].attach.kind

    def compute_at(self, parent: StageLike, scope: IterVar) -> None:
        """Compute all stages that follow the group inside a loop of a stage that uses them.

        Args:
            parent: the stage, tensor or operation whose loop it is; not one of the group.
            scope: the loop.

        Raises:
            ScheduleError: a stage of the group is an output, or ``parent`` does not use it; the
                group lies in another one, to which ``parent`` does not belong; (when lowering) a
                reader outside of the group runs outside that loop.

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
        who = self.schedule._who("compute_at")
        pid = self.schedule.stage_id(parent, who)
        self.schedule.apply_step(ComputeAt(self.id, pid, self.schedule.loop_id(pid, scope, who)))

    def compute_root(self) -> None:
        """Compute the group on its own again: at root, or where the group around it is.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] * 2, name="B")
            >>> C = te.compute((8,), lambda i: B[i] + 1, name="C")
            >>> D = te.compute((8,), lambda i: C[i] * C[i], name="D")
            >>> s = te.create_schedule(D.op)
            >>> g = s.create_group(outputs=C, inputs=A)
            >>> g.compute_at(s[D], D.op.axis[0])
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
        self.schedule.apply_step(ComputeRoot(self.id))
