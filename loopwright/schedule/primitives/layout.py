"""`transform_layout`: places of the elements of a buffer, as a map from its indices to new ones.

A dimension of a layout is a digit ``(dim, div, mod)`` of one index, or an expression of
`index_map`. Digits that rebuild every index are bijections whatever the extents are; other maps are
judged when the step is applied for the whole tensor, and before lowering for what the stage covers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite, prod
from typing import Any, TypeGuard

from loopwright.errors import ScheduleError
from loopwright.ir.affine import Extent
from loopwright.ir.expr import Binary, Cast, Const, Expr, Unary, Var, tracing
from loopwright.ir.sizes import Sizes, Symbol
from loopwright.schedule.bounds.results import Bounds
from loopwright.schedule.primitives import index_map
from loopwright.schedule.primitives.index_map import plus
from loopwright.schedule.primitives.storage import own_buffer
from loopwright.schedule.state import Digit, IllegalStep, IndexExpr, LayoutDim, State, refuse
from loopwright.schedule.steps import FieldType, Step, TraceNames, each, is_int, register


def _is_dimension(v: object) -> bool:
    if isinstance(v, tuple) and len(v) == 3 and is_int(v[0]) and v[0] >= 0:
        _, div, mod = v
        return is_int(div) and div > 0 and (mod is None or (is_int(mod) and mod > 0))
    return _is_json_expr(v)


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


@register("transform_layout", dims=FieldType(each(_is_dimension)))
class TransformLayout(Step):
    """Order the dimensions of the stage's buffer; see `loopwright.schedule.state.LayoutDim`."""

    dims: tuple[LayoutDim, ...]
    pad_value: float | None = None

    def __post_init__(self) -> None:
        # As Python reads the text of the map, so that this gives the very step again.
        object.__setattr__(self, "dims", tuple(map(_simplified, self.dims)))

    def apply(self, state: State, t: int) -> State:
        stage = own_buffer(state, self.stage)
        name = state.label(stage.id)
        if stage.align:
            raise IllegalStep(
                f"the strides of {name!r} are aligned already; call transform_layout before "
                "storage_align"
            )
        ndim = len(stage.op.shape)
        used = [d for x in self.dims for d in _indices(expression(x))]
        if any(d >= ndim for d in used):
            raise IllegalStep(
                f"the map ({layout_text(self.dims)}) uses index {max(used)}, {name!r} has {ndim} "
                "dimensions"
            )
        pad = self.pad_value
        if pad is not None and not (isinstance(pad, int | float) and isfinite(pad)):
            raise IllegalStep(f"pad_value must be a finite number, got {pad!r}")
        if why := why_not_one_to_one(self.dims, stage.op.shape, name, "has"):
            raise IllegalStep(why)
        if pad is not None and not all(isinstance(n, int) for n in stage.op.shape):
            raise IllegalStep(f"extents of {name!r} are variables: it takes no pad_value")
        return state.with_stage(replace(stage, layout=self.dims, pad_value=pad, laid_out=t))

    def arguments(self, names: TraceNames) -> str:
        indices = ", ".join(f"i{d}" for d in range(len(names.before.stages[self.stage].op.shape)))
        pad = "" if self.pad_value is None else f", pad_value={self.pad_value!r}"
        return f"lambda {indices}: ({layout_text(self.dims)}){pad}"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        for sb in bounds.stages.values():
            if (layout := sb.stage.layout) is None:
                continue
            if why := why_not_one_to_one(layout, sb.shape, state.label(sb.stage.id), "covers"):
                refuse("transform_layout", sb.stage.laid_out, why)


def why_not_one_to_one(
    dims: tuple[LayoutDim, ...], shape: Sequence[Extent | Expr], name: str, verb: str
) -> str:
    """Reason why a map takes two indices to one element, or uses a digit twice; or ''."""
    if _symbolic(dims) or digits_only(dims, len(shape)):
        return ""
    what = f"the map ({layout_text(dims)})"
    extents = tuple(n for n in shape if isinstance(n, int))
    if len(extents) < len(shape):
        return (
            f"{what} is judged by extents, and those of {name!r} are variables; use digits only "
            "(i, i // f, i % f)"
        )
    exprs = tuple(expression(x) for x in dims)
    verdict = index_map.judge(exprs, extents)
    if verdict == "one to one":
        return ""
    where = f"{what} is no bijection on the {list(shape)} elements that {name!r} {verb}"
    if (hit := index_map.collision(exprs, extents)) is not None:
        return (
            f"{where}: {hit[0]} and {hit[1]} both go to {hit[2]}; keep every index, whole or as "
            "i // f and i % f"
        )
    free = index_map.unreached(exprs, extents) if verdict == "redundant" else None
    if free is not None:
        return f"{where}: no index goes to {free}, an index is used twice; use each digit once"
    if prod(extents) > index_map.TRIED and verdict == "unknown":
        return (
            f"{what} could not be proved a bijection on {list(shape)}; write it with splits i // f "
            "and i % f and sums i * m + j in which m is the extent of j"
        )
    return ""


