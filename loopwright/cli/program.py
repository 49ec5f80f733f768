"""The name by which this program was called, so that printed commands run when they are pasted."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

_NAME = "loopwright"


def words() -> list[str]:
    """The words by which a shell in this folder starts this very program.

    ``loopwright`` where the shell finds it under that name; else its path as it was called; for
    ``python -m loopwright`` the interpreter and these words; the name where another program calls
    `main`.
    """
    called = Path(sys.argv[0])
    if called.name == "__main__.py" and called.parent.name == _NAME:
        return [_found("python") or _found("python3") or _shortened(sys.executable), "-m", _NAME]
    if called.name != _NAME or not called.is_file():
        return [_NAME]
    found = shutil.which(_NAME)
    if found is not None and os.path.samefile(found, called):
        return [_NAME]
    return [_shortened(str(called))]


def command(words_after: Sequence[str]) -> str:
    """A command line of this program that can be pasted into a shell in this folder."""
    return shlex.join([*words(), *words_after])


def _found(name: str) -> str:
    """The name, where a shell finds the running interpreter under it; else nothing.

    The paths are compared as they are: in a virtual environment both may be links to one file.
    """
    found = shutil.which(name)
    same = found is not None and os.path.abspath(found) == os.path.abspath(sys.executable)
    return name if same else ""


def _shortened(path: str) -> str:
    """A path relative to this folder, if it lies within; a shell needs a slash in it."""
    folder = Path.cwd()
    whole = Path(os.path.abspath(path))
    if not whole.is_relative_to(folder):
        return str(whole)
    inside = str(whole.relative_to(folder))
    return inside if "/" in inside else f"./{inside}"
