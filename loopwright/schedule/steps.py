"""One frozen class per primitive, and its JSON: ``["split", stage, loop, factor, nparts]``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, TypeVar, dataclass_transform

from loopwright.errors import ScheduleError, TensorError, did_you_mean
from loopwright.schedule.state import LayoutDim, StageId
from loopwright.te.tensor_intrin import TensorIntrin


@dataclass(frozen=True, slots=True)
class Step:
    """Base class: ``stage`` is the stage acted on."""

    registry: ClassVar[dict[str, type[Step]]] = {}
    primitive: ClassVar[str] = ""

    stage: StageId

    def to_json(self) -> list[Any]:
        """``[primitive, stage, ...]`` with tuples as lists; last fields that are default are left.

        So a trace from before a field was added reads, and is written, as it was.
        """
        known = fields(self)
        while known and known[-1].default == getattr(self, known[-1].name):
            known = known[:-1]
        return [self.primitive, *(_plain(getattr(self, f.name)) for f in known)]

    @staticmethod
    def from_json(data: Any) -> Step:
        """Inverse of `to_json`.

        Raises:
            ScheduleError: unknown primitive, wrong number of fields, or a field of a wrong type.
        """
        if not isinstance(data, list | tuple) or not data or not isinstance(data[0], str):
            raise ScheduleError(f"trace: a step is a list that begins with its name, got {data!r}")
        cls = Step.registry.get(data[0])
        if cls is None:
            raise ScheduleError(
                f"trace: unknown primitive {data[0]!r}{did_you_mean(data[0], Step.registry)}"
            )
        want = fields(cls)
        least = sum(f.default is MISSING for f in want)
        if not least <= len(data) - 1 <= len(want):
            names = ", ".join(f.name for f in want)
            raise ScheduleError(
                f"trace: {data[0]} takes {len(want)} fields ({names}), got {data[1:]!r}"
            )
        values = [_frozen(v) for v in data[1:]]
        for f, value in zip(want, values, strict=False):
            if not _FITS[str(f.type)](value):
                raise ScheduleError(
                    f"trace: field {f.name!r} of {data[0]} is {value!r}, which is no {f.type}"
                )
        try:
            made = [
                _READ.get(str(f.type), lambda v: v)(v) for f, v in zip(want, values, strict=False)
            ]
        except TensorError as e:
            raise ScheduleError(f"trace: {data[0]}: {e}") from e
        return cls(*made)


_S = TypeVar("_S", bound=Step)


def _is_int(v: Any) -> bool:
    return isinstance(v, int) and not isinstance(v, bool)


def _is_id(v: Any) -> bool:
    return _is_int(v) or isinstance(v, str)


def _is_layout_dim(v: Any) -> bool:
    return _is_digit(v) or _is_expression(v)


def _is_expression(v: Any) -> bool:
    """Whether a value is an expression of `loopwright.schedule.rules.index_map`."""
    if _is_int(v) or isinstance(v, str):
        return _is_int(v) or re.fullmatch(r"i\d+", v) is not None
    if not (isinstance(v, tuple) and len(v) == 3 and _is_expression(v[1])):
        return False
    if v[0] == "+":
        return _is_expression(v[2])
    return (v[0] == "*" and _is_int(v[2])) or (v[0] in ("//", "%") and _is_int(v[2]) and v[2] > 0)


def _is_digit(v: Any) -> bool:
    known = isinstance(v, tuple) and len(v) == 3 and all(_is_int(x) for x in v[:2])
    return known and v[0] >= 0 and (v[2] is None or (_is_int(v[2]) and v[2] > 0))


def _is_axis(v: Any, optional: bool) -> bool:
    known = isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], str)
    return known and (_is_int(v[1]) or (optional and v[1] is None))


def _each(v: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(v, tuple) and all(fits(x) for x in v)


#: Type of a field as it is written -> whether a value from JSON is of this type.
_FITS: dict[str, Callable[[Any], bool]] = {
    "Any": lambda v: not isinstance(v, dict),
    "StageId": _is_id,
    "str": lambda v: isinstance(v, str),
    "int": _is_int,
    "bool": lambda v: isinstance(v, bool),
    "int | None": lambda v: v is None or _is_int(v),
    "tuple[str, ...]": lambda v: _each(v, lambda x: isinstance(x, str)),
    "tuple[StageId, ...]": lambda v: _each(v, _is_id),
    "tuple[tuple[str, int | None], ...]": lambda v: _each(v, lambda x: _is_axis(x, True)),
    "tuple[tuple[str, int], ...]": lambda v: _each(v, lambda x: _is_axis(x, False)),
    "tuple[LayoutDim, ...]": lambda v: _each(v, _is_layout_dim),
    "TensorIntrin": lambda v: isinstance(v, dict),
}
#: Type of a field -> its value from JSON, where that is another.
_READ: dict[str, Callable[[Any], Any]] = {"TensorIntrin": TensorIntrin.from_json}


def _plain(v: Any) -> Any:
    if isinstance(v, TensorIntrin):
        return v.to_json()
    return [_plain(x) for x in v] if isinstance(v, tuple) else v


def _frozen(v: Any) -> Any:
    return tuple(_frozen(x) for x in v) if isinstance(v, list | tuple) else v


@dataclass_transform(frozen_default=True)
def _register(name: str) -> Callable[[type[_S]], type[_S]]:
    def put(cls: type[_S]) -> type[_S]:
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
    """Bind a loop to a thread axis, which may have been declared with an extent."""

    loop: str
    tag: str
    extent: int | None = None


@_register("env_threads")
class EnvThreads(Step):
    """Launch the kernel of a root stage with thread axes: ``(tag, extent or None)``."""

    axes: tuple[tuple[str, int | None], ...]


@_register("set_store_predicate")
class SetStorePredicate(Step):
    """Of threads that reduce together, the one with these indices stores: ``(tag, index)``."""

    equal: tuple[tuple[str, int], ...]


@_register("pragma")
class Pragma(Step):
    """Attach a hint to a loop."""

    loop: str
    key: str
    value: Any


@_register("prefetch")
class Prefetch(Step):
    """In each iteration of a loop, prefetch what the one ``offset`` later reads of a tensor."""

    loop: str
    source: StageId
    offset: int
    value_index: int = 0


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


@_register("create_group")
class CreateGroup(Step):
    """Move stages together: those between ``inputs`` and the stage and the other ``outputs``."""

    outputs: tuple[StageId, ...]
    inputs: tuple[StageId, ...]
    include_inputs: bool = False


@_register("cache_read")
class CacheRead(Step):
    """Copy an output of the stage into ``scope`` for ``readers``."""

    scope: str
    readers: tuple[StageId, ...]
    value_index: int = 0


@_register("cache_write")
class CacheWrite(Step):
    """Compute the stage (all its outputs) in ``scope`` and copy the result."""

    scope: str


@_register("rfactor")
class RFactor(Step):
    """Compute partial results along a reduction loop, which becomes their axis ``factor_axis``."""

    loop: str
    factor_axis: int


@_register("transform_layout")
class TransformLayout(Step):
    """Order the dimensions of the stage's buffer; see `loopwright.schedule.state.LayoutDim`."""

    dims: tuple[LayoutDim, ...]
    pad_value: Any = None


@_register("store_at")
class StoreAt(Step):
    """Let the buffer exist inside a loop of ``parent``, around the loop where it is computed."""

    parent: StageId
    loop: str


@_register("store_root")
class StoreRoot(Step):
    """Let the buffer exist around all loops of the stage in which it is computed."""


@_register("double_buffer")
class DoubleBuffer(Step):
    """Fill one half of the buffer while the other is read."""


@_register("set_scope")
class SetScope(Step):
    """Put the stage's buffer into another memory scope."""

    scope: str


@_register("storage_align")
class StorageAlign(Step):
    """Ask for strides of ``k * factor + offset`` elements in a dimension of the stage's buffer."""

    dim: int
    factor: int
    offset: int


@_register("tensorize")
class Tensorize(Step):
    """Let an intrinsic do what stands inside a loop."""

    loop: str
    intrin: TensorIntrin
