"""Inputs of measurements as their record names them, where no task can be made of it here."""

from __future__ import annotations

from typing import NoReturn

from loopwright.errors import InstantiationError, TaskError
from loopwright.records import Json, Record
from loopwright.target import KINDS, KindName, Target
from loopwright.task import (
    AnnotateEntity,
    ConfigEntity,
    ConfigSpace,
    Entity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
    Task,
    Template,
    schedule_for,
)


class RecordedTarget(Target):
    """The target of a record, of any kind and for any machine; its text is that of the record."""

    def __init__(self, record: Record) -> None:
        self._named = {"kind": record.kind, **record.target}
        options = dict(self._named)
        kind = options.pop("kind")
        keys = options.pop("keys", None)
        usual = KINDS[kind].keys if kind in KINDS else (kind,)
        self.kind, self.host = KindName(kind), None
        self.keys = tuple(map(str, keys)) if isinstance(keys, list) else usual
        self.model = str(options.pop("model", "unknown"))
        self.options = options
        self._text = target_text(record)

    @property
    def canonical(self) -> dict[str, Json]:
        return dict(self._named)

    def __str__(self) -> str:
        return self._text


def target_text(record: Record) -> str:
    """The target string of a line of AutoTVM; else one of the options that the record names."""
    line = record.extra.get("autotvm")
    if isinstance(line, dict) and isinstance(line.get("target"), str):
        return str(line["target"])
    options = {name: value for name, value in record.target.items() if name != "kind"}
    texts = {n: ",".join(map(str, v)) if isinstance(v, list) else v for n, v in options.items()}
    return " ".join([record.kind, *(f"-{n.replace('_', '-')}={v}" for n, v in texts.items())])


class _Unknown(ConfigSpace):
    """A space of which no knob and no point is known."""

    @property
    def dims(self) -> tuple[int, ...]:
        return (0,)


class RecordedTask(Task):
    """Name, arguments and target of a record, without a space; ``why`` is the reason why there is
    no task of them here, and what running the template raises."""

    def __init__(self, record: Record, why: str) -> None:
        def refuse(*args: Json) -> NoReturn:
            raise InstantiationError(f"{self}: {why}")

        self.template = Template(record.op, refuse, schedule_for)
        self.name, self.why = record.op, why
        self.args = tuple(map(_tuples, record.args))
        self.target = RecordedTarget(record)
        self.config_space = _Unknown()
        self.config_space.freeze()
        self.alias, self.dag_hash = record.task, record.dag
        self.key = record.expression or record.task

    @property
    def flop(self) -> int:
        raise TaskError(f"{self}: {self.why}")

    def recorded(self, record: Record) -> ConfigEntity:
        """The configuration of a record, by the number that the line has for it."""
        line = record.extra.get("autotvm")
        index = line.get("index") if isinstance(line, dict) else None
        entities = {name: _entity(value) for name, value in record.config.items()}
        return ConfigEntity(self.config_space, entities, index if type(index) is int else None)


def _tuples(value: Json) -> Json:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _entity(value: Json) -> Entity:
    """The choice with a value, whose kind of knob follows from its form."""
    parts: list[Json] = value if isinstance(value, list) and value else [None]
    if all(type(part) is int for part in parts):
        if 0 not in parts:
            return SplitEntity(parts)
        if sorted(parts) == list(range(len(parts))):
            return ReorderEntity(parts)
    if all(type(part) in (str, int) for part in parts):
        return AnnotateEntity(parts)
    return OtherOptionEntity(value)
