"""The primitive of `Stage` that replaces a nest by an intrinsic."""

from __future__ import annotations

from typing import Any

from loopwright.errors import ScheduleError
from loopwright.ir.expr import IterVar
from loopwright.schedule.rules import Tensorize
from loopwright.schedule.surface.view import StageView
from loopwright.te.intrin_proof import intrinsic_from_json, require_equal
from loopwright.te.tensor_intrin import TensorIntrin


class TensorizePrimitive(StageView):
    """`tensorize`."""

    def tensorize(self, var: IterVar, tensor_intrin: TensorIntrin | dict[str, Any]) -> None:
        """Let an intrinsic do what stands inside a loop, the loop included.

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
        self.schedule.apply_step(Tensorize(self.id, loop, tensor_intrin))
