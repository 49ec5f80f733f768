"""Times and speeds in the words that reports use."""

from __future__ import annotations

import math

_UNITS = ("s", "ms", "us", "ns")


def time_text(seconds: float) -> str:
    """Time per call with four digits and a fitting unit, such as ``153.2 us``."""
    exponent = min(3, max(0, -math.floor(math.log10(seconds) / 3)))
    return f"{seconds * 1000**exponent:.4g} {_UNITS[exponent]}"


def speed_text(seconds: float, flop: int) -> str:
    """Speed of a call in GFLOP/s, or its time where ``flop`` is 0, unknown."""
    return f"{flop / seconds / 1e9:.4g} GFLOP/s" if flop else time_text(seconds)


def duration_text(seconds: float) -> str:
    """Duration as ``42s``, ``3m05s``, ``2h07m`` or ``3d04h``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def threads_text(count: int) -> str:
    """Number of threads, as ``2 threads``; empty for 0, which stands for an unknown number."""
    return f"{count} thread{'s' * (count != 1)}" if count else ""
