"""Options of tuners, each declared once with its default, its check and its meaning.

The constructor of a tuner, its docstring, the header of a log and the command line follow from
them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from loopwright.errors import UsageError, did_you_mean

T = TypeVar("T")
#: Returns the value of an option of this name, or raises `UsageError`.
Check = Callable[[str, T], T]


def option(
    default: T,
    meaning: str,
    check: Check[T] | None = None,
    *,
    keyword_only: bool = False,
    recorded: bool = True,
    shown: bool = True,
) -> T:
    """Declare one option, as the default of a field of a `TunerOptions`.

    ``recorded`` options are in the header of a log, since proposals depend on them; the command
    line offers ``shown`` ones, not those that only AutoTVM's scripts pass.
    """
    metadata = {"meaning": meaning, "check": check, "recorded": recorded, "shown": shown}
    field: T = dataclasses.field(default=default, kw_only=keyword_only, metadata=metadata)
    return field


@dataclass(frozen=True)
class TunerOptions:
    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check = field.metadata["check"]
            if check is not None:
                value = check(field.name, getattr(self, field.name))
                object.__setattr__(self, field.name, value)

    @classmethod
    def read(cls, positional: Sequence[object], named: Mapping[str, object]) -> Self:
        names = [field.name for field in dataclasses.fields(cls)]
        for name in named:
            if name not in names:
                listed = f"it takes {', '.join(names)}" if names else "it takes none"
                raise TypeError(f"unknown option {name!r}{did_you_mean(name, names)}; {listed}")
        make: Callable[..., Self] = cls
        return make(*positional, **named)

    @classmethod
    def names(cls) -> list[str]:
        """Options that the command line offers."""
        return [field.name for field in dataclasses.fields(cls) if field.metadata["shown"]]

    @classmethod
    def text(cls) -> str:
        return "\n".join(
            f"    {field.name}: {field.metadata['meaning']} Default {field.default!r}."
            for field in dataclasses.fields(cls)
        )

    def recorded(self) -> dict[str, Any]:
        fields = dataclasses.fields(self)
        return {f.name: getattr(self, f.name) for f in fields if f.metadata["recorded"]}


def at_least(least: int) -> Check[int]:
    def check(name: str, value: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{name} must be an integer >= {least}, got {value!r}")
        return value

    return check


def optional(check: Check[T]) -> Check[T | None]:
    return lambda name, value: None if value is None else check(name, value)


def share(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise UsageError(f"{name} must be a number from 0 to 1, got {value!r}")
    return float(value)


def yes_or_no(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, got {value!r}")
    return value
