"""Comparison of a record with what is built here, field by field.

A record of another machine is used where its kernel was compiled for the CPU that is compiled for
now, and this machine has the instructions: ``-mcpu=core-avx2`` is the same code everywhere. Its
time is another machine's, so such a record is compatible and never exact.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from loopwright.errors import TargetError
from loopwright.records import Json, Record, build_hash, device_of, environment, once_for_equal
from loopwright.records import threads as threads_of
from loopwright.runtime import facts_here, models_here
from loopwright.target import KINDS, Target, is_of_architecture, same_code

#: Parts of a canonical target that are compared on their own, or that change no time.
_APART = frozenset({"kind", "mcpu", "mattr", "model", "mtriple", "num_threads", "keys", "host"})
_SHOWN = 40


class FieldDifference(NamedTuple):
    """A field in which a record differs from what is built here."""

    field: str
    then: Json
    now: Json

    @property
    def differs(self) -> bool:
        """Whether both sides are known and differ."""
        return bool(self.then and self.now) and self.then != self.now

    def __str__(self) -> str:
        return f"{self.field}: {_show(self.then)} in the record, {_show(self.now)} here"


@dataclass(frozen=True)
class Fit:
    """Differences between a record and what is built here."""

    #: Differences of hardware, which keep it from being used.
    refused: tuple[FieldDifference, ...]
    #: Differences that may change its time; another machine that ran the same code is one.
    others: tuple[FieldDifference, ...]
    #: ``"same"``, ``"other"``, or ``"unknown"`` where the record does not say.
    hardware: str

    @property
    def same_options(self) -> bool:
        """True when target options and threads are equal."""
        return all(d.field == "compiler" for d in self.others)

    @property
    def exact(self) -> bool:
        """True when nothing differs and the hardware is known."""
        return not self.refused and not self.others and self.hardware == "same"


class Here:
    """A target on this machine and the settings of its `PassContext`, to compare records with."""

    def __init__(self, target: Mapping[str, Json], passes: Mapping[str, Json]) -> None:
        self.target = target
        self.env = environment(facts_here(str(target.get("kind", ""))))
        self.threads = threads_of(target, self.env)
        self.passes = passes

    @property
    def build(self) -> str:
        """Hash of the compiler; read only where a record has one to compare."""
        return build_hash(self.target, self.passes)

    def fit(self, record: Record) -> Fit:
        """Compare a record; a field that it does not state does not differ."""
        machine = [d for d in self._machine(record) if d.differs]
        code = [d for d in self._code(record) if d.differs]
        # Whether the record and this machine both name the hardware.
        named = device_of(self.env) if device_of(record.env) else record.env.get("cpu")
        hardware = "other" if machine or code else "same" if named else "unknown"
        others = self._others(record)
        if machine and not code and record.target.get("mcpu") and self._runs_here:
            return Fit((), (*machine, *others), hardware)
        return Fit((*machine, *code), tuple(others), hardware)

    def fits(self, records: Sequence[Record]) -> list[Fit]:
        """`fit` of many records; those that were made under the same conditions share one."""
        return once_for_equal(self.fit, records, ("target", "env", "threads", "build"))

    @cached_property
    def _runs_here(self) -> bool:
        """Whether this machine has the instructions that code for the target may use."""
        try:
            return not Target.from_canonical(self.target).missing
        except TargetError:  # a CPU that this LLVM does not know
            return False

    def _machine(self, record: Record) -> list[FieldDifference]:
        if then := device_of(record.env):  # a device of its model will do, on any host
            if then.get("name") in models_here(str(self.target.get("kind", ""))):
                return []
            return [FieldDifference("device", then.get("name"), device_of(self.env).get("name"))]
        return [
            FieldDifference("CPU", record.env.get("cpu"), self.env.get("cpu")),
            FieldDifference("instruction set", record.env.get("isa"), self.env.get("isa")),
        ]

    def _code(self, record: Record) -> list[FieldDifference]:
        then, now = record.target, self.target
        model = FieldDifference("model", then.get("model"), now.get("model"))
        if _cpu(then) != _cpu(now) and self._runs_here and same_code(_cpu(then), _cpu(now)):
            return [model]
        triple = str(then.get("mtriple") or "")
        if "mcpu" not in now or is_of_architecture(triple):  # on a device it says nothing
            triple = ""
        return [
            FieldDifference("target CPU", then.get("mcpu"), now.get("mcpu")),
            FieldDifference("target features", _features(then), _features(now)),
            FieldDifference("target triple", triple, platform.machine()),
            model,
        ]

    def _others(self, record: Record) -> list[FieldDifference]:
        then, now = record.target, self.target
        differences = [
            FieldDifference(name, then[name], now.get(name))
            for name in then
            if name not in _APART and then[name] != now.get(name)
        ]
        if bool(then.get("model")) != bool(now.get("model")):
            differences.append(FieldDifference("model", then.get("model"), now.get("model")))
        if not record.env and _keys(then) != _keys(now):  # what AutoTVM says of a machine
            differences.append(FieldDifference("keys", _keys(then), _keys(now)))
        if record.threads and record.threads != self.threads:
            differences.append(FieldDifference("threads", record.threads, self.threads))
        if record.build and record.build != self.build:
            differences.append(FieldDifference("compiler", record.build, self.build))
        return differences


def _features(target: Mapping[str, Json]) -> Json:
    """Features of a target; those that follow from the name of its CPU are named as such."""
    features = target.get("mattr")
    return "those of the CPU" if features == "" else features


def _keys(target: Mapping[str, Json]) -> list[str]:
    """Families of a target, that of its ``-device`` first."""
    kind, keys = KINDS.get(str(target.get("kind"))), target.get("keys")
    if not isinstance(keys, list):
        keys = () if kind is None else kind.keys
    return list(dict.fromkeys(str(key) for key in (target.get("device"), *keys) if key))


def _cpu(target: Mapping[str, Json]) -> tuple[str, str]:
    """Name and features of the CPU of a target."""
    return str(target.get("mcpu") or ""), str(target.get("mattr") or "")


def _show(value: Json) -> str:
    """A value for people; long lists, such as features of a CPU, are cut."""
    if value is None:
        return "not given"
    text = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
