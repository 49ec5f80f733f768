"""`transform_layout`: the order of a buffer's dimensions, as digits of the old indices."""

from __future__ import annotations

from loopwright.ir.affine import Extent
from loopwright.ir.sizes import Sizes
from loopwright.schedule import steps as st
from loopwright.schedule.state import LayoutDim, State, refuse
from loopwright.schedule.storage import own_buffer


def transform_layout(state: State, step: st.TransformLayout, t: int) -> State:
    """Set the order of a stage's buffer: digits of the old indices, each used once."""
    stage = own_buffer(state, step.stage, "transform_layout", t)
    if stage.align:
        refuse(
            "transform_layout",
            t,
            f"the strides of {state.label(stage.id)!r} are aligned already; call transform_layout "
            "before storage_align",
        )
    ndim = len(stage.op.shape)
    for d in sorted({*range(ndim), *(dim for dim, _, _ in step.dims)}):
        digits = [(div, mod) for dim, div, mod in step.dims if dim == d]
        if d >= ndim or not _covers(sorted(digits, key=lambda x: x[0])):
            refuse(
                "transform_layout",
                t,
                f"the map is not a bijection in dimension {d} of {state.label(stage.id)!r} "
                f"({ndim} dimensions): ({layout_text(step.dims)}); split a dimension as i // f "
                "and i % f, each once",
            )
    return state.with_stage(stage, layout=step.dims)


def layout_text(dims: tuple[LayoutDim, ...]) -> str:
    """The new indices of a layout as Python: ``i1 // 16, i0, i1 % 16,``."""
    parts = []
    for d, div, mod in dims:
        e = f"i{d} // {div}" if div > 1 else f"i{d}"
        if mod is not None:
            e = f"{e} % {mod}" if div == 1 else f"({e}) % {mod}"
        parts.append(e)
    return "".join(f"{p}, " for p in parts).rstrip(" " if len(parts) == 1 else ", ")


def _covers(digits: list[tuple[int, int | None]]) -> bool:
    """Digits (div, mod), innermost first, rebuild an index exactly once."""
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
    return tuple(mod if mod is not None else sizes.ceil_div(shape[d], div) for d, div, mod in dims)
