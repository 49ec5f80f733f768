"""The primitives that act on a stage's buffer, as methods.

`loopwright.schedule.stage` adds those that act on loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopwright.errors import ScheduleError
from loopwright.ir.expr import Binary, Const, IterVar, Var
from loopwright.schedule import steps as st
from loopwright.schedule.stage_view import StageView
from loopwright.schedule.state import LayoutDim


class MemoryPrimitives(StageView):
    """Primitives that decide where a stage's elements lie in memory."""

    def transform_layout(self, index_map: Callable[..., Any]) -> None:
        """Choose the order in which the stage's buffer is stored.

        Before::

            B.local: [K, N];  B.local[k, j] at  k * N + j

        After ``s[BL].transform_layout(lambda k, j: (j // 16, k, j % 16))``::

            B.local: [N / 16, K, 16];  B.local[k, j] at  ((j // 16) * K + k) * 16 + j % 16

        Args:
            index_map: gets one index a dimension and returns the new indices: permutations and
                splits ``i // f``, ``i % f``, ``(i // f) % g``. It must be a bijection. Indices
                count from the first element that the stage covers.

        Raises:
            ScheduleError: the map is no bijection or not of this form; the stage is an input or an
                output, whose memory belongs to the caller.
        """
        ndim = len(self.schedule.state.stages[self.id].op.shape)
        dims = _trace_map(index_map, ndim, self._who("transform_layout"))
        self.schedule._do(st.TransformLayout(self.id, dims))

    def set_scope(self, scope: str) -> None:
        """Put the stage's buffer into another memory scope.

        Before::

            B = alloc(float32[n], global)

        After ``s[B].set_scope("local")``::

            B = alloc(float32[n], local)

        Args:
            scope: ``"global"``, ``"shared"`` (one a thread block) or ``"local"`` (one a thread).

        Raises:
            ScheduleError: unknown scope; the stage is inlined, an input or an output.
        """
        self.schedule._do(st.SetScope(self.id, scope))

    def storage_align(self, axis: IterVar | int, factor: int, offset: int) -> None:
        """Leave gaps in the stage's buffer so that a stride is ``k * factor + offset`` elements.

        Rows whose stride is odd fall into different banks of shared memory, and rows whose stride
        is no power of two into different sets of a cache.

        Before::

            B = alloc(float32[8, 16], local)                      # B[i, j] at i * 16 + j

        After ``s[B].storage_align(B.op.axis[0], 16, 1)``::

            B = alloc(float32[8, 16], local, strides=[17, 1])     # B[i, j] at i * 17 + j

        Args:
            axis: an axis of the operation, or the number of a dimension of the buffer (needed after
                `transform_layout`, which gives the buffer dimensions of its own).
            factor: a positive number of elements.
            offset: elements, 0 or more. The smallest stride of this form that fits is taken.

        Raises:
            ScheduleError: the axis is no axis of the operation, or there is no such dimension; the
                factor or the offset is out of range; the stage is inlined, an input or an output.
        """
        dim = self._dimension(axis, "storage_align")
        self.schedule._do(st.StorageAlign(self.id, dim, plain(factor), plain(offset)))

    def _dimension(self, axis: IterVar | int, verb: str) -> int:
        """The dimension of the buffer that an axis, or a number, names."""
        if hasattr(axis, "__index__"):
            return int(axis.__index__())
        if not isinstance(axis, IterVar):
            raise ScheduleError(
                f"{self._who(verb)}: expected an axis or the number of a dimension, got {axis!r}"
            )
        loop = self._loop(axis, verb)
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


def plain(v: Any) -> Any:
    """NumPy's integers as Python's, so that a trace is JSON; the rules judge what is no number."""
    return v.__index__() if hasattr(v, "__index__") and not isinstance(v, bool) else v


def _trace_map(index_map: Callable[..., Any], ndim: int, who: str) -> tuple[LayoutDim, ...]:
    axes = [Var(f"i{d}") for d in range(ndim)]
    try:
        result = index_map(*axes)
    except TypeError as e:
        raise ScheduleError(f"{who}: the map must take {ndim} indices: {e}") from e
    parts = result if isinstance(result, list | tuple) else (result,)
    return tuple(_digit(e, axes, who) for e in parts)


def _digit(e: Any, axes: list[Var], who: str) -> LayoutDim:
    mod: int | None = None
    div = 1
    if isinstance(e, Binary) and e.op == "%" and isinstance(e.b, Const):
        e, mod = e.a, int(e.b.value)
    if isinstance(e, Binary) and e.op == "//" and isinstance(e.b, Const):
        e, div = e.a, int(e.b.value)
    if not isinstance(e, Var) or e not in axes or div < 1 or (mod is not None and mod < 1):
        raise ScheduleError(
            f"{who}: each new index must be i, i // f, i % f or (i // f) % g of one old index"
        )
    return axes.index(e), div, mod
