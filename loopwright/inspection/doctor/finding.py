"""Findings of the doctor, and the system's files that they rest on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class State(StrEnum):
    OK = "ok"
    #: It costs speed, or makes times less certain.
    WARNING = "warning"
    #: Tuning does not work, or gives wrong results.
    PROBLEM = "problem"
    #: This machine does not tell.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    check: str  # its subject, in one to three words
    state: State
    found: str  # state of this machine
    cost: str = ""  # empty where it costs nothing
    remedy: str = ""  # empty where there is nothing to mend

    def to_json(self) -> dict[str, str]:
        return {**vars(self), "state": self.state.value}


def ok(check: str, observation: str) -> Finding:
    return Finding(check, State.OK, observation)


def warning(check: str, observation: str, cost: str, remedy: str) -> Finding:
    return Finding(check, State.WARNING, observation, cost, remedy)


def problem(check: str, observation: str, cost: str, remedy: str) -> Finding:
    return Finding(check, State.PROBLEM, observation, cost, remedy)


def unknown(check: str, observation: str) -> Finding:
    """Finding about which this machine does not tell; the text says why."""
    return Finding(check, State.UNKNOWN, observation)


def listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def of_bytes(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


@dataclass(frozen=True)
class SystemFiles:
    """Reads small files of ``/proc``, ``/sys`` and ``/etc``; unreadable files count as missing."""

    root: Path = Path("/")  # folder that stands for ``/``

    def data(self, path: str) -> bytes | None:
        try:
            return self._at(path).read_bytes()
        except OSError:
            return None

    def text(self, path: str) -> str | None:
        data = self.data(path)
        return None if data is None else data.decode("utf-8", "replace")

    def line(self, path: str) -> str:
        """First line of a file without blanks around it; empty where there is none."""
        lines = (self.text(path) or "").splitlines()
        return lines[0].strip() if lines else ""

    def number(self, path: str) -> int | None:
        try:
            return int(self.line(path))
        except ValueError:
            return None

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(entry.name for entry in self._at(folder).iterdir())
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        try:
            return self._at(path).exists()
        except OSError:
            return False

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")


def numbers_in(text: str) -> list[int]:
    """Numbers of a list such as ``0-3,8``, as the system writes sets of CPUs."""
    numbers: list[int] = []
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last.isdecimal() or not last):
            numbers += range(int(first), int(last or first) + 1)
    return numbers
