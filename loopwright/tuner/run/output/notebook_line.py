"""Progress in a notebook: one place in the output of a cell, drawn anew."""

from __future__ import annotations

import importlib
import sys
from typing import Any


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook; IPython is not loaded to find out."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class NotebookLine:
    """Some lines of text in the output of a cell, which are replaced by the next."""

    def __init__(self) -> None:
        self._handle: Any = None  # of IPython, which need not be installed

    def show(self, text: str) -> None:
        from loopwright.presenting import html_text

        data = {"text/plain": text, "text/html": html_text(text)}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)
