"""Tables of expressions of a single knob, computed once for each of its candidates.

A knob has tens of candidates where a population has thousands, and a third of all expressions are
of that kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from loopwright.cost.symbolic.operations import COLUMNS, Column, operands, reachable
from loopwright.cost.symbolic.symbols import GraphNode, NodeOperand
from loopwright.task.sampling import Digits

#: The values of a part of a knob in each of its candidates, by the numbers of both.
Choices = Callable[[int, int], npt.NDArray[np.float64]]
#: Candidates of a knob beyond which its expressions are not tabulated.
MOST = 2048


class KnobTables:
    """Columns of the expressions that a population's programs begin with."""

    def __init__(
        self, nodes: Mapping[int, GraphNode], wanted: Collection[int], choices: Choices
    ) -> None:
        needed = reachable(nodes, wanted)
        knob = _single_knobs(nodes, needed, choices)
        several = [n for n in needed if n not in knob]
        border = {*wanted, *(a for n in several for a in operands(nodes[n]))}
        #: Nodes that are looked up, in the order of `columns`; all wanted nodes can be computed
        #: from them.
        self.given = [n for n in needed if n in knob and n in border]
        values = _tabulated(nodes, reachable(nodes, self.given), choices)
        self._tables: list[tuple[int, list[int], Column]] = []
        for key in dict.fromkeys((knob[n], values[n].dtype) for n in self.given):
            places = [k for k, n in enumerate(self.given) if (knob[n], values[n].dtype) == key]
            table = np.stack([values[self.given[k]] for k in places])
            self._tables.append((key[0], places, table))

    def columns(self, digits: Digits) -> list[Column]:
        """Columns of ``given`` for candidates (n, knobs)."""
        out: list[Column] = [np.empty(0)] * len(self.given)
        for knob, places, table in self._tables:
            for place, column in zip(places, table.take(digits[:, knob], axis=1), strict=True):
                out[place] = column
        return out


def _single_knobs(
    nodes: Mapping[int, GraphNode], needed: Sequence[int], choices: Choices
) -> dict[int, int]:
    """Knob of each node that depends on no other, for knobs that are not too large."""
    out: dict[int, int] = {}
    for n in needed:
        op, args = nodes[n]
        if op == "leaf":
            out[n] = _leaf(args)[0]
            continue
        knobs = {out.get(a) for a in operands(nodes[n])}
        knob = knobs.pop()
        if not knobs and knob is not None and op in COLUMNS and len(choices(knob, 0)) <= MOST:
            out[n] = knob
    return out


def _tabulated(
    nodes: Mapping[int, GraphNode], needed: Sequence[int], choices: Choices
) -> dict[int, Column]:
    values: dict[int, Column] = {}
    for n in needed:
        op, args = nodes[n]
        if op == "leaf":
            values[n] = choices(*_leaf(args))
            continue
        values[n] = COLUMNS[op](*(a[0] if isinstance(a, tuple) else values[a] for a in args))
    return values


def _leaf(args: tuple[NodeOperand, ...]) -> tuple[int, int]:
    """Knob and part of a leaf."""
    (knob,), (part,) = (a if isinstance(a, tuple) else (a,) for a in args)
    return int(knob), int(part)
