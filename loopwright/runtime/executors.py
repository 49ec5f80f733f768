"""The room `loopwright.executors` by its older name, which documents and scripts use."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    executors = importlib.import_module("loopwright.executors")
    if name in executors.__all__ or name == "__all__":
        return getattr(executors, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(importlib.import_module("loopwright.executors").__all__)
