"""The primitives that act on a stage's buffer, as methods.

`loopwright.schedule.surface.stage` adds those that act on loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import SupportsIndex, TypeVar

from loopwright.errors import ScheduleError
from loopwright.ir.expr import IterVar
from loopwright.ir.kinds import Scope
from loopwright.ir.sizes import Symbol
from loopwright.schedule.rules import (
    CacheRead,
    DoubleBuffer,
    SetScope,
    StorageAlign,
    StoreAt,
    StoreRoot,
    TransformLayout,
)
from loopwright.schedule.surface.layout_map import trace_map
from loopwright.schedule.surface.resolution import StageLike
from loopwright.schedule.surface.view import StageView
from loopwright.te.tensor import Tensor

_T = TypeVar("_T")


class MemoryPrimitives(StageView):
    """Primitives that decide where a stage's elements lie in memory."""

    def transform_layout(
        self, index_map: Callable[..., object], pad_value: float | None = None
    ) -> Tensor | None:
        """Choose where the elements of the stage's buffer lie.

        The memory of an input belongs to the caller. Of a constant input
        (`loopwright.te.placeholder`) a copy in the new layout is made at the root, and all stages
        that read the input read the copy: it is computed once for many calls
        (`loopwright.runtime.Module.with_constants`). Each call makes a copy of its own; further
        primitives, and another layout, take the tensor that is returned.

        Args:
            index_map: gets one index per dimension and returns the new indices, made with ``+``,
                ``-``, and ``*``, ``//``, ``%`` by constants: permutations, splits ``i // f``,
                ``i % f``, fusions ``i * m + j``, and what these give together. It must be a
                bijection from the elements that the stage covers onto elements of the new buffer.
                The buffer is the smallest box around those; where a split does not divide it holds
                whole blocks. What no index reaches is padding, which is never read. Indices count
                from the first element that the stage covers.
            pad_value: a number that fills the padding, written each time before the stage is
                computed (all of the buffer is filled); default: it is left as it is.

        Returns:
            Of a constant input the tensor of the copy; of other stages None.

        Raises:
            ScheduleError: the map is no bijection (with two indices that collide, or an element to
                which none goes), or is not of this form; (when lowering) it is none for the extents
                that the stage covers; ``pad_value`` is no number; the stage is inlined, an input
                that is no constant or an output, whose memory belongs to the caller; or nothing
                reads the constant.

        Example:
            >>> B = te.placeholder((64, 32), name="B")
            >>> BT = te.compute((64, 32), lambda k, j: B[k, j] * 2, name="BT")
            >>> C = te.compute((64, 32), lambda k, j: BT[k, j] + 1, name="C")
            >>> s = te.create_schedule(C.op)
            >>> print(lw.lower(s, [B, C]))
            def main(B: float32[64, 32], C: out float32[64, 32]):
              BT = alloc(float32[64, 32], global)
              for k in range(64):
                for j in range(32):
                  BT[k, j] = B[k, j] * 2.0
              for k_1 in range(64):
                for j_1 in range(32):
                  C[k_1, j_1] = BT[k_1, j_1] + 1.0
            >>> s[BT].transform_layout(lambda k, j: (j // 16, k, j % 16))
            >>> print(lw.lower(s, [B, C]))
            def main(B: float32[64, 32], C: out float32[64, 32]):
              BT = alloc(float32[2, 64, 16], global)
              for k in range(64):
                for j in range(32):
                  BT[j // 16, k, j % 16] = B[k, j] * 2.0
              for k_1 in range(64):
                for j_1 in range(32):
                  C[k_1, j_1] = BT[j_1 // 16, k_1, j_1 % 16] + 1.0
            >>> A = te.placeholder((64,), name="A")
            >>> W = te.placeholder((64, 32), name="W", constant=True)
            >>> D = te.compute((64, 32), lambda k, j: A[k] * W[k, j], name="D")
            >>> s = te.create_schedule(D.op)
            >>> print(lw.lower(s, [A, W, D]))
            def main(A: float32[64], W: constant float32[64, 32], D: out float32[64, 32]):
              for k in range(64):
                for j in range(32):
                  D[k, j] = A[k] * W[k, j]
            >>> packed = s[W].transform_layout(lambda k, j: (j // 16, k, j % 16))
            >>> print(lw.lower(s, [A, W, D]))
            def main_prepare(W: constant float32[64, 32], W.global: out float32[2, 64, 16]):
              for ax0 in range(64):
                for ax1 in range(32):
                  W.global[ax1 // 16, ax0, ax1 % 16] = W[ax0, ax1]
            <BLANKLINE>
            def main_prepared(A: float32[64], D: out float32[64, 32], W.global: float32[2, 64, 16]):
              for k in range(64):
                for j in range(32):
                  D[k, j] = A[k] * W.global[j // 16, k, j % 16]
        """
        schedule, who = self.schedule, self._who("transform_layout")
        op = schedule.state.stages[self.id].op
        dims = trace_map(index_map, len(op.shape), who)
        if not op.constant:
            schedule.apply_step(TransformLayout(self.id, dims, plain(pad_value)))
            return None
        readers = tuple(schedule.state.consumers(self.id))
        with schedule.all_or_nothing():
            copy = f"s{schedule.apply_step(CacheRead(self.id, 'global', readers))}"
            schedule.apply_step(TransformLayout(copy, dims, plain(pad_value)))
        return schedule._tensor(copy)

    def store_at(self, parent: StageLike, scope: IterVar) -> None:
        """Let the buffer of a stage exist outside of the loop where the stage is computed.

        The buffer then covers what all iterations of the loops between need, and keeps what earlier
        iterations wrote. Each iteration still computes all that it needs: elements that overlap are
        computed again, no sliding window is made of them (as Halide's would be).

        Args:
            parent: the stage, tensor or operation whose loop it is.
            scope: the loop: that of `compute_at`, or one around it.

        Raises:
            ScheduleError: the stage is computed at root or inlined; the loop is not around that of
                `compute_at`; (when lowering) a loop between is parallel, vectorized or bound to
                threads, whose iterations would write into one buffer at once.

        Example:
            >>> A = te.placeholder((4, 8), name="A")
            >>> B = te.compute((4, 8), lambda i, j: A[i, j] * 2, name="B")
            >>> C = te.compute((4, 6), lambda i, j: B[i, j] + B[i, j + 2], name="C")
            >>> s = te.create_schedule(C.op)
            >>> i, j = C.op.axis
            >>> s[B].compute_at(s[C], j)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[4, 8], C: out float32[4, 6]):
              for i in range(4):
                for j in range(6):
                  B = alloc(float32[1, 3], global)
                  for j_1 in range(3):
                    B[0, j_1] = A[i, j + j_1] * 2.0
                  C[i, j] = B[0, 0] + B[0, 2]
            >>> s[B].store_at(s[C], i)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[4, 8], C: out float32[4, 6]):
              for i in range(4):
                B = alloc(float32[1, 8], global)
                for j in range(6):
                  for j_1 in range(3):
                    B[0, j + j_1] = A[i, j + j_1] * 2.0
                  C[i, j] = B[0, j] + B[0, j + 2]
        """
        pid = self.schedule.stage_id(parent, self._who("store_at"))
        loop = self.schedule.loop_id(pid, scope, self._who("store_at"))
        self.schedule.apply_step(StoreAt(self.id, pid, loop))

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
        self.schedule.apply_step(StoreRoot(self.id))

    def double_buffer(self, stages: int = 2) -> None:
        """Give the buffer several places: some are filled for later iterations while one is read.

        With two of them, its halves, each iteration fills one for the next iteration. With more,
        it fills ``stages - 1`` iterations ahead: a software pipeline, which hides more of the
        time of fetches, and takes more memory. Where the loop of `compute_at` has one iteration
        nothing changes; there are never more places than iterations.

        Args:
            stages: how many iterations have a place in the buffer, from 2 to 8.

        Raises:
            ScheduleError: another number of stages; the stage is inlined, an input or an output;
                (when lowering) it is computed at root or at a loop that is not serial, it is stored
                elsewhere, or it reads a stage that is computed at the same loop and has not as many
                stages.

        Example:
            >>> A = te.placeholder((8, 4), name="A")
            >>> B = te.compute((8, 4), lambda i, j: A[i, j] * 2, name="B")
            >>> C = te.compute((8, 4), lambda i, j: B[i, 3 - j] + 1, name="C")
            >>> s = te.create_schedule(C.op)
            >>> s[B].compute_at(s[C], C.op.axis[0])
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8, 4], C: out float32[8, 4]):
              for i in range(8):
                B = alloc(float32[1, 4], global)
                for j in range(4):
                  B[0, j] = A[i, j] * 2.0
                for j_1 in range(4):
                  C[i, j_1] = B[0, j_1 * -1 + 3] + 1.0
            >>> s[B].double_buffer()
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8, 4], C: out float32[8, 4]):
              B = alloc(float32[2, 1, 4], global)
              for j in range(4):
                B[0, 0, j] = A[0, j] * 2.0
              for i in range(8):
                if i + 1 < 8:
                  i_1 = i + 1
                  half = i_1 % 2
                  for j in range(4):
                    B[half, 0, j] = A[i_1, j] * 2.0
                half_1 = i % 2
                for j_1 in range(4):
                  C[i, j_1] = B[half_1, 0, j_1 * -1 + 3] + 1.0
            >>> s[B].double_buffer(stages=3)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[8, 4], C: out float32[8, 4]):
              B = alloc(float32[3, 1, 4], global)
              for j in range(4):
                B[0, 0, j] = A[0, j] * 2.0
              for j in range(4):
                B[1, 0, j] = A[1, j] * 2.0
              for i in range(8):
                if i + 2 < 8:
                  i_1 = i + 2
                  place = i_1 % 3
                  for j in range(4):
                    B[place, 0, j] = A[i_1, j] * 2.0
                place_1 = i % 3
                for j_1 in range(4):
                  C[i, j_1] = B[place_1, 0, j_1 * -1 + 3] + 1.0
        """
        self.schedule.apply_step(DoubleBuffer(self.id, plain(stages)))

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
        self.schedule.apply_step(SetScope(self.id, scope))

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
        dim = self._dimension(axis, "storage_align")
        self.schedule.apply_step(StorageAlign(self.id, dim, plain(factor), plain(offset)))

    def _dimension(self, axis: IterVar | int, verb: str) -> int:
        """Dimension of the buffer that an axis, or a number, names."""
        if hasattr(axis, "__index__"):
            return int(axis.__index__())
        if not isinstance(axis, IterVar):
            raise ScheduleError(
                f"{self._who(verb)}: expected an axis or the number of a dimension, got {axis!r}"
            )
        loop = self.loop_id(axis, verb)
        name = self.schedule.state.label(self.id)
        if not loop.startswith("a"):
            raise ScheduleError(
                f"{self._who(verb)}: {axis.name!r} is a loop, not an axis of {name!r}; give one of "
                f"s[{name}].op.axis"
            )
        if self._state.layout is not None:
            raise ScheduleError(
                f"{self._who(verb)}: transform_layout gave the buffer of {name!r} dimensions of "
                "its own; give the number of one"
            )
        return int(loop[1:])


def plain(v: _T) -> _T | int:
    """NumPy's integers as Python's, so that a trace is JSON; the rules judge what is no number."""
    if v is None or type(v) is int:
        return v  # most are, and asking for a protocol takes 4 us
    if isinstance(v, bool | Symbol) or not isinstance(v, SupportsIndex):
        return v
    return v.__index__()
