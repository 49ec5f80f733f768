"""Limits of the shell (``ulimit``) that a run may hit."""

from __future__ import annotations

from collections.abc import Mapping

from loopwright.inspection.doctor.finding import Finding, listed, of_bytes, ok, unknown, warning

#: Name in Python's `resource`, what a shell calls it, what it limits, whether it counts bytes, and
#: the least that a run needs.
_LIMITS = (
    ("RLIMIT_CPU", "-t", "seconds of CPU time", False, 1 << 30),
    ("RLIMIT_AS", "-v", "of address space", True, 16 << 30),
    ("RLIMIT_DATA", "-d", "of data", True, 4 << 30),
    ("RLIMIT_FSIZE", "-f", "in a file", True, 1 << 30),
    ("RLIMIT_NOFILE", "-n", "open files", False, 256),
    ("RLIMIT_NPROC", "-u", "processes and threads of this user", False, 256),
)
#: Limits to ask for, where a system grants no unlimited number.
_COUNTS = {"RLIMIT_NOFILE": 4096, "RLIMIT_NPROC": 4096}


def user_limits(limits: Mapping[str, int | None]) -> list[Finding]:
    """Judge the limits of this process, by their names in Python's `resource`, None for no limit;
    and report the memory that it may lock.
    """
    if not limits:
        return [unknown("ulimit", "the system has no such limits, or does not tell")]
    low = [
        (
            f"{of_bytes(value) if is_bytes else value} {what} (ulimit {letter})",
            f"ulimit {letter} {_COUNTS.get(name, 'unlimited')}",
        )
        for name, letter, what, is_bytes, least in _LIMITS
        if (value := limits.get(name)) is not None and value < least
    ]
    return [_low(low) if low else ok("ulimit", "no limit that a run would hit"), _locked(limits)]


def _low(low: list[tuple[str, str]]) -> Finding:
    return warning(
        "ulimit",
        f"only {listed([text for text, _ in low])}",
        "a run, or its builders, may be ended or refused in the middle",
        f"raise it before the start: {'; '.join(command for _, command in low)} "
        "(or ask whoever runs the machine)",
    )


def _locked(limits: Mapping[str, int | None]) -> Finding:
    value = limits.get("RLIMIT_MEMLOCK")
    if "RLIMIT_MEMLOCK" not in limits:
        return unknown("memory lock", "the system does not tell")
    much = "any amount" if value is None else of_bytes(value)
    return ok("memory lock", f"{much} may be locked (ulimit -l); kernels for the CPU lock none")


def present_limits() -> dict[str, int | None]:
    """Limits of this process by their names in Python's `resource`; None for no limit."""
    try:
        import resource
    except ImportError:  # a system that has none
        return {}
    names = [name for name, *_ in _LIMITS] + ["RLIMIT_MEMLOCK"]
    found: dict[str, int | None] = {}
    for name in names:
        if (which := getattr(resource, name, None)) is not None:
            soft = resource.getrlimit(which)[0]
            found[name] = None if soft == resource.RLIM_INFINITY else soft
    return found
