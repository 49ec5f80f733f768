"""What the doctor finds: one `Finding` for each thing that it looks at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How a finding is judged."""

    OK = "ok"
    #: It costs speed, or makes times less certain.
    WARNING = "warning"
    #: Tuning does not work, or gives wrong results.
    PROBLEM = "problem"
    #: This machine does not tell.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: what was looked at, in a word or three.
        state: how it is judged.
        found: what it is here.
        cost: what it costs; empty where it costs nothing.
        remedy: how to mend it; empty where there is nothing to mend.
    """

    check: str
    state: State
    found: str
    cost: str = ""
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """The finding for scripts, with all fields as text."""
        return {
            "check": self.check,
            "state": self.state.value,
            "found": self.found,
            "cost": self.cost,
            "remedy": self.remedy,
        }


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, State.OK, found)


def warning(check: str, found: str, cost: str, remedy: str) -> Finding:
    """It costs speed or certainty."""
    return Finding(check, State.WARNING, found, cost, remedy)


def problem(check: str, found: str, cost: str, remedy: str) -> Finding:
    """Tuning does not work so."""
    return Finding(check, State.PROBLEM, found, cost, remedy)


def unknown(check: str, found: str) -> Finding:
    """This machine does not tell; the text says why."""
    return Finding(check, State.UNKNOWN, found)


def listed(words: list[str]) -> str:
    """``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def of_bytes(count: float) -> str:
    """A number of bytes with a unit that fits."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
