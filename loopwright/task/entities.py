"""One choice of one knob, ``cfg["tile_i"]``, and how it acts on a schedule; ``value`` is its JSON
form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from loopwright.errors import InstantiationError, SpaceError
from loopwright.ir.sizes import Symbol
from loopwright.records import Json
from loopwright.te import thread_axis

if TYPE_CHECKING:
    from loopwright.ir.expr import IterVar
    from loopwright.schedule import Schedule, Stage
    from loopwright.te import Operation, Tensor

    #: Anything that names a stage of a schedule.
    StageKey: TypeAlias = Tensor | Operation | Stage


class Refuser(Protocol):
    def raise_error(self, msg: str) -> None: ...


@dataclass(frozen=True)
class SplitEntity:
    """Sizes of a split from the outside in; the outermost is ``-1``, derived from the others.

    While a template runs for a whole population of candidates, sizes may be symbols, which behave
    as integers.

    Example:
        >>> A = te.placeholder((16,), name="A")
        >>> B = te.compute((16,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> space = lw.ConfigSpace()
        >>> _ = space.define_split("tile", B.op.axis[0], num_outputs=2)
        >>> space.freeze()
        >>> io, ii = space.get(2)["tile"].apply(s, B, B.op.axis[0])
        >>> print(lw.lower(s, [A, B]))
        def main(A: float32[16], B: out float32[16]):
          for i.0 in range(4):
            for i.1 in range(4):
              B[i.0 * 4 + i.1] = A[i.0 * 4 + i.1] + 1.0
    """

    size: tuple[Any, ...]

    def __init__(self, size: Sequence[int | Symbol]) -> None:
        sizes = tuple(part if isinstance(part, Symbol) else int(part) for part in size)
        object.__setattr__(self, "size", sizes)

    @property
    def value(self) -> list[int]:
        return list(self.size)

    def apply(self, s: Schedule, op: StageKey, axis: IterVar) -> list[IterVar]:
        """Split ``axis`` of ``s[op]`` into ``len(size)`` loops, which are returned, outermost
        first.

        Before: ``for i in n``. After, for ``[-1, 8, 4]``: ``for i0 in ceil(n / 32): for i1 in 8:
        for i2 in 4``. The inner sizes are exact; the outermost follows.
        """
        axes = []
        for level in range(1, len(self.size)):
            outer, axis = s[op].split(axis, factor=math.prod(self.size[level:]))
            axes.append(outer)
        return [*axes, axis]

    def __str__(self) -> str:
        return str(list(self.size))


@dataclass(frozen=True)
class ReorderEntity:
    """A permutation of axes: entry ``n`` says which axis comes ``n``-th.

    Example:
        >>> A = te.placeholder((4, 8), name="A")
        >>> B = te.compute((4, 8), lambda i, j: A[i, j] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> space = lw.ConfigSpace()
        >>> _ = space.define_reorder("order", B.op.axis, policy="all")
        >>> space.freeze()
        >>> _ = space.get(1)["order"].apply(s, B, B.op.axis)
        >>> print(lw.lower(s, [A, B]))
        def main(A: float32[4, 8], B: out float32[4, 8]):
          for j in range(8):
            for i in range(4):
              B[i, j] = A[i, j] + 1.0
    """

    perm: tuple[int, ...]

    def __init__(self, perm: Sequence[int]) -> None:
        object.__setattr__(self, "perm", tuple(int(part) for part in perm))

    @property
    def value(self) -> list[int]:
        return list(self.perm)

    def apply(self, s: Schedule, op: StageKey, axes: Sequence[IterVar]) -> list[IterVar]:
        """Reorder ``axes`` of ``s[op]``, and return them in their new order; another number of axes
        than that of the knob is a `SpaceError`."""
        if len(axes) != len(self.perm):
            raise SpaceError(f"reorder of {len(self.perm)} axes was applied to {len(axes)}")
        order = [axes[which] for which in self.perm]
        s[op].reorder(*order)
        return order

    def __str__(self) -> str:
        return str(list(self.perm))


@dataclass(frozen=True)
class AnnotateEntity:
    """Annotation of each axis: ``none``, ``unroll``, ``vec``, ``fuse`` (with the next axis), or a
    thread axis such as ``blockIdx.x`` to bind it to; or for each cache the axis to attach it at.

    Example:
        >>> A = te.placeholder((4, 8), name="A")
        >>> B = te.compute((4, 8), lambda i, j: A[i, j] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> space = lw.ConfigSpace()
        >>> space.define_annotate("how", B.op.axis, policy="vec")
        >>> space.freeze()
        >>> _ = space.get(0)["how"].apply(s, B, B.op.axis)
        >>> print(lw.lower(s, [A, B]))
        def main(A: float32[4, 8], B: out float32[4, 8]):
          for i in range(4):
            for j in vectorized(8):
              B[i, j] = A[i, j] + 1.0
    """

    anns: tuple[str | int, ...]

    def __init__(self, anns: Sequence[str | int]) -> None:
        object.__setattr__(self, "anns", tuple(anns))

    @property
    def value(self) -> list[str | int]:
        return list(self.anns)

    def apply(
        self,
        s: Schedule,
        op: StageKey,
        axes: Sequence[IterVar],
        axis_lens: Sequence[int] | None = None,
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
        cfg: Refuser | None = None,
        source: Sequence[Sequence[StageKey]] | None = None,
    ) -> list[IterVar]:
        """Annotate ``axes`` of ``s[op]``: unroll, vectorize, fuse or bind each as chosen.

        Args:
            axes: the axes, outermost first.
            axis_lens: their lengths, for the two limits.
            max_unroll: refuse the configuration when an axis to unroll is longer.
            vec_size: refuse it when the length of the axis to vectorize is not among these.
            source: for ``locate_cache``: one list of cache tensors per anchor; each is computed at
                the axis that was chosen for it.

        Returns:
            One loop for each axis: where it was fused, the loop that it became a part of.

        Raises:
            InstantiationError: a limit is broken.
            SpaceError: the number of axes, or of cache lists, is not that of the knob.
        """
        if source is not None:
            self._attach(s, op, axes, source)
            return list(axes)
        if len(axes) != len(self.anns):
            raise SpaceError(f"annotation of {len(self.anns)} axes was applied to {len(axes)}")
        left = list(axes)
        for number, ann in enumerate(self.anns):
            axis = left[number]
            if ann == "unroll":
                length = _length(axis_lens, number, max_unroll)
                if max_unroll and length > max_unroll:
                    _refuse(cfg, f"length {length} is too long to unroll (at most {max_unroll})")
                s[op].unroll(axis)
            elif ann == "vec":
                length = _length(axis_lens, number, vec_size)
                if vec_size and length not in vec_size:
                    sizes = list(vec_size)
                    _refuse(cfg, f"length {length} is not among the vector sizes {sizes}")
                s[op].vectorize(axis)
            elif ann == "fuse":
                left[number + 1] = s[op].fuse(axis, left[number + 1])
            elif ann != "none":
                s[op].bind(axis, thread_axis(str(ann)))
        for number in reversed(range(len(left))):
            if self.anns[number] == "fuse":
                left[number] = left[number + 1]
        return left

    def _attach(
        self,
        s: Schedule,
        op: StageKey,
        axes: Sequence[IterVar],
        source: Sequence[Sequence[StageKey]],
    ) -> None:
        if len(source) != len(self.anns):
            raise SpaceError(f"{len(self.anns)} anchors, but {len(source)} lists of caches")
        for caches, which in zip(source, self.anns, strict=True):
            for cache in caches:
                s[cache].compute_at(s[op], axes[int(which)])

    def __str__(self) -> str:
        return str(list(self.anns))


@dataclass(frozen=True)
class OtherOptionEntity:
    """A value out of a list of candidates.

    Example:
        >>> space = lw.ConfigSpace()
        >>> _ = space.define_split("tile", 16, num_outputs=2)
        >>> space.define_knob("unroll", [False, True])
        >>> space.freeze()
        >>> print(space.get(9)["unroll"].val)
        True
    """

    val: Json

    @property
    def value(self) -> Json:
        return _listed(self.val)

    def __str__(self) -> str:
        return repr(self.val)


Entity = SplitEntity | ReorderEntity | AnnotateEntity | OtherOptionEntity


def _listed(value: Json) -> Json:
    return [_listed(part) for part in value] if isinstance(value, (list, tuple)) else value


def _length(axis_lens: Sequence[int] | None, number: int, limit: object) -> int:
    """Length of an axis, needed only where there is a limit."""
    if not limit:
        return 0
    if axis_lens is None or number >= len(axis_lens):
        raise SpaceError("max_unroll and vec_size need axis_lens, the length of each axis")
    return int(axis_lens[number])


def _refuse(cfg: Refuser | None, text: str) -> None:
    if cfg is None:
        raise InstantiationError(text)
    cfg.raise_error(text)
