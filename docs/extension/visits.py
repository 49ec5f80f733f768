"""The order in which a nest writes the elements of its output, as a line through a grid."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from itertools import pairwise

from extension.drawing import framed

CELL = 22  # pixels


class Recorder:
    """Stands for an array: notes which elements are written, and reads as zero."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int]] = []

    def __getitem__(self, index: object) -> float:
        return 0.0

    def __setitem__(self, index: tuple[int, int], value: object) -> None:
        self.written.append(index)


def order(program: str, output: str) -> list[tuple[int, int]]:
    """The elements of a matrix in the order in which a nest first writes them.

    The text of a nest of serial loops is Python, so it is run, on arrays that take notes.

    Args:
        program: what `str` gives for a lowered function.
        output: the name of the matrix.
    """
    arrays: dict[str, Recorder] = defaultdict(Recorder)
    body = textwrap.dedent(program.partition("\n")[2])
    body = re.sub(r"\b[A-Za-z_]\w*(?:\.\w+)+", lambda name: name[0].replace(".", "_"), body)
    names = compile(body, "nest", "exec").co_names
    exec(body, {name: arrays[name] for name in names if name != "range"})
    return list(dict.fromkeys(arrays[output].written))


def svg(program: str, output: str, title: str) -> str:
    """A picture of `order`: a dot for each element, a line from each to the next."""
    visits = order(program, output)
    rows, columns = (1 + max(index[d] for index in visits) for d in (0, 1))
    at = [(CELL * (j + 0.5), CELL * (i + 0.5)) for i, j in visits]
    lines = [
        f'<line class="visit" style="opacity:{0.3 + 0.7 * n / len(at):.2f}" '
        f'x1="{x:.1f}" y1="{y:.1f}" x2="{u:.1f}" y2="{v:.1f}"/>'
        for n, ((x, y), (u, v)) in enumerate(pairwise(at))
    ]
    dots = [f'<circle class="element" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in at]
    start = f'<circle class="start" cx="{at[0][0]:.1f}" cy="{at[0][1]:.1f}" r="5"/>'
    return framed([*lines, *dots, start], CELL * columns, CELL * rows, title)
