"""Structures under construction: a schedule whose sizes are symbols, and the knobs behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.schedule import Schedule, create_schedule
from loopwright.space.kernels import Kernel, kernels
from loopwright.space.structure import Structure, SymbolicKnobs
from loopwright.task import STRUCTURE, ConfigSpace


class Sketch:
    """Structure under construction, the working object of rules.

    Args:
        outputs: the results.
        args: the arguments in calling order.

    Attributes:
        s: the schedule so far; rules call its primitives, with symbols for sizes.
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
        self.why: list[str] = []
        self.prefix = ""
        self._args = list(args)
        self._knobs = SymbolicKnobs()
        self._numbers = count()  # shared with copies

    @property
    def space(self) -> ConfigSpace:
        """Knobs so far."""
        return self._knobs.space

    def copy(self) -> Sketch:
        """Copy of the sketch; later changes of one do not affect the other.

        Symbols of both are of one graph, so that knobs are told apart in both.
        """
        twin = copy(self)
        twin.s, twin.why, twin._knobs = self.s.copy(), list(self.why), self._knobs.copy()
        return twin

    def number(self, name: str, candidates: Sequence[int], default: int | None = None) -> Any:
        """Define a size as a knob: a symbol, which schedules take for an int; the number itself
        where there is one candidate.

        Args:
            name: of the knob.
            candidates: positive numbers.
            default: that of the default configuration; None: the first.
        """
        number = next(self._numbers)
        return self._knobs.define(number, self.prefix + name, list(candidates), default)[0]

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
        number = next(self._numbers)
        return self._knobs.define(number, self.prefix + name, list(candidates), default)

    def finished(self, name: str) -> Structure:
        """The structure.

        Args:
            name: its name in records; the one candidate of the knob ``structure``.
        """
        self.space.define_knob(STRUCTURE, [name])
        ids = tuple(self.s.arg_ids(self._args))
        return self._knobs.structure(name, self.why, self.s.dag, ids, self.s.trace)


def fused(s: Schedule, t: te.Tensor, loops: Sequence[IterVar]) -> IterVar:
    """Fuse some loops of a stage; a single one stays as it is."""
    return s[t].fuse(*loops) if len(loops) > 1 else loops[0]


@dataclass(frozen=True)
class Variant:
    """Schedule of one kernel, a part of structures.

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


#: Function that gives the variants of a kernel, the most sensible first; none where it knows none.
Variants = Callable[[Kernel], list[Variant]]


def structures_of(
    variants: Variants, outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]
) -> list[Structure]:
    """Structure for each variant of an expression that is one kernel; else none."""
    if len(outputs) != 1:
        return []
    kernel, *others = kernels_of(tuple(outputs))
    return [] if others else scheduled(variants(kernel), outputs, args)


def scheduled(
    variants: Sequence[Variant], outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]
) -> list[Structure]:
    """Structure for each variant of an expression."""
    structures = []
    begun = Sketch(outputs, args) if variants else None
    for variant in variants:
        assert begun is not None
        sketch = begun.copy()
        variant.schedule(sketch)
        sketch.why.append(variant.why)
        structures.append(sketch.finished(variant.name))
    return structures


@lru_cache(maxsize=4)
def kernels_of(outputs: tuple[te.Tensor, ...]) -> tuple[Kernel, ...]:
    """Kernels of an expression; cached, since every rule asks."""
    return tuple(kernels(outputs))
