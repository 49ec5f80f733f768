"""The command line: one module per verb, each a thin layer over the packages below.

``main`` is the entry point of the console script. Errors are one line on standard error; the exit
code is 2 when the command was not understood, 1 when it failed, 130 after Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: the arguments without the program's name; None for those of this process.

    Returns:
        The exit code: 0, 1 (failure), 2 (usage) or 130 (Ctrl-C).
    """
    from loopwright.cli.app import run

    return run(argv)
