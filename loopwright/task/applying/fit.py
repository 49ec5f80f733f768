"""How well a record fits a task here: the two compared field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loopwright.records import Json, Record, build_hash, environment, once_for_equal
from loopwright.records import threads as threads_of

#: Parts of a canonical target that are compared on their own, or that change no time.
_APART = frozenset({"kind", "mcpu", "mattr", "model", "num_threads", "keys", "host"})
_SHOWN = 40


class Difference(NamedTuple):
    """A field in which a record differs from what is built now."""

    field: str
    then: Json
    now: Json

    def __str__(self) -> str:
        return f"{self.field}: {_show(self.then)} in the record, {_show(self.now)} here"


@dataclass(frozen=True)
class Fit:
    """How a record fits.

    Attributes:
        refused: what keeps it from being used: other hardware.
        others: what differs and lets its time be another one here.
        hardware: ``"same"``, ``"other"``, or ``"unknown"`` where the record does not say.
    """

    refused: tuple[Difference, ...]
    others: tuple[Difference, ...]
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
    """What records are compared with: a target on this machine.

    Args:
        target: canonical form of the target.
        passes: settings of the `PassContext` that is built in, as its ``to_json`` gives them.
    """

    def __init__(self, target: Mapping[str, Json], passes: Mapping[str, Json]) -> None:
        self.target = target
        self.env = environment()
        self.threads = threads_of(target, self.env)
        self.passes = passes

    @property
    def build(self) -> str:
        """Hash of the compiler; read only where a record has one to compare."""
        return build_hash(self.target, self.passes)

    def fit(self, record: Record) -> Fit:
        """Compare a record; what it does not say does not differ."""
        refused = [d for d in self._hardware(record) if d.then and d.now and d.then != d.now]
        hardware = "same" if record.env.get("cpu") else "unknown"
        return Fit(tuple(refused), tuple(self._others(record)), "other" if refused else hardware)

    def fits(self, records: Sequence[Record]) -> list[Fit]:
        """`fit` of many records; those that were made under the same conditions share one."""
        return once_for_equal(self.fit, records, ("target", "env", "threads", "build"))

    def _hardware(self, record: Record) -> list[Difference]:
        then, now = record.target, self.target
        return [
            Difference("CPU", record.env.get("cpu"), self.env.get("cpu")),
            Difference("instruction set", record.env.get("isa"), self.env.get("isa")),
            Difference("target CPU", then.get("mcpu"), now.get("mcpu")),
            Difference("target features", then.get("mattr"), now.get("mattr")),
            Difference("model", then.get("model"), now.get("model")),
        ]

    def _others(self, record: Record) -> list[Difference]:
        then, now = record.target, self.target
        found = [
            Difference(name, then[name], now.get(name))
            for name in then
            if name not in _APART and then[name] != now.get(name)
        ]
        if bool(then.get("model")) != bool(now.get("model")):
            found.append(Difference("model", then.get("model"), now.get("model")))
        if record.threads and record.threads != self.threads:
            found.append(Difference("threads", record.threads, self.threads))
        if record.build and record.build != self.build:
            found.append(Difference("compiler", record.build, self.build))
        return found


def _show(value: Json) -> str:
    """A value for people; long lists, such as features of a CPU, are cut."""
    if value is None:
        return "not said"
    text = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
