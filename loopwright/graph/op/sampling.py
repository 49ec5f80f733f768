"""Images sampled at positions that another tensor gives."""

from __future__ import annotations

from functools import reduce
from itertools import product
from operator import mul
from typing import Any

from loopwright import te
from loopwright.errors import GraphError
from loopwright.graph.op.shapes import require_same, static_shape
from loopwright.graph.registry import Pattern, register_op

_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")
#: Parameter a of the kernel of Keys (1981), as in PyTorch and ONNX.
_CUBIC = -0.75


@register_op("nn.grid_sample", Pattern.OPAQUE)
def grid_sample(
    data: te.Tensor,
    grid: te.Tensor,
    *,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> te.Tensor:
    """(N, C, ...) sampled at places (N, ..., rank), from -1 to 1, whose last one is the first."""
    if mode not in _MODES or padding_mode not in _PADDINGS:
        raise GraphError(f"modes are {_MODES} and {_PADDINGS}, got {mode!r} and {padding_mode!r}")
    image = static_shape(data, "grid_sample")[2:]
    require_same(grid.shape[-1], len(image), "the numbers of a place and the image's dimensions")
    require_same(grid.shape[0], data.shape[0], "how many images and grids there are")
    wide = "float64" if data.dtype == "float64" else "float32"

    def value(n: Any, c: Any, *o: Any) -> Any:
        taps = []
        for d, extent in enumerate(image):
            x = grid(n, *o, len(image) - 1 - d).astype(wide)
            x = _place(x, extent, align_corners)
            taps.append(_taps(x, extent, mode, padding_mode, align_corners))
        parts = []
        for chosen in product(*taps):
            numbers, weights, inside = zip(*chosen, strict=True)
            element = data(n, c, *numbers).astype(wide)
            if padding_mode == "zeros":  # not times 0, which infinity is not
                element = te.if_then_else(te.all(*inside), element, te.const(0, wide))
            parts.append(element * reduce(mul, weights))
        return reduce(lambda a, b: a + b, parts).astype(data.dtype)

    shape = (*data.shape[:2], *grid.shape[1:-1])
    tensor: te.Tensor = te.compute(shape, value, name="grid_sample")
    return tensor


def _place(x: Any, extent: int, align_corners: bool) -> Any:
    """A coordinate from -1 to 1 in elements."""
    if align_corners:
        return (x + 1) * ((extent - 1) / 2)
    return ((x + 1) * extent - 1) / 2


def _ends(extent: int, align_corners: bool) -> tuple[float, float]:
    """The first and the last coordinate of an image."""
    return (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)


def _reflected(x: Any, extent: int, align_corners: bool) -> Any:
    """A position reflected at both ends, as often as it takes."""
    low, high = _ends(extent, align_corners)
    span = high - low
    if span == 0:
        return x * 0
    size = te.abs(x - low)
    turns = te.floor(size / span)
    rest = size - turns * span
    odd = turns - te.floor(turns / 2) * 2
    return te.if_then_else(odd > 0.5, high - rest, rest + low)


def _taps(
    x: Any, extent: int, mode: str, padding_mode: str, align_corners: bool
) -> list[tuple[Any, Any, Any]]:
    """Elements along a dimension, their weights, and whether they are inside the image."""
    x = te.nearbyint(x) if mode == "nearest" else x
    if mode != "cubic" and padding_mode != "zeros":
        low, high = _ends(extent, align_corners)
        outside = te.any(x < low, x > high)
        x = te.if_then_else(outside, _inside(x, extent, padding_mode, align_corners), x)
    if mode == "nearest":
        return [_tap(x, te.const(1, x.dtype), extent, padding_mode, align_corners)]
    first = te.floor(x)
    t = x - first
    if mode == "linear":
        weights = [1 - t, t]
        places = [first, first + 1]
    else:
        weights = [_far(t + 1), _near(t), _near(1 - t), _far(2 - t)]
        places = [first + n for n in range(-1, 3)]
    pairs = zip(places, weights, strict=True)
    return [_tap(p, w, extent, padding_mode, align_corners) for p, w in pairs]


def _inside(x: Any, extent: int, padding_mode: str, align_corners: bool) -> Any:
    if padding_mode == "reflection":
        return _reflected(x, extent, align_corners)
    return te.max(te.min(x, extent - 1.0), 0.0)


def _tap(
    place: Any, weight: Any, extent: int, padding_mode: str, align_corners: bool
) -> tuple[Any, Any, Any]:
    inside = te.all(place >= 0, place <= extent - 1)
    if padding_mode != "zeros":
        place = _inside(place, extent, padding_mode, align_corners)
    held = te.max(te.min(place, extent - 1.0), 0.0)
    return held.astype("int32"), weight, inside


def _near(x: Any) -> Any:
    return ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1


def _far(x: Any) -> Any:
    return ((_CUBIC * x - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC
