"""Structures under construction: a schedule whose sizes are symbols, and the knobs behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

from loopwright import te
from loopwright.cost.symbolic.symbols import Graph, Sym
from loopwright.schedule import create_schedule
from loopwright.space.kernels import Kernel, kernels
from loopwright.space.structure import Structure
from loopwright.target import Target
from loopwright.task.space import ConfigSpace
from loopwright.task.union import STRUCTURE


class Sketch:
    """Structure under construction, the working object of rules.

    Args:
        outputs: the results.
        args: the arguments in calling order.

    Attributes:
        s: the schedule so far; rules call its primitives, with symbols for sizes.
        space: the knobs so far.
        why: steps of rules, and their reasons.
        prefix: prefix of the names of knobs; of the current kernel where an expression has several.

    Example:
        >>> A = te.placeholder((64,), name="A")
        >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
        >>> sketch = lw.space.Sketch([B], [A, B])
        >>> width = sketch.number("width", [4, 8])
        >>> outer, inner = sketch.s[B].split(B.op.axis[0], factor=width)
        >>> sketch.s[B].vectorize(inner)
        >>> structure = sketch.finished("vectors")
        >>> print(structure)
        vectors (2 configurations)
        >>> s, args = structure.instantiate(structure.config_space.get(1))
        >>> print(lw.lower(s, args))
        def main(A: float32[64], B: out float32[64]):
          for i.0 in range(8):
            for i.1 in vectorized(8):
              B[i.0 * 8 + i.1] = A[i.0 * 8 + i.1] + 1.0
    """

    def __init__(self, outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> None:
        self.s = create_schedule(list(dict.fromkeys(t.op for t in outputs)))
        self.space = ConfigSpace()
        self.why: list[str] = []
        self.prefix = ""
        self._args = list(args)
        self._graph = Graph()
        self._numbers = count()
        self._symbols: dict[int, tuple[str, int]] = {}

    def copy(self) -> Sketch:
        """Copy of the sketch; later changes of one do not affect the other.

        Symbols of both are of one graph, so that knobs are told apart in both.
        """
        made = copy(self)
        made.s, made.why, made._symbols = self.s.copy(), list(self.why), dict(self._symbols)
        made.space = ConfigSpace()
        made.space.knobs.update(self.space.knobs)
        return made

    def number(self, name: str, candidates: Sequence[int], default: int | None = None) -> Any:
        """Define a size as a knob: a symbol, which schedules take for an int; the number itself
        where there is one candidate.

        Args:
            name: of the knob.
            candidates: positive numbers.
            default: that of the default configuration; None: the first.
        """
        return self._defined(name, list(candidates), default)[0]

    def numbers(
        self,
        name: str,
        candidates: Sequence[tuple[int, ...]],
        default: tuple[int, ...] | None = None,
    ) -> tuple[Any, ...]:
        """Define sizes that one knob chooses together, so that misfits are no candidates.

        Args:
            name: of the knob.
            candidates: tuples of as many positive numbers each.
            default: that of the default configuration; None: the first.
        """
        return self._defined(name, list(candidates), default)

    def _defined(self, name: str, candidates: list[Any], default: Any) -> tuple[Any, ...]:
        name = self.prefix + name
        self.space.define_knob(name, candidates, default=default)
        number = next(self._numbers)
        parts = self.space.knobs[name].parts()
        found = [self._graph.leaf(number, part, values) for part, values in enumerate(parts)]
        for part, x in enumerate(found):
            if isinstance(x, Sym):
                self._symbols[x.number] = (name, part)
        return tuple(found)

    def finished(self, name: str) -> Structure:
        """The structure.

        Args:
            name: its name in records; the one candidate of the knob ``structure``.
        """
        self.space.define_knob(STRUCTURE, [name])
        self.space.freeze()
        ids = tuple(self.s.arg_ids(self._args))
        symbols = dict(self._symbols)
        trace = tuple(self.s.trace)
        return Structure(
            name, tuple(self.why), self.space, Target.current(), self.s.dag, ids, trace, symbols
        )


@dataclass(frozen=True)
class Variant:
    """One way to schedule a kernel.

    Attributes:
        name: its name in records.
        why: reason why it may be good.
        schedule: function that makes its steps and knobs in a sketch.

    Example:
        >>> def by_rows(kernel):
        ...     def schedule(sketch):
        ...         sketch.s[kernel.out].parallel(kernel.out.op.axis[0])
        ...
        ...     return lw.space.Variant("by rows", "a row for each task", schedule)
        ...
        >>> by_rows = lw.space_rule("example/by_rows", scope="kernel", stops=True)(by_rows)
        >>> A = te.placeholder((8, 4), name="A")
        >>> B = te.compute((8, 4), lambda i, j: A[i, j] + 1, name="B")
        >>> print([s.name for s in lw.create_task([A, B], target="llvm").structures])
        ['by rows']
        >>> lw.space.remove_rule("example/by_rows")
    """

    name: str
    why: str
    schedule: Callable[[Sketch], None]


#: Function that gives ways to schedule a kernel, the most sensible first, or none.
Variants = Callable[[Kernel], list[Variant]]


def structures_of(
    variants: Variants, outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]
) -> list[Structure]:
    """Structure for each variant of an expression that is one kernel.

    None where the expression is several kernels, or no variant is known.
    """
    if len(outputs) != 1:
        return []
    parts = kernels_of(tuple(outputs))
    found = variants(parts[0]) if len(parts) == 1 else []
    begun = Sketch(outputs, args) if found else None
    return [_structure(v, begun.copy()) for v in found] if begun is not None else []


@lru_cache(maxsize=4)
def kernels_of(outputs: tuple[te.Tensor, ...]) -> tuple[Kernel, ...]:
    """Kernels of an expression; cached, since every rule asks."""
    return tuple(kernels(outputs))


def _structure(variant: Variant, sketch: Sketch) -> Structure:
    variant.schedule(sketch)
    sketch.why.append(variant.why)
    return sketch.finished(variant.name)
