"""Made-up files of a system."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loopwright.inspection.doctor import SystemFiles


def tree(root: Path, files: Mapping[str, str]) -> SystemFiles:
    """Write files below a folder, which stands for ``/``."""
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return SystemFiles(root)
