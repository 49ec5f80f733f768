"""Winograd convolutions: implementations of convolutions with windows of 3 x 3 and stride 1.

F(m x m, 3 x 3) makes m x m results by (m + 2)^2 multiplications a channel, where the definition
takes 9 m^2: tiles and windows are transformed, multiplied position by position and transformed back
(Winograd, 1980; Lavin and Gray, CVPR 2016, from which the matrices are). Constant windows are
transformed once. Precision is lost: little for m = 2; m = 4 only where a `loopwright.PassContext`
allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from loopwright import te
from loopwright.graph.ir.expr import Attrs, Size
from loopwright.graph.op.shapes import pads_of, several
from loopwright.graph.registry import PLEVEL, is_constant, register_implementation
from loopwright.ops import compute, padded
from loopwright.target import Target
from loopwright.te import static_shape

Matrix = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Transforms:
    """The matrices of F(m x m, 3 x 3)."""

    image: Matrix  # (m + 2, m + 2), for the image; B^T of Lavin and Gray
    window: Matrix  # (m + 2, 3), for the window; G
    back: Matrix  # (m, m + 2), for the sums; A^T

    @property
    def step(self) -> int:
        """m, the rows and columns of the result in a tile."""
        return len(self.back)


F2 = Transforms(
    image=[[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
    window=[[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
    back=[[1, 1, 1, 0], [0, 1, -1, -1]],
)
F4 = Transforms(
    image=[
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
    window=[
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ],
    back=[[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
)
#: The largest errors, as `Implementation` defines them, and as tests bound them.
F2_ERROR, F4_ERROR = 2e-6, 4e-5


def winograd(
    transforms: Transforms,
    shape: tuple[Size, int, int, int],
    channels: int,
    image: Callable[..., Any],
    weight: Callable[..., Any],
) -> Callable[..., Any]:
    """The value of a convolution at (image, row, column, channel), by Winograd's algorithm.

    ``shape`` has these four extents. ``image`` reads the padded image at such an index, ``weight``
    the window at (row, column, channel of the image, channel).
    """
    step, places = transforms.step, len(transforms.image)
    images, height, width, outputs = shape
    down, across = -(-height // step), -(-width // step)
    columns = across * step + 2
    rows = te.compute(
        (places, images, down, columns, channels),
        lambda a, n, y, x, c: _row(transforms.image, a, lambda i: image(n, y * step + i, x, c)),
        name="tile_rows",
    )
    tiles = te.compute(
        (places, places, images, down, across, channels),
        lambda a, b, n, y, x, c: _row(
            transforms.image, b, lambda j: rows(a, n, y, x * step + j, c)
        ),
        name="tiles",
    )
    window_rows = te.compute(
        (places, 3, channels, outputs),
        lambda a, s, c, o: _row(transforms.window, a, lambda r: weight(r, s, c, o)),
        name="window_rows",
    )
    windows = te.compute(
        (places, places, channels, outputs),
        lambda a, b, c, o: _row(transforms.window, b, lambda s: window_rows(a, s, c, o)),
        name="windows",
    )
    k = te.reduce_axis((0, channels), name="c")
    sums = te.compute(
        (places, places, images, down, across, outputs),
        lambda a, b, n, y, x, o: te.sum(tiles(a, b, n, y, x, k) * windows(a, b, k, o), axis=k),
        name="sums",
    )
    back = te.compute(
        (step, places, images, down, across, outputs),
        lambda r, b, n, y, x, o: _row(transforms.back, r, lambda i: sums(i, b, n, y, x, o)),
        name="result_rows",
    )

    def value(n: Any, y: Any, x: Any, o: Any) -> Any:
        tile = te.indexdiv(y, step), te.indexdiv(x, step)
        row = te.indexmod(y, step)
        return _row(transforms.back, te.indexmod(x, step), lambda j: back(row, j, n, *tile, o))

    return value


def _row(matrix: Matrix, at: Any, read: Callable[[int], Any]) -> Any:
    """The product of a row of a matrix with a vector, chosen at once where the loop is unrolled."""
    *others, last = matrix
    product = _combined(last, read)
    for n, row in reversed(list(enumerate(others))):
        product = te.select(te.equal(at, n), _combined(row, read), product)
    return product


def _combined(row: Sequence[float], read: Callable[[int], Any]) -> Any:
    total: Any = None
    for n, factor in enumerate(row):
        if not factor:
            continue
        x = read(n)
        if total is None:
            total = x if factor == 1 else x * te.const(factor, x.dtype)
            continue
        term = x if abs(factor) == 1 else x * te.const(abs(factor), x.dtype)
        total = total + term if factor > 0 else total - term
    return total


#: Channels below which there is little to reuse.
_FEWEST = 16
#: Thresholds to take it without a measurement: the least factor of saved multiplications, above
#: which it was always measured to be faster; and operations saved for each byte by which windows
#: grow, since weights come from memory in every run of a model: with 13 (images of 7 x 7, m = 2)
#: both took as long inside of resnet18, with 70 (14 x 14) it was faster by half.
_SAVED, _FOR_A_BYTE = 1.7, 30
#: Bytes of vector registers for which that was measured.
_WIDE = 64
_CPUS = ("llvm", "c", "interp")


def _extents(inputs: Sequence[te.Tensor], attrs: Attrs, last: bool) -> tuple[int, ...] | None:
    """Images, channels, padded rows and columns, outputs; None for other windows than 3 x 3."""
    data, weight = inputs
    if len(data.shape) != 4 or len(weight.shape) != 4:
        return None
    if not all(isinstance(n, int) for n in (*data.shape[1:], *weight.shape)):
        return None
    if last:
        *window, channels, outputs = weight.static_shape
    else:
        outputs, channels, *window = weight.static_shape
    if window != [3, 3]:
        return None
    # A batch that varies counts as one image here, which is all that a priority asks.
    images = data.shape[0] if isinstance(data.shape[0], int) else 1
    height, width = _rows_and_columns(data, attrs, last)
    (top, bottom), (left, right) = pads_of(attrs["padding"], 2)
    return images, channels, height + top + bottom, width + left + right, outputs


def _reads_last(attrs: Attrs, last: bool) -> bool:
    """Whether the channels of the image are last; ``last`` says so of the result."""
    return last and attrs.get("data_layout", "channels_last") == "channels_last"


def _rows_and_columns(data: te.Tensor, attrs: Attrs, last: bool) -> tuple[int, int]:
    rows, columns = static_shape(data.shape[1:3] if _reads_last(attrs, last) else data.shape[2:])
    return rows, columns


def _computes(
    inputs: Sequence[te.Tensor], attrs: Attrs, target: Target, transforms: Transforms, last: bool
) -> bool:
    """Whether a call is a convolution of constant windows of 3 x 3 with stride 1, in float32."""
    data, weight = inputs
    extents = _extents(inputs, attrs, last)
    if extents is None or target.kind not in _CPUS or not is_constant(weight):
        return False
    plain = all(several(attrs[n], 2, n) == (1, 1) for n in ("strides", "dilation"))
    dtypes = {data.dtype, weight.dtype, attrs["out_dtype"] or data.dtype}
    if not plain or attrs["groups"] != 1 or dtypes != {"float32"}:
        return False
    _, channels, height, width, outputs = extents
    return min(channels, outputs) >= _FEWEST and min(height, width) - 2 >= transforms.step


def _priority(
    inputs: Sequence[te.Tensor], attrs: Attrs, target: Target, transforms: Transforms, last: bool
) -> int:
    """A priority above the definition's where it was measured to be faster without tuning."""
    extents = _extents(inputs, attrs, last)
    assert extents is not None, "asked after the condition"
    images, height, width = extents[0], extents[2] - 2, extents[3] - 2
    step, places = transforms.step, len(transforms.image) ** 2
    tiles = -(-height // step) * -(-width // step)
    # The multiplications of the definition as a multiple of those of the algorithm.
    factor = 9 * height * width / (places * tiles)
    saved = 18 * images * height * width * (1 - 1 / factor)
    pays = _reads_last(attrs, last) and target.vector_bytes >= _WIDE
    pays = pays and factor >= _SAVED and saved >= _FOR_A_BYTE * 4 * (places - 9)
    return PLEVEL + step if pays else PLEVEL - step


def _implementation(transforms: Transforms, last: bool) -> Callable[..., te.Tensor]:
    def conv(data: te.Tensor, weight: te.Tensor, **attrs: Any) -> te.Tensor:
        extents, step = weight.static_shape, transforms.step
        outputs, channels = (extents[-1], extents[-2]) if last else extents[:2]
        pads, size = [], []
        image = _rows_and_columns(data, attrs, last)
        for (low, high), extent in zip(pads_of(attrs["padding"], 2), image, strict=True):
            count = extent + low + high - 2
            # Tiles at the end may be larger than what is left of the image.
            pads.append((low, high + -count % step))
            size.append(count)
        at_end = _reads_last(attrs, last)
        x = padded(data, pads, 1 if at_end else 2)
        rows, columns = size
        shape = (data.shape[0], rows, columns, outputs)
        value = winograd(
            transforms,
            shape,
            channels,
            x if at_end else (lambda n, row, column, c: x(n, c, row, column)),
            weight if last else (lambda r, s, c, o: weight(o, c, r, s)),
        )
        if last:
            return compute(shape, value, name="conv")
        return compute(
            (data.shape[0], outputs, rows, columns),
            lambda n, o, y, x: value(n, y, x, o),
            name="conv",
        )

    return conv


for _transforms, _error in ((F2, F2_ERROR), (F4, F4_ERROR)):
    for _op, _last in (("nn.conv_channels_last", True), ("nn.conv", False)):
        register_implementation(
            _op,
            f"winograd_{_transforms.step}x{_transforms.step}",
            plevel=partial(_priority, transforms=_transforms, last=_last),
            condition=partial(_computes, transforms=_transforms, last=_last),
            error=_error,
        )(_implementation(_transforms, _last))
