"""A curve as bars of block characters, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

#: Bars of no to eight eighths of a character.
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def bars(values: Sequence[float], width: int, height: int) -> Iterator[str]:
    """Lines of a plot of so many characters, labels included: a bar for each value, or for as many
    as there are columns. NaN leaves a gap.

    The last of several values that share a column is drawn. The bars begin at 0; a label on the
    left gives the value at the top of its line.
    """
    top = max((value for value in values if not math.isnan(value)), default=0.0)
    if top <= 0.0 or not values:
        return
    labels = [_label(top * (line + 1) / height) for line in range(height)]
    margin = max(map(len, labels))
    columns = max(1, width - margin - 2)
    drawn = _thinned(values, columns)
    for line in reversed(range(height)):
        cells = "".join(_cell(value / top * height - line) for value in drawn)
        yield f"{labels[line]:>{margin}} │{cells}".rstrip()
    yield f"{'0':>{margin}} └{'─' * len(drawn)}"


def _thinned(values: Sequence[float], columns: int) -> list[float]:
    """One value a column, repeated over several columns where there are few."""
    count = len(values)
    if count <= columns:
        wide = max(1, columns // count)
        return [value for value in values for _ in range(wide)]
    return [values[(column + 1) * count // columns - 1] for column in range(columns)]


def _cell(filled: float) -> str:
    if math.isnan(filled):
        return " "
    return _EIGHTHS[min(8, max(0, round(filled * 8)))]


def _label(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
