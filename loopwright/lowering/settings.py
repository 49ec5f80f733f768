"""The settings of a `PassContext`: their keys, and the values that each of them takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loopwright.errors import UsageError, did_you_mean
from loopwright.ir.stmt import Func

#: Phases of the pipeline, after each of which `add_lower_pass` may put passes.
PHASES = range(4)
#: A pass to run after a phase of the pipeline.
AddedPass = tuple[int, Callable[[Func], Func]]
#: The value of a setting.
ConfigValue = bool | int | float | Sequence[AddedPass]


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def is_count(value: object) -> bool:
    """Whether a value is an integer of 0 or more; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _are_added_passes(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(x, list | tuple) and len(x) == 2 and _is_phase(x[0]) and callable(x[1])
        for x in value
    )


def _is_phase(value: object) -> bool:
    return is_count(value) and value in PHASES


@dataclass(frozen=True, slots=True)
class _Setting:
    """Values that a key of ``config`` takes."""

    allowed: str  #: the values, in words
    fits: Callable[[object], bool]
    #: Whether programs depend on it, so that other processes must know it.
    changes_program: bool = False
    #: The value that makes the same program as none.
    default: bool | int | None = None


_SETTINGS = {
    "add_lower_pass": _Setting("a list of (phase 0 to 3, pass)", _are_added_passes),
    "verify": _Setting("True or False", _is_flag),
    "partition_cap": _Setting("a whole number of 0 or more", is_count, True, None),
    "disable_vectorize": _Setting("True or False", _is_flag, True, False),
    "instrument_bound_checkers": _Setting("True or False", _is_flag, True, False),
    "code_limit": _Setting("a whole number of 0 or more", is_count, True, None),
    "unroll_max_step": _Setting("a whole number of 0 or more", is_count, True, 0),
    "max_error": _Setting("a number of 0 or more", _is_share),
}
#: Passes that run only where a setting asks for them.
ON_REQUEST = {
    "InstrumentBoundCheckers": "instrument_bound_checkers",
    "SkipVectorize": "disable_vectorize",
}


def check_setting(key: str, value: ConfigValue) -> tuple[str, ConfigValue]:
    """A setting under its key without ``tir.``; an unknown key is an error with the nearest one."""
    short = str(key).removeprefix("tir.")
    if short not in _SETTINGS:
        raise UsageError(
            f"PassContext: unknown config key {key!r}{did_you_mean(short, _SETTINGS)}; "
            f"keys are {', '.join(_SETTINGS)}"
        )
    setting = _SETTINGS[short]
    if not setting.fits(value):
        raise UsageError(f"PassContext: config {key!r} must be {setting.allowed}, got {value!r}")
    return short, value


def changes_program(key: str, value: ConfigValue) -> bool:
    """Whether a setting makes programs differ from those without it."""
    setting = _SETTINGS[key]
    return setting.changes_program and value != setting.default
