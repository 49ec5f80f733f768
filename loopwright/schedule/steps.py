"""Base class, registry and JSON of all schedule primitives.

A primitive is one frozen class in `loopwright.schedule.rules`. Its fields are its JSON
(``["split", stage, loop, factor, nparts]``); its methods are its conditions and its effect
(`Step.apply`), its rule that needs extents (`Step.check_bounds`) and its Python text
(`Step.as_python`).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar, dataclass_transform

from loopwright.errors import ScheduleError, TensorError, did_you_mean, shown
from loopwright.schedule.bounds.results import Bounds
from loopwright.schedule.names import Names
from loopwright.schedule.sampled import Sampled
from loopwright.schedule.state import StageId, State, refuse


@dataclass(frozen=True, slots=True)
class FieldType:
    #: Whether a value from JSON, its lists as tuples, is one of this type.
    fits: Callable[[object], bool]
    #: Makes the field's value of the one from JSON.
    read: Callable[[Any], object] = field(default=lambda value: value)
    #: Makes the value for JSON of the field's; tuples become lists afterwards.
    write: Callable[[Any], object] = field(default=lambda value: value)


@dataclass(frozen=True, slots=True)
class Step(ABC):
    """Base class of primitives: ``stage`` is the stage acted on."""

    registry: ClassVar[dict[str, type[Step]]] = {}
    primitive: ClassVar[str] = ""
    field_types: ClassVar[dict[str, FieldType]] = {}
    #: Fields whose number may be one that a step of the trace chose.
    may_be_sampled: ClassVar[tuple[str, ...]] = ()

    stage: StageId

    @abstractmethod
    def apply(self, state: State, t: int) -> State:
        """The state after this step, which is step ``t``.

        Raises:
            ScheduleError: the step is illegal in this state: which loop, why, what to do instead.
        """

    @abstractmethod
    def as_python(self, names: Names) -> str:
        """The call of the surface that makes this step, as Python."""

    def moved_loops(self, before: State) -> Mapping[str, str] | None:
        """Loops of the reduction that go to the stage that the step makes, with their names there.

        The others are gone. None: the step takes none apart.
        """
        return None

    @classmethod  # noqa: B027, most primitives have no such rule
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """Check what steps of this class left in a state, now that extents are known.

        Raises:
            ScheduleError: it cannot be lowered.
        """

    def to_json(self) -> list[Any]:
        """``[primitive, stage, ...]`` with tuples as lists, without last fields that are default.

        So a trace from before a field was added reads, and is written, as it was.
        """
        shown = fields(self)
        while shown and shown[-1].default == getattr(self, shown[-1].name):
            shown = shown[:-1]
        return [self.primitive, *(self._field_json(f.name) for f in shown)]

    def fields_json(self) -> list[Any]:
        """All fields as JSON, those that are default, too."""
        return [self._field_json(f.name) for f in fields(self)]

    def _field_json(self, name: str) -> Any:
        value = getattr(self, name)
        if isinstance(value, Sampled) and name in self.may_be_sampled:
            return {"sampled": [value.step, value.part]}
        return _lists(self.field_types[name].write(value))

    @staticmethod
    def from_json(data: Any) -> Step:
        """Inverse of `to_json`.

        Raises:
            ScheduleError: unknown primitive, wrong number of fields, or a field of a wrong type.
        """
        if not isinstance(data, list | tuple) or not data or not isinstance(data[0], str):
            raise ScheduleError(
                f"trace: a step is a list that begins with its name, got {shown(data)}"
            )
        cls = Step.registry.get(data[0])
        if cls is None:
            near = did_you_mean(data[0], Step.registry)
            raise ScheduleError(f"trace: unknown primitive {shown(data[0])}{near}")
        want = fields(cls)
        least = sum(f.default is MISSING for f in want)
        if not least <= len(data) - 1 <= len(want):
            names = ", ".join(f.name for f in want)
            raise ScheduleError(
                f"trace: {data[0]} takes {len(want)} fields ({names}), got {shown(data[1:])}"
            )
        values = [_tuples(v) for v in data[1:]]
        for f, value in zip(want, values, strict=False):
            sampled = isinstance(value, Sampled) and f.name not in cls.may_be_sampled
            if sampled or not cls.field_types[f.name].fits(value):
                raise ScheduleError(
                    f"trace: field {f.name!r} of {data[0]} is {shown(value)}, which is no "
                    f"{_type(f.type)}"
                )
        try:
            read = [cls.field_types[f.name].read for f in want]
            given: list[Any] = [f(v) for f, v in zip(read, values, strict=False)]
        except TensorError as e:
            raise ScheduleError(f"trace: {data[0]}: {e}") from e
        return cls(*given)


_S = TypeVar("_S", bound=Step)


@dataclass_transform(frozen_default=True)
def register(primitive: str, **types: FieldType) -> Callable[[type[_S]], type[_S]]:
    """Make a class a frozen step and enter it in ``Step.registry`` under its name in traces.

    ``types`` are those of fields whose type is not among `FIELD_TYPES`.
    """

    def enter(cls: type[_S]) -> type[_S]:
        step = dataclass(frozen=True, slots=True)(cls)
        step.primitive = primitive
        step.field_types = {
            f.name: types.get(f.name) or _field_type(primitive, f) for f in fields(step)
        }
        Step.registry[primitive] = step
        return step

    return enter


# ---------------------------------------------------------------- values of fields


def is_int(v: object) -> bool:
    """Whether a value from JSON is a whole number; true and false are none."""
    return isinstance(v, int) and not isinstance(v, bool)


def is_text(v: object) -> bool:
    return isinstance(v, str)


def each(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    """Test of tuples whose members all pass a test."""
    return lambda v: isinstance(v, tuple) and all(map(fits, v))


def optional(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    """Test of values that are None or pass a test."""
    return lambda v: v is None or fits(v)


def pair(
    first: Callable[[object], bool], second: Callable[[object], bool]
) -> Callable[[object], bool]:
    """Test of tuples of two."""
    return lambda v: isinstance(v, tuple) and len(v) == 2 and first(v[0]) and second(v[1])


def is_id(v: object) -> bool:
    return is_int(v) or is_text(v)


#: Types that many primitives use, as they are written in the class. Words of one kind (a scope, a
#: mark) are only known to be texts: the rules refuse those that do not exist.
FIELD_TYPES: Mapping[str, FieldType] = {
    "StageId": FieldType(is_id),
    "str": FieldType(is_text),
    "Scope": FieldType(is_text),
    "MarkKind": FieldType(is_text),
    "int": FieldType(is_int),
    "bool": FieldType(lambda v: isinstance(v, bool)),
    "int | None": FieldType(optional(is_int)),
    "float | None": FieldType(optional(lambda v: isinstance(v, int | float))),
    "PragmaValue": FieldType(lambda v: isinstance(v, str | int | float | None)),
    "tuple[str, ...]": FieldType(each(is_text)),
    "tuple[StageId, ...]": FieldType(each(is_id)),
}


def _field_type(primitive: str, f: Field[Any]) -> FieldType:
    """Type of a field as it is written in the class; a TypeError where `FIELD_TYPES` lacks it."""
    if _type(f.type) not in FIELD_TYPES:
        raise TypeError(
            f"{primitive}: field {f.name!r} is of type {_type(f.type)}; say how it is read and "
            f"written: register({primitive!r}, {f.name}=FieldType(...))"
        )
    return FIELD_TYPES[_type(f.type)]


def _type(annotation: object) -> str:
    """Type as it is written, also where annotations are evaluated."""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _lists(v: Any) -> Any:
    if isinstance(v, Sampled):
        return int(v)
    return [_lists(x) for x in v] if isinstance(v, tuple) else v


def _tuples(v: Any) -> Any:
    if isinstance(v, dict) and set(v) == {"sampled"}:
        return _sampled(v["sampled"])
    return tuple(map(_tuples, v)) if isinstance(v, list | tuple) else v


def _sampled(v: Any) -> Any:
    if not isinstance(v, list) or len(v) != 2 or not all(map(is_int, v)):
        raise ScheduleError(
            f"trace: a sampled number is [step, which of its numbers], got {shown(v)}"
        )
    return Sampled(1, *v)


def resolved(state: State, step: _S) -> _S:
    """The step with sampled numbers replaced by those chosen in this state."""
    changes: dict[str, Any] = {}
    for name in step.may_be_sampled:
        value = getattr(step, name)
        if not isinstance(value, Sampled):
            continue
        chosen = state.samples.get(value.step, ())
        if not 0 <= value.part < len(chosen):
            refuse(
                step.primitive,
                state.steps,
                f"{name} is number {value.part} that step {value.step} chose, and that step chose "
                f"{len(chosen)}; a sampling step comes before those that use it",
            )
        number = chosen[value.part]
        fixed = isinstance(number, int)
        changes[name] = Sampled(number, value.step, value.part) if fixed else number
    return replace(step, **changes) if changes else step
