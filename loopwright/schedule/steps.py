"""Base class, registry and JSON of all schedule primitives.

A primitive is a frozen class of `loopwright.schedule.primitives`, whose fields are its JSON:
``["split", stage, loop, factor, nparts]``.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, ClassVar, TypeGuard, TypeVar, dataclass_transform

from loopwright.errors import ScheduleError, TensorError, did_you_mean, shown
from loopwright.ir.sizes import Symbol
from loopwright.schedule.bounds.results import Bounds
from loopwright.schedule.state import Sampled, StageId, State, refuse
from loopwright.te import PythonIdentifiers


class TraceNames(PythonIdentifiers):
    """Python identifiers for the stages and loops of a schedule, each used once.

    Axes of a stage are named at the first use of one of its loops, by lines before the call.
    """

    def __init__(self, state: State) -> None:
        super().__init__(("s", "te", "schedule"))
        self.before = self.after = state  #: states before and after the present step
        self.lines: list[str] = []
        self._stages: dict[StageId, str] = {}
        self._loops: dict[tuple[StageId, str], str] = {}
        self._with_axes: set[StageId] = set()

    @property
    def step(self) -> int:
        return self.before.steps

    def tensor(self, sid: StageId) -> str:
        """A stage's tensor: ``C``."""
        if sid not in self._stages:
            self._stages[sid] = self.fresh(self.after.stages[sid].op.name)
        return self._stages[sid]

    def output(self, sid: StageId, index: int) -> str:
        """One of the tensors of a stage: ``C``, or ``C.op.output(1)`` where there are several."""
        several = self.before.stages[sid].op.num_outputs > 1
        return f"{self.tensor(sid)}.op.output({index})" if several else self.tensor(sid)

    def stage(self, sid: StageId) -> str:
        """A stage, or a group of stages, as an object with methods: ``s[C]``, ``group``."""
        name = self.tensor(sid)
        return name if sid in self.before.groups else f"s[{name}]"

    def new_stage(self) -> str:
        return self.tensor(f"s{self.step}")

    def new_group(self) -> str:
        name = self._stages[f"s{self.step}"] = self.fresh("group")
        return name

    def loop(self, sid: StageId, loop: str) -> str:
        if sid not in self._with_axes:
            self._with_axes.add(sid)
            op = self.before.stages[sid].op
            self._name_axes(sid, "a", "axis", len(op.axes))
            self._name_axes(sid, "r", "reduce_axis", len(op.reduce_axes))
        return self._loop(self.after, sid, loop)

    def number(self, v: object) -> str:
        """A number, by its name where a step of the trace chose it."""
        return v.name if isinstance(v, Sampled) else repr(v)

    def _loop(self, state: State, sid: StageId, loop: str) -> str:
        if (sid, loop) not in self._loops:
            self._loops[sid, loop] = self.fresh(state.stages[sid].loops[loop].name)
        return self._loops[sid, loop]

    def _name_axes(self, sid: StageId, prefix: str, attribute: str, count: int) -> None:
        names = [self._loop(self.before, sid, f"{prefix}{d}") for d in range(count)]
        if names:
            self.lines.append(f"    [{', '.join(names)}] = s[{self.tensor(sid)}].op.{attribute}")

    def move(self, sid: StageId, moves: Mapping[str, str]) -> None:
        """Give names to the stage that the present step made, where loops moved there unchanged."""
        for old, loop in self.before.stages[sid].loops.items():
            name = self._loops.pop((sid, old), "") if loop.kind == "reduce" else ""
            if name and moves.get(old) == old:
                self._loops[f"s{self.step}", old] = name
        self._with_axes.discard(sid)


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

    @property
    def verb(self) -> str:
        """Name of the method that makes the step, for messages."""
        return self.primitive

    @abstractmethod
    def apply(self, state: State, t: int) -> State:
        """The state after this step, which is step ``t``.

        Raises:
            IllegalStep: the step is illegal in this state: which loop, why, what to do instead.
        """

    def as_python(self, names: TraceNames) -> str:
        """The call that makes this step, as Python: ``io, ii = s[C].split(i, factor=8)``."""
        arguments = self.arguments(names)  # before the stage: the axes are named first
        return f"{names.stage(self.stage)}.{self.verb}({arguments})"

    def arguments(self, names: TraceNames) -> str:
        """Arguments of a call of a method of the stage that returns nothing, as Python."""
        return ""

    def moved_loops(self, before: State) -> Mapping[str, str] | None:
        """Loops of the reduction that move to the stage that the step makes, with their names.

        The others are gone. None: the step takes none apart.
        """
        return None

    @classmethod  # noqa: B027, most primitives have no such rule
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """Check what steps of this class left in a state, now that extents are known."""

    def to_json(self) -> list[Any]:
        """``[primitive, stage, ...]`` with tuples as lists, without last fields that are default.

        So a trace from before a field was added reads, and is written, as it was.
        """
        written = fields(self)
        while written and written[-1].default == getattr(self, written[-1].name):
            written = written[:-1]
        return [self.primitive, *(self._field_json(f.name) for f in written)]

    def fields_json(self) -> list[Any]:
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
                    f"{_type(f)}"
                )
        try:
            read = [cls.field_types[f.name].read for f in want]
            arguments: list[Any] = [f(v) for f, v in zip(read, values, strict=False)]
        except TensorError as e:
            raise ScheduleError(f"trace: {data[0]}: {e}") from e
        return cls(*arguments)


