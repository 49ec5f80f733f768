"""Inputs of kernels: five sets of data, made alike in the parent and in a runner.

Set 0 is random. Set 1 reveals errors that random data hide: where an expression allows it, its
floats are small integers, whose sums are exact, so that the answers must be equal and not only
close. Sets 2 to 4 are at the edges of their types (`loopwright.measure.data.edges`); right answers
to them are known at some elements, each with an error of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loopwright.measure.checking.check import Array, make_input
from loopwright.measure.data.edges import Edge, edge_input
from loopwright.runtime import Arg

if TYPE_CHECKING:
    from loopwright.te.index_ranges import Span

#: The sets of inputs for which whole answers are computed, and those at the edges of their types.
SETS = (0, 1)
EDGES: dict[int, Edge] = {2: "mixed", 3: "special", 4: "one sign"}


@dataclass(frozen=True)
class DataPlan:
    """Plan of the data of some arguments.

    Attributes:
        spans: for each argument, the values it may take as an index; None where it is not used as
            one. Empty: no argument is.
        largest: floats of set 1 are integers of at most this size; 0: random as in set 0.
        lines: for each argument the dimension that moves with one of an output, or None; empty:
            none is known.
    """

    spans: tuple[Span | None, ...] = ()
    largest: int = 0
    lines: tuple[int | None, ...] = ()

    def merge(self, other: DataPlan) -> DataPlan:
        """A plan that is right for the kernels of both."""
        if not other.spans or not self.spans:
            spans = self.spans or other.spans
        else:
            spans = tuple(map(_both, self.spans, other.spans))
        return DataPlan(spans, min(self.largest, other.largest), self.lines or other.lines)

    def span(self, index: int) -> Span | None:
        """Values that argument number ``index`` may take; None: any."""
        return self.spans[index] if self.spans else None

    def made(self, arg: Arg, index: int, seed: int, number: int) -> Array:
        """The data of one argument in a set, from a seed.

        Args:
            arg: the argument.
            index: its position.
            seed: seed of set 0.
            number: number of the set.
        """
        largest = self.largest if number else 0
        span, shift = self.span(index), number * _NEXT_SEED
        if number in EDGES:
            line = self.lines[index] if self.lines else None
            return edge_input(
                arg.shape,
                arg.dtype.name,
                [seed + shift, index],
                line=line,
                span=span,
                kind=EDGES[number],
            )
        return make_input(
            arg.shape, arg.dtype.name, seed + shift, index, span=span, largest=largest
        )

    def varied(self, given: Array, index: int) -> Array:
        """Set 1 of an argument whose set 0 was given: its elements in the opposite order.

        An argument that is used as an index stays as it is: its order may matter.
        """
        if self.span(index) is not None:
            return given
        return np.ascontiguousarray(given.reshape(-1)[::-1]).reshape(given.shape)


#: Step of the seeds of the sets; any number that users do not choose as a step of seeds.
_NEXT_SEED = 0x5E7


def _both(a: Span | None, b: Span | None) -> Span | None:
    if a is None or b is None:
        return a or b
    return max(a[0], b[0]), min(a[1], b[1])


def input_set(
    plan: DataPlan, args: Sequence[Arg], seed: int, given: Sequence[Array] | None, number: int
) -> list[Array]:
    """One set of inputs, in order.

    Args:
        plan: plan of the data.
        args: all arguments of a kernel.
        seed: seed of random data.
        given: set 0, where the template makes it; None: random data.
        number: number of the set; given data have only set 0 and its `DataPlan.varied`.

    Example:
        >>> with lw.Target("llvm"):
        ...     s, args = lw.ops.matmul(8, 4, 2)
        ...
        >>> f = lw.build(s, args, name="matmul")
        >>> plan = lw.inspection.DataPlan()
        >>> a, b = lw.inspection.input_set(plan, f[f.entry_name].args, 0, None, 0)
        >>> print(a.shape, b.shape, a.dtype)
        (8, 2) (2, 4) float32
    """
    inputs = [(i, arg) for i, arg in enumerate(args) if not arg.output]
    if given is None:
        return [plan.made(arg, i, seed, number) for i, arg in inputs]
    if number == 0:
        return list(given)
    return [plan.varied(array, i) for (i, _), array in zip(inputs, given, strict=True)]
