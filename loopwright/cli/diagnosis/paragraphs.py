"""Text wrapped to the width of the terminal."""

from __future__ import annotations

import shutil
import textwrap

#: Longer lines are hard to read, however wide the terminal is.
_WIDEST = 100


def columns() -> int:
    """Width of text: the terminal's (COLUMNS, else 80), 100 at most."""
    return max(40, min(_WIDEST, shutil.get_terminal_size((80, 24)).columns))


def paragraph(text: str, indent: int = 0, *, first: str = "") -> list[str]:
    """A text in lines of at most `columns`; longer words stay whole. ``indent`` blanks stand before
    each line but the first, which begins with ``first``.
    """
    return textwrap.wrap(
        text,
        columns(),
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
