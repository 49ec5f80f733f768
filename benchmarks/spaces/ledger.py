"""What is kept while a space is measured: built objects and samples, in files that only grow.

A run that was stopped anywhere goes on where it stood: a line that was cut off is passed over, and
what it said is measured again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Lines:
    """JSON lines, appended and read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        if self._file.tell() and not path.read_bytes().endswith(b"\n"):
            self._file.write(b"\n")  # closes a line that was cut off

    def append(self, data: dict[str, Any]) -> None:
        """Write one line."""
        self._file.write(json.dumps(data, separators=(",", ":")).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file; what it says can still be read."""
        self._file.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in self.path.read_bytes().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue  # cut off


class Ledger:
    """The folder of one space; a context manager that closes its files.

    Attributes:
        builds: a line per point: ``index``, and ``object`` with its ``manifest``, or ``same`` (the
            index of a point with equal code), or ``error``.
        samples: a line per point and pass: ``index``, ``pass``, ``times``, ``dropped``, ``error``.
        finals: a line per finalist and round: ``index``, ``round``, ``seconds``.
        runs: a line per command: what was run, when, with which sources.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.builds = Lines(folder / "builds.jsonl")
        self.samples = Lines(folder / "samples.jsonl")
        self.finals = Lines(folder / "finals.jsonl")
        self.runs = Lines(folder / "runs.jsonl")
        self._objects = (folder / "objects.bin").open("a+b")

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *exc: object) -> None:
        for lines in (self.builds, self.samples, self.finals, self.runs):
            lines.close()
        self._objects.close()

    def put_object(self, data: bytes) -> tuple[int, int]:
        """Keep an object file; returns where."""
        self._objects.seek(0, 2)
        at = self._objects.tell()
        self._objects.write(data)
        self._objects.flush()
        return at, len(data)

    def get_object(self, place: tuple[int, int]) -> bytes:
        """An object file that was kept."""
        at, length = place
        self._objects.seek(at)
        return self._objects.read(length)
