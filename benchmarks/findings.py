"""Rows of a table that are written as they come, so that a run may be stopped and go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loopwright.env import machine


class Findings:
    """Rows of the table, kept in a file from one run to the next.

    Args:
        path: of the file.
        made_with: what must be the same in a former run; of another one nothing is kept.

    Attributes:
        rows: in the order in which they were measured.
    """

    def __init__(self, path: Path, made_with: dict[str, Any]) -> None:
        self._path, self._made_with = path, made_with
        self.rows: list[dict[str, Any]] = []
        former = json.loads(path.read_text()) if path.exists() else {}
        if all(former.get(key) == value for key, value in made_with.items()):
            self.rows = former["rows"]

    def has(self, name: str) -> bool:
        """Whether an expression was measured, well or not."""
        return any(r["what"] == name for r in self.rows)

    def add(self, found: dict[str, Any]) -> None:
        """Keep a row, in place of an older one."""
        self.rows = [*(r for r in self.rows if r["what"] != found["what"]), found]
        made = {"machine": machine(), **self._made_with, "rows": self.rows}
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(made, indent=1) + "\n")
        new.replace(self._path)
