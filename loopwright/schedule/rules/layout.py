"""`transform_layout`: places of the elements of a buffer, as a map from its indices to new ones.

A dimension of a layout is a digit ``(dim, div, mod)`` of one index, or an expression of
`loopwright.schedule.rules.index_map`. Digits that rebuild every index are bijections whatever the
extents are; others are judged for the extents at hand, when the step is applied for those of the
whole tensor and before lowering for those that the stage covers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, prod
from typing import TypeGuard

from loopwright.ir.affine import Extent
from loopwright.ir.expr import Expr
from loopwright.ir.sizes import Sizes, Symbol
from loopwright.schedule.bounds.results import Bounds
from loopwright.schedule.names import Names
from loopwright.schedule.rules import index_map as im
from loopwright.schedule.rules.storage import own_buffer
from loopwright.schedule.state import Digit, IndexExpr, LayoutDim, State, refuse
from loopwright.schedule.steps import FieldType, Step, each, is_int, register


def _is_json(v: object) -> bool:
    return _is_json_digit(v) or _is_json_expr(v)


def _is_json_digit(v: object) -> bool:
    if not isinstance(v, tuple) or len(v) != 3:
        return False
    dim, div, mod = v
    sizes = is_int(div) and div > 0 and (mod is None or (is_int(mod) and mod > 0))
    return is_int(dim) and dim >= 0 and sizes


def _is_json_expr(v: object) -> bool:
    if isinstance(v, str):
        return re.fullmatch(r"i\d+", v) is not None
    if not isinstance(v, tuple):
        return is_int(v)
    if len(v) != 3 or not _is_json_expr(v[1]):
        return False
    op, _, b = v
    if op == "+":
        return _is_json_expr(b)
    return is_int(b) and (op == "*" or (op in ("//", "%") and b > 0))


@register("transform_layout", dims=FieldType(each(_is_json)))
class TransformLayout(Step):
    """Order the dimensions of the stage's buffer; see `loopwright.schedule.state.LayoutDim`."""

    dims: tuple[LayoutDim, ...]
    pad_value: float | None = None

    def __post_init__(self) -> None:
        # As Python reads the text of the map, so that this gives the very step again.
        object.__setattr__(self, "dims", tuple(map(_simplified, self.dims)))

    def apply(self, state: State, t: int) -> State:
        stage = own_buffer(state, self.stage, "transform_layout", t)
        name = state.label(stage.id)
        if stage.align:
            refuse(
                "transform_layout",
                t,
                f"the strides of {name!r} are aligned already; call transform_layout before "
                "storage_align",
            )
        ndim = len(stage.op.shape)
        used = [d for x in self.dims for d in _indices(expression(x))]
        if any(d >= ndim for d in used):
            refuse(
                "transform_layout",
                t,
                f"the map ({layout_text(self.dims)}) uses index {max(used)}, {name!r} has {ndim} "
                "dimensions",
            )
        pad = self.pad_value
        if pad is not None and not (isinstance(pad, int | float) and isfinite(pad)):
            refuse("transform_layout", t, f"pad_value must be a finite number, got {pad!r}")
        check_one_to_one(self.dims, stage.op.shape, name, "has", t)
        if pad is not None and not all(isinstance(n, int) for n in stage.op.shape):
            refuse(
                "transform_layout", t, f"extents of {name!r} are variables: it takes no pad_value"
            )
        return state.with_stage(replace(stage, layout=self.dims, pad_value=pad, laid_out=t))

    def as_python(self, names: Names) -> str:
        """Text such as ``s[B].transform_layout(lambda i0, i1: (i1, i0))``."""
        args = ", ".join(f"i{d}" for d in range(len(names.before.stages[self.stage].op.shape)))
        pad = "" if self.pad_value is None else f", pad_value={self.pad_value!r}"
        index_map = f"lambda {args}: ({layout_text(self.dims)})"
        return f"{names.stage(self.stage)}.transform_layout({index_map}{pad})"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """Refuse a map that is not one to one on the elements that the stage covers."""
        for sb in bounds.stages.values():
            layout, t = sb.stage.layout, sb.stage.laid_out
            if layout is not None:
                check_one_to_one(layout, sb.shape, state.label(sb.stage.id), "covers", t)


