"""Axes as a space sees them: a name and, where it is known, a length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from loopwright.errors import SpaceError
from loopwright.ir.expr import Expr


@dataclass(frozen=True)
class Axis:
    """A loop that knobs are defined over.

    Attributes:
        length: Iterations; None for a part of a split, whose length depends on the configuration.
        name: Name of the axis in messages.

    Example:
        >>> print(lw.ConfigSpace.axis(16))
        Axis(length=16, name='')
    """

    length: int | None
    name: str = ""


class HasExtent(Protocol):
    """A loop axis of a tensor."""

    @property
    def extent(self) -> object:
        """Number of iterations."""


class HasDomain(Protocol):
    """An axis in the form of TVM."""

    @property
    def dom(self) -> HasExtent: ...


#: Anything that a knob may be defined over: a loop axis of a tensor, a length, or a part of a
#: split.
AxisLike: TypeAlias = Axis | int | HasExtent | HasDomain


def axis(source: AxisLike) -> Axis:
    """Make an `Axis` of a loop axis of a tensor (``C.op.axis[0]``), a positive int, or an Axis."""
    if isinstance(source, Axis):
        return source
    length = source if isinstance(source, int) else _extent(source)
    name = str(getattr(source, "name", "") or "")
    if isinstance(length, bool) or not isinstance(length, int):
        raise SpaceError(f"an axis is a loop axis or an integer length, got {source!r}")
    if length < 1:
        raise SpaceError(f"axis {name or '?'} has length {length}; it must be at least 1")
    return Axis(length, name)


def known_length(source: AxisLike, knob: str) -> int:
    """Length of an axis that a knob needs now; a part of another split has none and is refused."""
    resolved = axis(source)
    if resolved.length is None:
        raise SpaceError(
            f"knob {knob!r}: the length of part {resolved.name!r} of a split depends on the "
            "configuration; give the original axis more outputs instead (num_outputs=3)"
        )
    return resolved.length


def _extent(source: object) -> int | None:
    """``extent`` or ``dom.extent`` of an axis as an int; one over size variables is refused."""
    extent = getattr(source, "extent", None)
    if extent is None:
        extent = getattr(getattr(source, "dom", None), "extent", None)
    if isinstance(extent, bool) or extent is None:
        return None
    if isinstance(extent, Expr):
        raise SpaceError(
            f"axis {getattr(source, 'name', '?')!r} has {extent} iterations, and a knob needs a "
            "number; give the template ints for its size variables"
        )
    try:
        return int(extent)
    except (TypeError, ValueError):
        return None
