"""A variant: one way to schedule a kernel, from which structures of expressions are made."""

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
        name: what it is called in records.
        why: why it may be good.
        schedule: makes its steps and knobs in a sketch.
    """

    name: str
    why: str
    schedule: Callable[[Sketch], None]


#: What knows ways to schedule a kernel, the most sensible first; none where it knows none.
Variants = Callable[[Kernel], list[Variant]]


def structures_of(
    variants: Variants, outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]
) -> list[Structure]:
    """The structures of an expression that is one kernel: one for each variant.

    Args:
        variants: what knows ways to schedule it.
        outputs: the results.
        args: the arguments in calling order.

    Returns:
        None where the expression is several kernels, or no variant is known.
    """
    if len(outputs) != 1:
        return []
    parts = kernels_of(tuple(outputs))
    return [_structure(v, outputs, args) for v in variants(parts[0])] if len(parts) == 1 else []


@lru_cache(maxsize=4)
def kernels_of(outputs: tuple[te.Tensor, ...]) -> tuple[Kernel, ...]:
    """The kernels of an expression; kept for a while, since every rule asks."""
    return tuple(kernels(outputs))


def _structure(
    variant: Variant, outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]
) -> Structure:
    sketch = Sketch(outputs, args)
    variant.schedule(sketch)
    sketch.why.append(variant.why)
    return sketch.finished(variant.name)
