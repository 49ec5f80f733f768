"""Findings of the doctor: one `Finding` for each check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Judgement of a finding."""

    OK = "ok"
    #: It costs speed, or makes times less certain.
    WARNING = "warning"
    #: Tuning does not work, or gives wrong results.
    PROBLEM = "problem"
    #: This machine does not tell.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    check: str  # its subject, in one to three words
    state: State
    found: str  # state of this machine
    cost: str = ""  # empty where it costs nothing
    remedy: str = ""  # empty where there is nothing to mend

    def to_json(self) -> dict[str, str]:
        return {
            "check": self.check,
            "state": self.state.value,
            "found": self.found,
            "cost": self.cost,
            "remedy": self.remedy,
        }


def ok(check: str, found: str) -> Finding:
    """Finding without fault."""
    return Finding(check, State.OK, found)


def warning(check: str, found: str, cost: str, remedy: str) -> Finding:
    """Finding that costs speed or certainty."""
    return Finding(check, State.WARNING, found, cost, remedy)


def problem(check: str, found: str, cost: str, remedy: str) -> Finding:
    """Finding that keeps tuning from working."""
    return Finding(check, State.PROBLEM, found, cost, remedy)


def unknown(check: str, found: str) -> Finding:
    """Finding about which this machine does not tell; the text says why."""
    return Finding(check, State.UNKNOWN, found)


def listed(words: list[str]) -> str:
    """``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def of_bytes(count: float) -> str:
    """Number of bytes with a fitting unit."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