def check_one_to_one(
    dims: tuple[LayoutDim, ...], shape: Sequence[Extent | Expr], name: str, verb: str, t: int
) -> None:
    """Refuse a map that takes two indices of a shape to one element, or uses a digit twice."""
    if _symbolic(dims) or digits_only(dims, len(shape)):
        return
    what = f"the map ({layout_text(dims)})"
    extents = tuple(n for n in shape if isinstance(n, int))
    if len(extents) < len(shape):
        refuse(
            "transform_layout",
            t,
            f"{what} is judged by extents, and those of {name!r} are variables; use digits only "
            "(i, i // f, i % f)",
        )
    exprs = tuple(expression(x) for x in dims)
    verdict = im.judge(exprs, extents)
    if verdict == "one to one":
        return
    where = f"{what} is no bijection on the {list(shape)} elements that {name!r} {verb}"
    hit = im.collision(exprs, extents)
    if hit is not None:
        refuse(
            "transform_layout",
            t,
            f"{where}: {hit[0]} and {hit[1]} both go to {hit[2]}; keep every index, whole or as "
            "i // f and i % f",
        )
    free = im.unreached(exprs, extents) if verdict == "redundant" else None
    if free is not None:
        refuse(
            "transform_layout",
            t,
            f"{where}: no index goes to {free}, an index is used twice; use each digit once",
        )
    if prod(extents) > im.TRIED and verdict == "unknown":
        refuse(
            "transform_layout",
            t,
            f"{what} could not be proved a bijection on {list(shape)}; write it with splits i // f "
            "and i % f and sums i * m + j in which m is the extent of j",
        )


def _symbolic(x: object) -> bool:
    """Whether a map holds a number that is not known, which only the values could judge."""
    return isinstance(x, Symbol) or (isinstance(x, tuple) and any(map(_symbolic, x)))


def _simplified(x: LayoutDim) -> LayoutDim:
    """A dimension without operations that a number of 1 makes void."""
    if not is_digit(x):
        return im.simplified(expression(x))
    return 0 if is_int(x[2]) and x[2] == 1 else x


def expression(x: LayoutDim) -> IndexExpr:
    if not isinstance(x, tuple) or isinstance(x[0], str):
        return x
    d, div, mod = x
    e: IndexExpr = f"i{d}"
    e = ("//", e, div) if _symbolic(div) or div > 1 else e
    return ("%", e, mod) if mod is not None else e


def is_digit(x: LayoutDim) -> TypeGuard[Digit]:
    return isinstance(x, tuple) and not isinstance(x[0], str)


def _indices(e: IndexExpr) -> list[int]:
    if isinstance(e, str):
        return [int(e[1:])]
    return [d for x in e[1:] for d in _indices(x)] if isinstance(e, tuple) else []


def layout_text(dims: tuple[LayoutDim, ...]) -> str:
    """The new indices of a layout as Python: ``i1 // 16, i0, i1 % 16,``."""
    parts = []
    for x in dims:
        if not is_digit(x):
            parts.append(im.text(expression(x)))
            continue
        d, div, mod = x
        e = f"i{d} // {div}" if div > 1 else f"i{d}"
        if mod is not None:
            e = f"{e} % {mod}" if div == 1 else f"({e}) % {mod}"
        parts.append(e)
    return "".join(f"{p}, " for p in parts).rstrip(" " if len(parts) == 1 else ", ")


def digits_only(dims: tuple[LayoutDim, ...], ndim: int) -> bool:
    """Whether a layout consists of digits that rebuild every index, whatever the extents are."""
    varying = [x for x in dims if not is_int(x)]  # an index that stays what it is tells nothing
    digits = sorted((x for x in varying if is_digit(x)), key=lambda x: x[1])
    if len(digits) < len(varying):
        return False
    return all(_covers([(div, mod) for dim, div, mod in digits if dim == d]) for d in range(ndim))


def _covers(digits: list[tuple[int, int | None]]) -> bool:
    """Whether digits (div, mod), innermost first, rebuild an index exactly once."""
    weight = 1
    for i, (div, mod) in enumerate(digits):
        last = i == len(digits) - 1
        if div != weight or (mod is None) != last:
            return False
        weight *= mod or 1
    return bool(digits)


def layout_shape(
    shape: tuple[Extent, ...], dims: tuple[LayoutDim, ...], sizes: Sizes
) -> tuple[Extent, ...]:
    """Shape of a buffer in a layout; partial blocks are padded."""
    return tuple(_extent(shape, x, sizes) for x in dims)


def _extent(shape: tuple[Extent, ...], x: LayoutDim, sizes: Sizes) -> Extent:
    if is_digit(x):
        d, div, mod = x
        return mod if mod is not None else sizes.ceil_div(shape[d], div)
    lo, hi = im.bounds(expression(x), shape)
    return hi - lo + 1
