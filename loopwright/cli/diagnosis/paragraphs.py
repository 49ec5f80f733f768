"""Text in lines that fit the terminal."""

from __future__ import annotations

import shutil
import textwrap

#: Longer lines are hard to read, however wide the terminal is.
_WIDEST = 100


def columns() -> int:
    """Columns that text may take: those of the terminal (COLUMNS, else 80), 100 at most."""
    return max(40, min(_WIDEST, shutil.get_terminal_size((80, 24)).columns))


def paragraph(text: str, indent: int = 0, *, first: str = "") -> list[str]:
    """A text in lines of at most `columns`; words longer than that stay whole.

    Args:
        text: what is said.
        indent: blanks before each line but the first.
        first: what the first line begins with.
    """
    return textwrap.wrap(
        text,
        columns(),
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
