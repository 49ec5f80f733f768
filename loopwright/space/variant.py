"""Variants: ways to schedule a kernel, from which structures of expressions are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from loopwright import te
from loopwright.space.kernels import Kernel, kernels
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure


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