def _symbolic(x: object) -> bool:
    """Whether a map holds a number that is not known, which only the values could judge."""
    return isinstance(x, Symbol) or (isinstance(x, tuple) and any(map(_symbolic, x)))


def _simplified(x: LayoutDim) -> LayoutDim:
    """A dimension without operations that a number of 1 makes void."""
    if not is_digit(x):
        return index_map.simplified(expression(x))
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
            parts.append(index_map.text(expression(x)))
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
    weight: dict[int, int | None] = dict.fromkeys(range(ndim), 1)  # None: the index is complete
    for d, div, mod in digits:
        if d not in weight or div != weight[d]:
            return False
        weight[d] = None if mod is None else div * mod
    return len(digits) == len(varying) and not any(weight.values())


def layout_shape(
    shape: tuple[Extent, ...], dims: tuple[LayoutDim, ...], sizes: Sizes
) -> tuple[Extent, ...]:
    """Shape of a buffer in a layout; partial blocks are padded."""
    out: list[Extent] = []
    for x in dims:
        if is_digit(x):
            d, div, mod = x
            out.append(mod if mod is not None else sizes.ceil_div(shape[d], div))
        else:
            lo, hi = index_map.index_bounds(expression(x), shape)
            out.append(hi - lo + 1)
    return tuple(out)


def trace_map(index_map: Callable[..., object], ndim: int, who: str) -> tuple[LayoutDim, ...]:
    """Dimensions of the layout that a map returns for ``ndim`` index variables."""
    axes = [Var(f"i{d}") for d in range(ndim)]
    if not callable(index_map):
        raise ScheduleError(
            f"{who}: expected a function of {ndim} indices, such as {_example(ndim)}, got "
            f"{index_map!r}"
        )
    try:
        with tracing(who):
            result = index_map(*axes)
    except TypeError as e:
        raise ScheduleError(
            f"{who}: the map must take {ndim} indices, such as {_example(ndim)}: {e}"
        ) from e
    parts = result if isinstance(result, list | tuple) else (result,)
    dims = {v: d for d, v in enumerate(axes)}
    return tuple(_dimension(e, dims, who) for e in parts)


def _example(ndim: int) -> str:
    names = [f"i{d}" for d in range(ndim)]
    return f"lambda {', '.join(names)}: ({', '.join(reversed(names))},)"


def _dimension(e: object, dims: dict[Var, int], who: str) -> LayoutDim:
    """A digit ``(dim, div, mod)`` where it is one, else an expression."""
    rest, mod = _operand(e, "%", None)
    index, div = _operand(rest, "//", 1)
    positive = _positive(div) and (mod is None or _positive(mod))
    if isinstance(index, Var) and index in dims and positive:
        return dims[index], div, mod
    return _expression(e, dims, who)


def _operand(e: object, op: str, default: int | None) -> tuple[object, Any]:
    """Operand and constant of an operation ``op`` with a constant; else all of ``e``, and the
    default."""
    if isinstance(e, Binary) and e.op == op and isinstance(e.b, Const | Symbol):
        return e.a, _number(e.b)
    return e, default


def _number(e: Const | Symbol) -> Any:
    """The number of a constant; a `Symbol` stands for one."""
    return e if isinstance(e, Symbol) else int(e.value)


def _positive(v: object) -> bool:
    return isinstance(v, Symbol) or (isinstance(v, int) and v >= 1)


def _expression(e: object, dims: dict[Var, int], who: str) -> IndexExpr:
    match e:
        case int() if not isinstance(e, bool):
            return e
        case Const(value=int(v), dtype=d) if d != "bool":
            return v
        case Var() if e in dims:
            return f"i{dims[e]}"
        case Cast(value=v):
            return _expression(v, dims, who)
        case Unary(op="-", a=a):
            return ("*", _expression(a, dims, who), -1)
        case Binary(op="+", a=a, b=b):
            return plus(_expression(a, dims, who), _expression(b, dims, who))
        case Binary(op="-", a=a, b=b):
            y = _expression(b, dims, who)
            return plus(_expression(a, dims, who), -y if isinstance(y, int) else ("*", y, -1))
        case Binary(op="*", a=Const() | Symbol() as v, b=b):
            return ("*", _expression(b, dims, who), _number(v))
        case Binary(op="*", a=b, b=Const() | Symbol() as v):
            return ("*", _expression(b, dims, who), _number(v))
        case Binary(op="//" | "%" as op, a=a, b=Const() | Symbol() as v) if _positive(_number(v)):
            return (op, _expression(a, dims, who), _number(v))
    raise ScheduleError(
        f"{who}: each new index must be made of the old ones with +, -, and *, // and % by "
        f"constants (those of // and % positive), got {e!r}"
    )
