"""Shape arithmetic that operators share: broadcasting, axes, and checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from loopwright import dtypes, te
from loopwright.errors import GraphError
from loopwright.graph.ir.expr import Size
from loopwright.ir.affine import Affine
from loopwright.ir.sizes import Sizes, SizeVar


def broadcast(a: Sequence[Size], b: Sequence[Size]) -> tuple[Size, ...]:
    """The shape of two broadcast shapes, as in NumPy; GraphError where they do not fit."""
    rank = max(len(a), len(b))
    shape: list[Size] = []
    for x, y in zip([1] * (rank - len(a)) + [*a], [1] * (rank - len(b)) + [*b], strict=True):
        if not (same(x, y) or same(x, 1) or same(y, 1)):
            first, second = (", ".join(map(str, s)) for s in (a, b))
            raise GraphError(
                f"shapes ({first}) and ({second}) cannot be broadcast: {x} against {y}"
            )
        shape.append(x if same(x, y) or same(y, 1) else y)
    return tuple(shape)


def same(a: Size, b: Size) -> bool:
    """Whether two extents are known to be equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return a is b or (isinstance(a, te.Expr) and isinstance(b, te.Expr) and repr(a) == repr(b))


def require_same(a: Size, b: Size, what: str) -> None:
    """Raise GraphError where two extents differ; ``what`` names them."""
    if not same(a, b):
        raise GraphError(f"{what} differ: {a} and {b}")


def element(t: te.Tensor, index: Sequence[Any]) -> Any:
    """The element of a tensor that is broadcast: where an extent is 1, its index is 0."""
    own = index[len(index) - len(t.shape) :]
    return t(*(0 if same(n, 1) else i for i, n in zip(own, t.shape, strict=True)))


def is_static(shape: Iterable[Size]) -> bool:
    return all(isinstance(n, int) for n in shape)


def quotient(a: Sequence[Size], b: Sequence[Size]) -> Size | None:
    """A product of extents over another; None where it is no integer, or unequal symbols remain."""
    (count, above), (divisor, below) = _product(a), _product(b)
    for e in below:
        if not any(same(e, other) for other in above):
            return None
        above.remove(next(other for other in above if same(e, other)))
    if divisor == 0 or count % divisor:
        return None
    result: Any = count // divisor
    for e in above:
        result = e if same(result, 1) else e * result
    return result  # type: ignore[no-any-return]


def _product(shape: Sequence[Size]) -> tuple[int, list[te.Expr]]:
    """The numeric factor of a product of extents, and its symbolic factors."""
    number, factors = 1, list[te.Expr]()
    for n in shape:
        if isinstance(n, int):
            number *= n
            continue
        form = Sizes().of(n)
        if isinstance(form, Affine) and not form.const and len(form.terms) == 1:
            ((v, times),) = form.terms.items()
            if isinstance(v, SizeVar):
                number, n = number * times, v
        factors.append(n)
    return number, factors


def accumulator(dtype: str) -> str:
    """The dtype in which elements of a dtype are added up: float32 for 16-bit floats."""
    return "float32" if dtype in dtypes.HALVES else dtype


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from 0; negative ones count from the end; GraphError where there is none."""
    if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < rank:
        raise GraphError(f"a tensor of {rank} dimensions has no axis {axis!r}")
    return axis % rank


def axes_of(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Sorted axes counted from 0; None are all; GraphError where one is missing, or given twice."""
    if axes is None:
        return tuple(range(rank))
    named = (axes,) if isinstance(axes, int) else tuple(axes)
    numbers = sorted(axis_of(a, rank) for a in named)
    if len(set(numbers)) < len(numbers):
        raise GraphError(f"axes {named} name one axis twice")
    return tuple(numbers)


def several(value: int | Sequence[int], count: int, what: str) -> tuple[int, ...]:
    """One number for each of some dimensions, given as one for all, or one for each."""
    numbers = (value,) * count if isinstance(value, int) else tuple(value)
    if len(numbers) != count:
        raise GraphError(f"{what} is {numbers}; give one number, or {count}")
    return numbers


def pads_of(padding: int | Sequence[int], count: int) -> tuple[tuple[int, int], ...]:
    """Elements before and after dimensions: one number, one each, or all before, then all after."""
    pads = (padding,) * count if isinstance(padding, int) else tuple(padding)
    if len(pads) == count:
        pads *= 2
    if len(pads) != 2 * count or any(p < 0 for p in pads):
        raise GraphError(f"padding is {padding}; give one number, {count}, or {2 * count}, from 0")
    return tuple(zip(pads[:count], pads[count:], strict=True))
