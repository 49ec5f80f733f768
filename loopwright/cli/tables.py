"""Tables of text: as wide as a terminal, or in whole lines for a file or a pipe."""

from __future__ import annotations

import csv
import math
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import click

from loopwright.cli.console import folded, harmless

#: Lines that are printed at once.
_AT_ONCE = 1000
_ELLIPSIS = "…"
#: Least width to which a cell is cut.
_SHORTEST = 8


@dataclass(frozen=True)
class TextColumn:
    title: str
    cells: Sequence[str]
    right: bool = False  # numbers, aligned on the right
    needs: int = 0  # smallest width of a terminal, in characters, that shows it
    cut: bool = False  # cells may be cut to make the table fit


def terminal_width() -> int | None:
    """Width of the terminal in characters; None for a file or a pipe, which gets whole lines."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(text: str, indent: int = 0) -> str:
    """A line wrapped to the terminal, if there is one, with ``indent`` blanks on later lines."""
    width = terminal_width()
    return text if width is None else "\n".join(folded(harmless(text), width, indent))


def table_lines(columns: Sequence[TextColumn], width: int | None) -> Iterator[str]:
    """The lines of a table, its titles first; whole lines with all columns where ``width`` is None.
    The last column takes the room that the others leave, and is cut to it if it may be. If the
    table is still too wide, long texts of the others are cut.
    """
    shown = [column for column in columns if width is None or column.needs <= width]
    sizes = [max(map(_width, [column.title, *column.cells])) for column in shown]
    last, last_size = shown[-1], sizes.pop()
    if width is not None and sum(sizes) + len(sizes) + _SHORTEST > width:
        sizes = [n if c.right else min(n, width // 4) for c, n in zip(shown, sizes, strict=False)]
    filled = [_filled(column, size) for column, size in zip(shown, sizes, strict=False)]
    room = None if width is None else max(_SHORTEST, width - sum(sizes) - len(sizes))
    if last.right:
        ends = _filled(last, last_size)
    elif room is None or not last.cut:
        ends = [last.title, *last.cells]
    else:
        ends = [last.title, *(cut(cell, room) for cell in last.cells)]
    for row in zip(*filled, ends, strict=True):
        yield " ".join(row).rstrip()


def _filled(column: TextColumn, size: int) -> list[str]:
    """The title and the cells of a column, padded to one size."""
    cells = [column.title, *column.cells]
    if all(map(str.isascii, cells)) and max(map(len, cells)) <= size:
        return [cell.rjust(size) if column.right else cell.ljust(size) for cell in cells]
    fit = [cut(cell, size) for cell in cells]
    blanks = [" " * (size - _width(cell)) for cell in fit]
    pairs = zip(blanks, fit, strict=True)
    return [blank + cell if column.right else cell + blank for blank, cell in pairs]


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, room: int) -> str:
    """A text cut to so many characters, with an ellipsis for the rest."""
    if text.isascii():
        return text if len(text) <= room else text[: room - 1] + _ELLIPSIS
    from rich.cells import set_cell_size

    return text if _width(text) <= room else set_cell_size(text, room - 1).rstrip() + _ELLIPSIS


def print_table(columns: Sequence[TextColumn]) -> None:
    """Print a table, fitted to the terminal; in whole lines where there is none."""
    print_lines(table_lines(columns, terminal_width()))


def print_lines(lines: Iterable[str]) -> None:
    """Print many lines at once; a single write for each would take longer than making them."""
    lines = iter(lines)
    while batch := list(islice(lines, _AT_ONCE)):
        click.echo("\n".join(batch))


def print_csv(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table as comma-separated values (RFC 4180), titles first; None is an empty cell."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for row in chain([titles], rows):
        writer.writerow([harmless(cell) if isinstance(cell, str) else cell for cell in row])


#: Bars of no to eight eighths of a character.
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def bars(values: Sequence[float], width: int, height: int) -> Iterator[str]:
    """Lines of a plot of so many characters, labels included: a bar for each value, or for as many
    as there are columns. NaN leaves a gap. The last of several values that share a column is drawn.
    The bars begin at 0; a label on the left gives the value at the top of its line.
    """
    top = max((value for value in values if not math.isnan(value)), default=0.0)
    if top <= 0.0 or not values:
        return
    tops = [top * (line + 1) / height for line in range(height)]
    labels = [f"{value:.0f}" if value >= 100 else f"{value:.3g}" for value in tops]
    margin = max(map(len, labels))
    columns, count = max(1, width - margin - 2), len(values)
    if count <= columns:
        drawn = [value for value in values for _ in range(columns // count)]
    else:
        drawn = [values[(column + 1) * count // columns - 1] for column in range(columns)]
    for line in reversed(range(height)):
        eighths = [8 * (value / top * height - line) for value in drawn]
        cells = (" " if math.isnan(n) else _EIGHTHS[min(8, max(0, round(n)))] for n in eighths)
        yield f"{labels[line]:>{margin}} │{''.join(cells)}".rstrip()
    yield f"{'0':>{margin}} └{'─' * len(drawn)}"
