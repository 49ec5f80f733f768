"""The terminal: lines that are safe to print, verbosity, and commands that can be pasted."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopwright.errors import UsageError
from loopwright.presenting import harmless, harmless_lines

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["harmless", "harmless_lines"]

_NAME = "loopwright"
#: Loggers that are shown: our own, and the one on which AutoTVM's users look for trials.
_LOGGERS = ("loopwright", "autotvm")
#: Longer lines are hard to read, however wide the terminal is.
_WIDEST = 100


def echo(text: str, *, err: bool = False) -> None:
    """Print lines that may hold text of a log or file."""
    click.echo(harmless_lines(text), err=err)


def announce(text: str) -> None:
    """Print a message beside the result, on standard error."""
    echo(text, err=True)


def paragraph(text: str, indent: int = 0, *, first: str = "") -> list[str]:
    """A text in lines as wide as the terminal (COLUMNS, else 80), 100 characters at most; longer
    words stay whole. ``indent`` blanks stand before each line but the first, which begins with
    ``first``.
    """
    return folded(text, min(_WIDEST, shutil.get_terminal_size((80, 24)).columns), indent, first)


def folded(text: str, width: int, indent: int = 0, first: str = "") -> list[str]:
    """A text in lines of a width, 40 at least, as `paragraph` has them."""
    return textwrap.wrap(
        text,
        max(40, width),
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def program_words() -> list[str]:
    """The words by which a shell in this folder starts this very program. ``loopwright`` where the
    shell finds it under that name; else its path as it was called; for ``python -m loopwright`` the
    interpreter and these words; the name where another program calls `main`.
    """
    called = Path(sys.argv[0])
    if called.name == "__main__.py" and called.parent.name == _NAME:
        # Paths are compared as they are: in a virtual environment both may be links to one file.
        here = os.path.abspath(sys.executable)
        paths = {n: shutil.which(n) for n in ("python", "python3")}
        names = [n for n, path in paths.items() if path and os.path.abspath(path) == here]
        return [next(iter(names), _relative(sys.executable)), "-m", _NAME]
    if called.name != _NAME or not called.is_file():
        return [_NAME]
    on_path = shutil.which(_NAME)
    if on_path is not None and os.path.samefile(on_path, called):
        return [_NAME]
    return [_relative(str(called))]


def program_name() -> str:
    return shlex.join(program_words())


def command_line(words: Sequence[str]) -> str:
    """A command line of this program that can be pasted into a shell in this folder."""
    return shlex.join([*program_words(), *words])


def _relative(path: str) -> str:
    """A path relative to this folder, if it lies within; a shell needs a slash in it."""
    folder, absolute = Path.cwd(), Path(os.path.abspath(path))
    if not absolute.is_relative_to(folder):
        return str(absolute)
    inside = str(absolute.relative_to(folder))
    return inside if "/" in inside else f"./{inside}"


class Verbosity(IntEnum):
    """The output besides results and errors."""

    QUIET = -1  # nothing
    NORMAL = 0  # progress, notes and advice
    ROUNDS = 1  # also what the package reports at INFO: the start, each round and the end of a run
    TRIALS = 2  # also what it reports at DEBUG: each trial


def split_verbosity(args: Sequence[str]) -> tuple[Verbosity, list[str]]:
    """Take ``-v``, ``-vv``, ``--verbose`` and ``--quiet`` out of a command line, up to ``--``."""
    end = list(args).index("--") if "--" in args else len(args)
    louder = [word for word in args[:end] if re.fullmatch("-v+|--verbose", word)]
    levels = sum(1 if word == "--verbose" else len(word) - 1 for word in louder)
    quiet = "--quiet" in args[:end]
    if quiet and louder:
        raise UsageError("--quiet and -v contradict each other; give one of them")
    rest = [word for word in args[:end] if word not in louder and word != "--quiet"]
    level = Verbosity.QUIET if quiet else Verbosity(min(levels, Verbosity.TRIALS))
    return level, [*rest, *args[end:]]


def verbosity() -> Verbosity:
    """The verbosity of the command line that is being carried out."""
    context = click.get_current_context(silent=True)
    level = None if context is None else context.obj
    return level if isinstance(level, Verbosity) else Verbosity.NORMAL


def progress_console(*, stderr: bool) -> Console:
    from rich.console import Console

    level, quiet = verbosity(), verbosity() == Verbosity.QUIET
    # Lines of the log between two refreshes would tear a live display apart.
    plain = False if level > Verbosity.NORMAL else None
    return Console(highlight=False, stderr=stderr, quiet=quiet, force_terminal=plain)


def result_console(*, stderr: bool) -> Console:
    """The console for results: with ``--quiet`` too, unless they go to standard output as JSON."""
    from rich.console import Console

    silent = stderr and verbosity() == Verbosity.QUIET
    return Console(highlight=False, stderr=stderr, quiet=silent)


@contextmanager
def log_shown(level: Verbosity) -> Iterator[None]:
    """Show the package's ``logging`` on standard error; without ``-v`` Python prints warnings."""
    if level <= Verbosity.NORMAL:
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_HarmlessFormatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if level == Verbosity.ROUNDS else logging.DEBUG)
    try:
        yield
    finally:
        for logger, old in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(old)


class _HarmlessFormatter(logging.Formatter):
    """Formats lines in which a name from a log or a template cannot steer the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return harmless(super().format(record).replace("\n", " ").replace("\t", "  "))
