"""The output of the command line: ``-v``, ``-vv`` and ``--quiet``, anywhere among the words."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

import click

from loopwright.cli.harmless import harmless
from loopwright.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

#: Loggers that are shown: our own, and the one on which AutoTVM's users look for trials.
_LOGGERS = ("loopwright", "autotvm")


class Verbosity(IntEnum):
    """The output besides results and errors."""

    #: Nothing.
    QUIET = -1
    #: Progress, notes and advice.
    NORMAL = 0
    #: Also what the package reports at INFO: the start, each round and the end of a run.
    ROUNDS = 1
    #: Also what it reports at DEBUG: each trial.
    TRIALS = 2


def split_off(args: Sequence[str]) -> tuple[Verbosity, list[str]]:
    """Take the words for verbosity out of a command line, up to ``--``."""
    end = list(args).index("--") if "--" in args else len(args)
    more = sum(map(_louder, args[:end]))
    quiet = "--quiet" in args[:end]
    if quiet and more:
        raise UsageError("--quiet and -v contradict each other; give one of them")
    rest = [word for word in args[:end] if not _louder(word) and word != "--quiet"]
    level = Verbosity.QUIET if quiet else Verbosity(min(more, Verbosity.TRIALS))
    return level, [*rest, *args[end:]]


def _louder(word: str) -> int:
    """The number of levels that a word adds: ``-v`` and ``--verbose`` 1, ``-vv`` 2, and so on."""
    if word == "--verbose":
        return 1
    return len(word) - 1 if re.fullmatch("-v+", word) else 0


def chosen() -> Verbosity:
    """The verbosity of the command line that is being carried out."""
    context = click.get_current_context(silent=True)
    level = None if context is None else context.obj
    return level if isinstance(level, Verbosity) else Verbosity.NORMAL


def progress_console(*, stderr: bool) -> Console:
    """The console for progress, notes and advice: nowhere with ``--quiet``."""
    from rich.console import Console

    level = chosen()
    # Lines of the log between two refreshes would tear a live display apart.
    plain = False if level > Verbosity.NORMAL else None
    quiet = level == Verbosity.QUIET
    return Console(highlight=False, stderr=stderr, quiet=quiet, force_terminal=plain)


def result_console(*, stderr: bool) -> Console:
    """The console for results: with ``--quiet`` too, unless they go to standard output as JSON."""
    from rich.console import Console

    silent = stderr and chosen() == Verbosity.QUIET
    return Console(highlight=False, stderr=stderr, quiet=silent)


@contextmanager
def log_shown(level: Verbosity) -> Iterator[None]:
    """Show the package's ``logging`` on standard error.

    Without ``-v`` nothing is changed: Python itself then prints warnings and errors.
    """
    if level <= Verbosity.NORMAL:
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Harmless("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
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


class _Harmless(logging.Formatter):
    """Formats lines in which a name from a log or a template cannot steer the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, on one line."""
        return harmless(super().format(record).replace("\n", " ").replace("\t", "  "))
