"""Tables of text: as wide as a terminal, or in whole lines for a file or a pipe."""

from __future__ import annotations

import csv
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import click

from loopwright.cli.harmless import harmless

#: Lines that are printed at once.
_AT_ONCE = 1000
_ELLIPSIS = "…"
#: What a cell is cut to at least.
_SHORTEST = 8
#: A text is wrapped at so many characters at least.
_NARROWEST = 40


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        title: its title.
        cells: a text for each row.
        right: True where the cells are numbers, which are aligned on the right.
        needs: columns of characters that a terminal must have to show it; 0 shows it always.
        cut: True where the cells may be cut to make the table fit.
    """

    title: str
    cells: Sequence[str]
    right: bool = False
    needs: int = 0
    cut: bool = False


def terminal_width() -> int | None:
    """Characters of a line of the terminal; None where the output is a file or a pipe, which gets
    whole lines."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(text: str, indent: int = 0) -> str:
    """A text in lines as wide as the terminal; as one line where there is none.

    Args:
        text: one line.
        indent: blanks before each line but the first.
    """
    width = terminal_width()
    if width is None:
        return text
    return textwrap.fill(
        harmless(text),
        max(_NARROWEST, width),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def table_lines(columns: Sequence[Column], width: int | None) -> Iterator[str]:
    """The lines of a table, its titles first.

    Args:
        columns: the columns; at most one of them, the last, may be cut.
        width: characters of a line; None for whole lines with all columns.
    """
    shown = [column for column in columns if width is None or column.needs <= width]
    sizes = [max(map(len, [column.title, *column.cells])) for column in shown[:-1]]
    form = " ".join(
        [f"%{'' if c.right else '-'}{n}s" for c, n in zip(shown, sizes, strict=False)] + ["%s"]
    )
    titles = tuple(column.title for column in shown)
    room = None if width is None else max(_SHORTEST, width - sum(sizes) - len(sizes))
    last = shown[-1]
    ends = last.cells if room is None or not last.cut else [cut(cell, room) for cell in last.cells]
    for row in [titles, *zip(*(c.cells for c in shown[:-1]), ends, strict=True)]:
        yield (form % row).rstrip()


def cut(text: str, room: int) -> str:
    """A text that fits into so many characters; an ellipsis stands for what was cut off."""
    if text.isascii():
        return text if len(text) <= room else text[: room - 1] + _ELLIPSIS
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= room else set_cell_size(text, room - 1).rstrip() + _ELLIPSIS


def print_table(columns: Sequence[Column]) -> None:
    """Print a table, fitted to the terminal; in whole lines where there is none."""
    print_lines(table_lines(columns, terminal_width()))


def print_lines(lines: Iterator[str]) -> None:
    """Print many lines; a single write for each would take longer than making them."""
    batch: list[str] = []
    for line in lines:
        batch.append(line)
        if len(batch) == _AT_ONCE:
            click.echo("\n".join(batch))
            batch.clear()
    if batch:
        click.echo("\n".join(batch))


def print_csv(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table as comma-separated values (RFC 4180), its titles first; None is an empty cell.

    Args:
        titles: of the columns.
        rows: the cells of each row.
    """
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for row in chain([titles], rows):
        writer.writerow([harmless(cell) if isinstance(cell, str) else cell for cell in row])