_S = TypeVar("_S", bound=Step)


@dataclass_transform(frozen_default=True)
def register(primitive: str, **types: FieldType) -> Callable[[type[_S]], type[_S]]:
    """Make a class a frozen step and enter it in ``Step.registry`` under its name in traces.

    ``types`` are those of fields whose type is not among `FIELD_TYPES`.
    """

    def enter(cls: type[_S]) -> type[_S]:
        step = dataclass(frozen=True, slots=True)(cls)
        step.primitive = primitive
        for f in fields(step):
            if f.name not in types and _type(f) not in FIELD_TYPES:
                raise TypeError(
                    f"{primitive}: field {f.name!r} is of type {_type(f)}; say how it is read and "
                    f"written: register({primitive!r}, {f.name}=FieldType(...))"
                )
        step.field_types = {
            f.name: types.get(f.name) or FIELD_TYPES[_type(f)] for f in fields(step)
        }
        no_call = step.as_python is Step.as_python and step.arguments is Step.arguments
        if no_call and len(fields(step)) > len(fields(Step)):
            raise TypeError(f"{primitive}: define arguments (or as_python): calls lose its fields")
        Step.registry[primitive] = step
        return step

    return enter


# ---------------------------------------------------------------- values of fields


def is_int(v: object) -> TypeGuard[int]:
    """Whether a value from JSON is a whole number; true and false are none."""
    return isinstance(v, int) and not isinstance(v, bool)


def at_least(v: object, least: int) -> bool:
    """Whether a number is whole and large enough; a symbol stands for those of many candidates."""
    return isinstance(v, Symbol) or (is_int(v) and v >= least)


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


def _type(f: Field[Any]) -> str:
    """Type of a field as it is written in the class, also where annotations are evaluated."""
    return f.type if isinstance(f.type, str) else inspect.formatannotation(f.type)


def _lists(v: Any) -> Any:
    if isinstance(v, Sampled):
        return int(v)
    return [_lists(x) for x in v] if isinstance(v, tuple) else v


def _tuples(v: Any) -> Any:
    if not isinstance(v, dict) or set(v) != {"sampled"}:
        return tuple(map(_tuples, v)) if isinstance(v, list | tuple) else v
    place = v["sampled"]
    if not isinstance(place, list) or len(place) != 2 or not all(map(is_int, place)):
        raise ScheduleError(
            f"trace: a sampled number is [step, which of its numbers], got {shown(place)}"
        )
    return Sampled(1, *place)


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


#: Most steps of a trace. Those of the operators have less than a hundred.
MAX_STEPS = 1000
#: Most steps that add a stage to the program, all of whose stages each further one must look at.
MAX_ADDED = 200
_ADDING = ("cache_read", "cache_write", "rfactor", "blocked_scan")
MAX_VALUES = 100_000  #: most values in all steps together; an intrinsic has some hundreds
MAX_DEPTH = 200  #: deepest nesting of lists and objects; the expressions of an intrinsic nest in it
MAX_NUMBER = 1 << 40  #: largest number: extents, and products of a few of them, are below
MAX_TEXT = 1000  #: longest text


def check_trace(trace: object) -> None:
    """Refuse JSON that is no list of steps of reasonable size, naming the step and the limit."""
    if not isinstance(trace, list | tuple):
        raise ScheduleError(f"trace: a trace is a list of steps, got a {type(trace).__name__}")
    if len(trace) > MAX_STEPS:
        raise ScheduleError(f"trace: {len(trace)} steps, and at most {MAX_STEPS} are read")
    added = sum(isinstance(x, list | tuple) and len(x) > 0 and x[0] in _ADDING for x in trace)
    if added > MAX_ADDED:
        raise ScheduleError(f"trace: {added} steps add a stage, and at most {MAX_ADDED} are read")
    # Without recursion, so that no number, depth or length in a file costs more than a message.
    waiting: list[tuple[int, object, int]] = [(t, step, 0) for t, step in enumerate(trace)][::-1]
    values = 0
    while waiting:
        t, x, depth = waiting.pop()
        values += 1
        if values > MAX_VALUES:
            raise ScheduleError(f"trace: step {t}: more than {MAX_VALUES} values in all steps")
        if depth > MAX_DEPTH:
            raise ScheduleError(f"trace: step {t}: its lists nest deeper than {MAX_DEPTH}")
        if isinstance(x, list | tuple):
            waiting += [(t, v, depth + 1) for v in x]
        elif isinstance(x, dict):
            waiting += [(t, v, depth + 1) for pair in x.items() for v in pair]
        elif reason := _refused(x):
            raise ScheduleError(f"trace: step {t}: {reason}")


def _refused(x: object) -> str:
    """Reason why a value that holds no others has no place in a trace; or ''."""
    match x:
        case None | bool():
            return ""
        case str():
            return f"a text of {len(x)} characters, at most {MAX_TEXT}" * (len(x) > MAX_TEXT)
        case int():
            return f"a number of more than {MAX_NUMBER}" * (abs(x) > MAX_NUMBER)
        case float():
            return f"the number {x}" * (not math.isfinite(x))
    return f"a {type(x).__name__}, which JSON does not have"
