"""One frozen class per primitive, and its JSON: ``["split", stage, loop, factor, nparts]``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from loopwright.errors import ScheduleError, did_you_mean
from loopwright.schedule.state import StageId


@dataclass(frozen=True, slots=True)
class Step:
    """Base class: ``stage`` is the stage acted on."""

    registry: ClassVar[dict[str, type[Step]]] = {}
    primitive: ClassVar[str] = ""

    stage: StageId

    def to_json(self) -> list[Any]:
        """``[primitive, stage, ...]`` with tuples as lists."""
        return [self.primitive, *(_plain(getattr(self, f.name)) for f in fields(self))]

    @staticmethod
    def from_json(data: Any) -> Step:
        """Inverse of `to_json`.

        Raises:
            ScheduleError: unknown primitive or wrong number of fields.
        """
        if not isinstance(data, list | tuple) or not data or not isinstance(data[0], str):
            raise ScheduleError(f"trace: a step is a list that begins with its name, got {data!r}")
        cls = Step.registry.get(data[0])
        if cls is None:
            raise ScheduleError(
                f"trace: unknown primitive {data[0]!r}{did_you_mean(data[0], Step.registry)}"
            )
        want = [f.name for f in fields(cls)]
        if len(data) - 1 != len(want):
            raise ScheduleError(
                f"trace: {data[0]} takes {len(want)} fields ({', '.join(want)}), got {data[1:]!r}"
            )
        return cls(*(_frozen(v) for v in data[1:]))


def _plain(v: Any) -> Any:
    return [_plain(x) for x in v] if isinstance(v, tuple) else v


def _frozen(v: Any) -> Any:
    return tuple(_frozen(x) for x in v) if isinstance(v, list | tuple) else v


def _register(name: str) -> Any:
    def put(cls: Any) -> Any:
        made = dataclass(frozen=True, slots=True)(cls)
        made.primitive = name
        Step.registry[name] = made
        return made

    return put


@_register("split")
class Split(Step):
    """Split a loop; exactly one of ``factor`` and ``nparts`` is set."""

    loop: str
    factor: int | None
    nparts: int | None


@_register("fuse")
class Fuse(Step):
    """Fuse two adjacent loops, outer first."""

    outer: str
    inner: str


@_register("reorder")
class Reorder(Step):
    """Put loops in the given order into the places that they occupy."""

    order: tuple[str, ...]


@_register("annotate")
class Annotate(Step):
    """Mark a loop ``vectorized``, ``unrolled`` or ``parallel``."""

    loop: str
    kind: str


@_register("bind")
class Bind(Step):
    """Bind a loop to a thread axis."""

    loop: str
    tag: str


@_register("pragma")
class Pragma(Step):
    """Attach a hint to a loop."""

    loop: str
    key: str
    value: Any


@_register("compute_at")
class ComputeAt(Step):
    """Compute the stage inside a loop of ``parent``."""

    parent: StageId
    loop: str


@_register("compute_inline")
class ComputeInline(Step):
    """Substitute the stage into its consumers."""


@_register("compute_root")
class ComputeRoot(Step):
    """Compute the stage on its own, before its consumers."""


@_register("cache_read")
class CacheRead(Step):
    """Copy the stage's tensor into ``scope`` for ``readers``."""

    scope: str
    readers: tuple[StageId, ...]


@_register("cache_write")
class CacheWrite(Step):
    """Compute the stage in ``scope`` and copy the result."""

    scope: str


@_register("transform_layout")
class TransformLayout(Step):
    """Order the dimensions of the stage's buffer; see `loopwright.schedule.state.LayoutDim`."""

    dims: tuple[tuple[int, int, int | None], ...]
