"""Checks of options that several tuners have."""

from __future__ import annotations

from loopwright.errors import UsageError


def at_least(name: str, value: int, least: int) -> int:
    """An integer option within its range.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name} must be an integer >= {least}, got {value!r}")
    return value


def share(name: str, value: float) -> float:
    """A number from 0 to 1 as an option.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise UsageError(f"{name} must be a number from 0 to 1, got {value!r}")
    return float(value)


def yes_or_no(name: str, value: bool) -> bool:
    """``value`` when it is True or False.

    Raises:
        UsageError: it is not.
    """
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, got {value!r}")
    return value
