"""The primitive of `Stage` that replaces a nest by an intrinsic."""

from __future__ import annotations

from typing import Any

from loopwright.errors import ScheduleError
from loopwright.ir.expr import IterVar
from loopwright.schedule.rules import Tensorize
from loopwright.schedule.surface.view import StageView
from loopwright.te.intrin_proof import intrinsic_from_json
from loopwright.te.tensor_intrin import TensorIntrin


class TensorizePrimitive(StageView):
    """`tensorize`."""

    def tensorize(self, var: IterVar, tensor_intrin: TensorIntrin | dict[str, Any]) -> None:
        """Let an intrinsic do what stands inside a loop, the loop included.

        Before::

            for i:
              for jo: for ji in range(16): C[i, jo*16 + ji] = 0
              for ko: for jo:
                for ji in range(16): for ki in range(4):
                  C[i, jo*16 + ji] += A[i, ko*4 + ki] * B[jo, ko, ji, ki]

        After ``s[C].tensorize(ji, te.intrinsics.dot_uint8_int8_int32(16))``::

            for i:
              for jo: C[i, jo*16 : jo*16 + 16] = 0
              for ko: for jo:
                dot_16x4_u8s8s32(C[i, jo*16], A[i, ko*4], B[jo, ko, 0, 0])

        The nest is compared with the description of the intrinsic: extents of the loops, the
        expression, element types, and how the elements of every operand lie in memory. Loops of
        the reduction may stand outside: then the intrinsic's ``reset`` stands where the reduction
        starts (the ordinary nest where it has none) and ``update`` in the place of the loop;
        otherwise ``body``. Where a tile is not whole, the nest stays as it was: the loops around
        are partitioned, and only whole tiles are given to the intrinsic.

        Args:
            var: the loop.
            tensor_intrin: what `te.decl_tensor_intrin` made, or its JSON.

        Raises:
            ScheduleError: the stage is tensorized already, or has several outputs; (when lowering)
                the nest does not match: where it differs, what the intrinsic wants and what the
                nest has.
            TensorError: malformed JSON, or JSON of an intrinsic that this program has not declared
                and that is not proved harmless (`loopwright.te.intrin_proof`).
        """
        loop = self.loop_id(var, "tensorize")
        if isinstance(tensor_intrin, dict):
            tensor_intrin = intrinsic_from_json(tensor_intrin)
        if not isinstance(tensor_intrin, TensorIntrin):
            raise ScheduleError(
                f"{self._who('tensorize')}: expected an intrinsic of te.decl_tensor_intrin, got "
                f"{tensor_intrin!r}"
            )
        self.schedule.apply_step(Tensorize(self.id, loop, tensor_intrin))
