"""The primitives of a schedule as a whole: they make stages, or groups of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from loopwright.errors import ScheduleError
from loopwright.ir.expr import IterVar
from loopwright.ir.kinds import Scope
from loopwright.schedule.rules import CacheRead, CacheWrite, CreateGroup, RFactor
from loopwright.schedule.state import StageId
from loopwright.schedule.surface.group import Group
from loopwright.schedule.surface.memory import plain
from loopwright.schedule.surface.resolution import ScheduleBase, StageLike, StageRef
from loopwright.schedule.surface.view import StageView, output_of
from loopwright.te.tensor import Operation, Tensor


class SchedulePrimitives(ScheduleBase):
    """``cache_read``, ``cache_write``, ``rfactor`` and ``create_group``."""

    def _stage(self, sid: StageId) -> StageView:
        """What users hold of a stage."""
        return StageView(self, sid)

    def cache_read(
        self, tensor: StageLike, scope: Scope, readers: StageLike | Sequence[StageLike]
    ) -> Tensor:
        """Copy ``tensor`` into a buffer of ``scope`` which the ``readers`` use instead.

        Before::

            for i, k: C[i] += A[i, k]

        After ``AL = s.cache_read(A, "local", [C])``::

            for i, k: A.local[i, k] = A[i, k]
            for i, k: C[i] += A.local[i, k]

        With ``s[AL].compute_at(s[C], i)`` the copy shrinks to what one i needs.

        Args:
            tensor: the tensor to copy (an input, or a tensor that a stage makes).
            scope: ``"global"``, ``"shared"`` or ``"local"``.
            readers: a tensor, operation or stage that reads it, or a list of them.

        Returns:
            The tensor of the new stage.

        Raises:
            ScheduleError: a reader does not read the tensor; unknown scope.
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

        Before::

            for i, j, k: C[i, j] += A[i, k] * B[k, j]

        After ``CL = s.cache_write(C, "local")``::

            for i, j, k: C.local[i, j] += A[i, k] * B[k, j]
            for i, j:    C[i, j] = C.local[i, j]

        ``C.op.axis`` stay axes of C; ``C.op.reduce_axis`` now belong to the new stage.

        Args:
            tensor: the tensor to cache; its loops must be untouched. Of an operation with several
                outputs a list of all of them (or the operation): one stage caches them together.
            scope: ``"global"``, ``"shared"`` or ``"local"``.

        Returns:
            The tensor of the new stage; a list of them where there are several, or a list was
            given.

        Raises:
            ScheduleError: the loops of the stage are transformed already; it is a placeholder; of
                several outputs only some are given.
        """
        who = self._who("cache_write")
        given = _listed(tensor)
        if not given:
            raise ScheduleError(f"{who}: expected a tensor or all outputs of an operation")
        sid = self.stage_id(given[0], who)
        self._check_outputs(sid, given, who)
        new = self._operation(f"s{self.apply_step(CacheWrite(sid, scope))}")
        many = new.num_outputs > 1 or given[0] is not tensor
        return list(new._outputs) if many else new.output(0)

    def _check_outputs(self, sid: StageId, given: Sequence[object], who: str) -> None:
        """Refuse a part of the outputs of an operation, or outputs of several."""
        for x in given[1:]:
            other = self.stage_id(x, who)
            if other != sid:
                raise ScheduleError(
                    f"{who}: {self.state.label(sid)!r} and {self.state.label(other)!r} are not "
                    "outputs of one operation; cache them one after the other"
                )
        n = self.state.stages[sid].op.num_outputs
        whole = len(given) == 1 and not isinstance(given[0], Tensor)
        tensors = [x.value_index for x in given if isinstance(x, Tensor)]
        if not whole and set(tensors) != set(range(n)):
            names = ", ".join(self.state.output_label(sid, k) for k in range(n))
            raise ScheduleError(
                f"{who}: {self.state.label(sid)!r} makes {n} outputs in one nest; give all of "
                f"them: cache_write([{names}], scope)"
            )

    def rfactor(
        self, tensor: StageLike, axis: IterVar, factor_axis: int = 0
    ) -> Tensor | list[Tensor]:
        """Compute partial results along a reduction loop in a new stage, then combine them.

        The loop becomes a spatial axis of the new stage, so that it can be parallel, bound or
        vectorized there; what is left of the reduction stays a reduction of the new stage.

        Before::

            for i: for ko: for ki in range(8): B[i] += A[i, ko * 8 + ki]

        After ``BF = s.rfactor(B, ki)``::

            for ki in range(8): for i: for ko: B.rf[ki, i] += A[i, ko * 8 + ki]
            for i: for ki in range(8):         B[i] += B.rf[ki, i]

        Where the split has a tail, the points beyond the axis are left out of the partial results.
        ``init=`` of the reduction enters when they are combined. The spatial loops of ``tensor``
        stay as they are (TE takes splits of them back). Reduction loops move to the new stage:
        ``ko`` and, as a spatial one, ``ki``; ``s[B].op.reduce_axis[0]`` runs over the results.
        Elements are combined in another order than before.

        Args:
            tensor: a reduction, or any output of one of tuples; its reduction loops may be split,
                fused and reordered, not marked.
            axis: the reduction loop to factor.
            factor_axis: where its axis stands among those of the new stage; negative ones count
                from the end, as in TE.

        Returns:
            The tensor of the new stage; a list of its outputs for a reduction of tuples.

        Raises:
            ScheduleError: the stage is no reduction, the loop is no reduction loop of it,
                ``factor_axis`` is out of range, a reduction loop is marked or has a stage computed
                at it.
        """
        who = self._who("rfactor")
        sid = self.stage_id(tensor, who)
        self.state.compute_stage(sid, "rfactor")
        loop = self.loop_id(sid, axis, who)
        at = plain(factor_axis)
        if isinstance(at, bool) or not isinstance(at, int):
            raise ScheduleError(f"{who}: factor_axis must be an integer, got {factor_axis!r}")
        n = len(self.state.stages[sid].op.shape) + 1
        t = self.apply_step(RFactor(sid, loop, at + n if -n <= at < 0 else at))
        new = self._operation(f"s{t}")
        return new.output(0) if new.num_outputs == 1 else list(new._outputs)

    def create_group(
        self,
        outputs: StageLike | Sequence[StageLike],
        inputs: StageLike | Sequence[StageLike],
        include_inputs: bool = False,
    ) -> Group:
        """Group the stages between some tensors, so that they are moved together.

        A stage belongs to the group when an output is, or needs, it and it needs an input. Where
        the group is computed, its stages are, in their order; one that has a place of its own
        (inside another stage of the group, or inlined) keeps that, and `compute_root` gives it back
        to the group. Stages that a step makes of one in the group belong to it as well. A group of
        stages of a group lies inside that and follows it.

        Before::

            for i: B[i] = A[i] * 2
            for i: C[i] = B[i] + 1
            for i: D[i] = C[i] * C[i]

        After ``g = s.create_group(outputs=C, inputs=A)`` (B and C) the same, and after
        ``g.compute_at(s[D], i)``::

            for i:
              B' = A[i] * 2
              C' = B' + 1
              D[i] = C' * C'

        Args:
            outputs: tensors, operations or stages (or one): the last stages of the group.
            inputs: tensors (or one) from which the group begins.
            include_inputs: whether the stages of the inputs belong to it, too.

        Returns:
            The group, whose `compute_at` and `compute_root` move it.

        Raises:
            ScheduleError: an output is an input of the program; no stage lies between; another
                group has some of the stages and not all; a stage is computed inside one that would
                not belong to the group (TE moves it back to root with a warning).
        """
        who = self._who("create_group")
        ends = self._stage_ids(outputs, who)
        if not ends:
            raise ScheduleError(f"{who}: name at least one output")
        begins = self._stage_ids(inputs, who)
        t = self.apply_step(CreateGroup(ends[0], ends[1:], begins, bool(include_inputs)))
        return Group(self, f"s{t}", self._stage)

    def _stage_ids(self, keys: StageLike | Sequence[StageLike], who: str) -> tuple[StageId, ...]:
        """Stages of a list of tensors, or of one; each once."""
        return tuple(dict.fromkeys(self.stage_id(x, who) for x in _listed(keys)))


def _listed(keys: object) -> Sequence[object]:
    """A list or tuple as it is, anything else in a list."""
    return keys if isinstance(keys, list | tuple) else [keys]
