"""Files in which a system describes itself, below a root that a test may choose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
        """Whole number of a file; None for other contents."""
        try:
            return int(self.line(path))
        except ValueError:
            return None

    def names(self, folder: str) -> list[str]:
        """Sorted names in a folder; none where it cannot be read."""
        try:
            return sorted(entry.name for entry in self._at(folder).iterdir())
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
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
