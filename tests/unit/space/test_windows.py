"""Windows on CPUs: which structures there are, what code they make, and that it is right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import loopwright as lw
from loopwright import dtypes, ops, te
from loopwright.space import Structure, structures

TARGET = "llvm -mcpu=x86-64-v3 -num-threads=1"
Array = npt.NDArray[Any]


def taps(x: Array, kernel: int, stride: int, pad: int, fill: float) -> Array:
    """All windows of NCHW data: (N, C, OH, OW, kernel, kernel)."""
    around = ((0, 0), (0, 0), (pad, pad), (pad, pad))
    padded = np.pad(x, around, constant_values=x.dtype.type(fill))
    found = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
    return found[:, :, ::stride, ::stride]


def inputs(shape: tuple[int, ...], dtype: str) -> Array:
    return np.random.default_rng(len(dtype)).integers(-5, 6, shape).astype(dtype)


Windowed = tuple[list[te.Tensor], list[Array], Array]


def largest(
    shape: tuple[int, ...], dtype: str, kernel: int, stride: int, pad: int, layout: str = "NCHW"
) -> Windowed:
    x = inputs(shape, dtype)
    X = te.placeholder(shape, dtype, name="X")
    each, around = (stride, stride), (pad, pad)
    _, Y = ops.pool2d_compute(X, (kernel, kernel), each, around, layout=layout)
    first = x if layout == "NCHW" else x.transpose(0, 3, 1, 2)
    y = taps(first, kernel, stride, pad, dtypes.limits(dtype)[0]).max((-1, -2))
    return [X, Y], [x], y if layout == "NCHW" else y.transpose(0, 2, 3, 1)


def mean(shape: tuple[int, ...], dtype: str, kernel: int, stride: int, pad: int) -> Windowed:
    x = inputs(shape, dtype)
    X = te.placeholder(shape, dtype, name="X")
    each, around = (stride, stride), (pad, pad)
    _, Y = ops.pool2d_compute(X, (kernel, kernel), each, around, kind="avg")
    inside = taps(np.ones_like(x), kernel, stride, pad, 0).sum((-1, -2))
    return [X, Y], [x], taps(x, kernel, stride, pad, 0).sum((-1, -2)) / inside


def depthwise(shape: tuple[int, ...], dtype: str, kernel: int, stride: int, pad: int) -> Windowed:
    x, w = inputs(shape, dtype), inputs((shape[1], 1, kernel, kernel), dtype)
    X, W = te.placeholder(shape, dtype, name="X"), te.placeholder(w.shape, dtype, name="W")
    Y = ops.depthwise_conv2d_compute(X, W, (stride, stride), (pad, pad))
    wide = Y.dtype
    found = taps(x, kernel, stride, pad, 0).astype(wide) * w[:, 0, None, None].astype(wide)
    return [X, W, Y], [x, w], found.sum((-1, -2), dtype=wide)


CASES: dict[str, Callable[[], Windowed]] = {
    "largest, stride 2": lambda: largest((1, 3, 9, 37), "float32", 3, 2, 1),
    "largest of bytes": lambda: largest((2, 2, 7, 150), "int8", 3, 2, 1),
    "largest, stride 3, odd": lambda: largest((1, 2, 11, 29), "float64", 5, 3, 2),
    "largest in NHWC": lambda: largest((1, 7, 9, 19), "float32", 3, 2, 1, "NHWC"),
    "largest without padding": lambda: largest((1, 8, 8, 33), "float32", 2, 2, 0),
    "mean, stride 2": lambda: mean((1, 3, 9, 37), "float32", 3, 2, 1),
    "mean of doubles": lambda: mean((1, 2, 5, 13), "float64", 3, 1, 1),
    "depthwise 5x5": lambda: depthwise((1, 3, 7, 35), "float32", 5, 1, 2),
    "depthwise, stride 2, bytes": lambda: depthwise((1, 2, 9, 41), "int8", 3, 2, 1),
    "depthwise, one row": lambda: depthwise((1, 1, 1, 50), "float64", 3, 1, 1),
}


def derived(args: list[te.Tensor]) -> list[Structure]:
    with lw.Target(TARGET):
        return structures(args[-1], args)


#: Small ones of each operation, with and without padding and strides.
FAST = ("largest without padding", "mean of doubles", "depthwise, one row")
assert CASES.keys() >= {*FAST}


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=() if x in FAST else pytest.mark.slow) for x in CASES]
)
def test_structures_compute_what_numpy_does(name: str) -> None:
    args, given, right = CASES[name]()
    for structure in derived(args):
        space = structure.config_space
        for index in dict.fromkeys([space.default_index, *space.sample_ints(1, len(name))]):
            out = np.frombuffer(b"\x7f" * (8 * right.size), args[-1].dtype)
            out = out[: right.size].reshape(right.shape).copy()
            config = space.get(index)
            lw.build(*structure.instantiate(config), TARGET)(*given, out)
            np.testing.assert_allclose(out, right, rtol=1e-6, err_msg=f"{structure}: {config}")


def test_nan_comes_out_of_every_window_that_holds_one() -> None:
    (X, Y), (x,), _ = largest((1, 2, 8, 33), "float32", 3, 2, 1)
    x[0, 1, 3, 20] = np.nan
    y = taps(x, 3, 2, 1, -np.inf).max((-1, -2))
    structure = derived([X, Y])[0]
    default = structure.config_space.get(structure.config_space.default_index)
    out = np.zeros(y.shape, "float32")
    lw.build(*structure.instantiate(default), TARGET)(x, out)
    np.testing.assert_array_equal(out, y)
    assert np.isnan(out).sum() == 2


PADDED = [
    "tiles along x, taps written out",
    "tiles along x, taps written out, producers at task",
    "tiles along x, taps written out, producers at root",
    "tiles along x",
]


def tiles_of(args: list[te.Tensor]) -> list[str]:
    """The names of the structures with register tiles."""
    return [s.name for s in derived(args) if s.name.startswith("tiles")]


def test_windows_are_written_out_as_far_as_the_code_stays_short() -> None:
    assert tiles_of(depthwise((1, 3, 16, 40), "float32", 5, 1, 2)[0]) == PADDED
    without = tiles_of(largest((1, 8, 8, 33), "float32", 2, 2, 0)[0])
    assert without == ["tiles along w, taps written out", "tiles along w"]
    # Nine by nine taps are too many.
    many = tiles_of(depthwise((1, 3, 16, 40), "float32", 9, 1, 4)[0])
    assert many == [n.replace(", taps written out", "") for n in PADDED[:3]]
    # A padded row of many vectors would be written out as a whole.
    assert tiles_of(depthwise((1, 8, 8, 4096), "float32", 7, 1, 3)[0]) == PADDED[1:]


def test_long_rows_leave_the_tiles_of_which_the_code_stays_short() -> None:
    few, many = (derived(depthwise((1, 8, 8, n), "float32", 3, 1, 1)[0])[0] for n in (32, 512))
    assert many.name == few.name
    rows = [s.config_space.knobs["tile"].parts()[0] for s in (few, many)]
    assert max(rows[0]) > max(rows[1]) == 1


def compared_lanes(structure: Structure, tile: tuple[int, int]) -> int:
    """Comparisons of vectors of indices in the code of a tile: masks that are no constants."""
    space = structure.config_space
    every = (space.get(n) for n in range(space.range_length))
    at = next(c for c in every if tuple(c["tile"].val) == tile)
    f = lw.build(*structure.instantiate(at), TARGET)
    return len(re.findall(r"icmp \w+ <\d+ x i\d+>", str(f.get_source("ll"))))


def test_masks_of_padded_rows_that_are_written_out_are_constants() -> None:
    written, *_, plain = derived(largest((1, 8, 20, 64), "float32", 3, 2, 1)[0])
    assert compared_lanes(written, (2, 8)) == 0
    assert compared_lanes(plain, (2, 8)) > 0


def cost_volume(n: int, size: int, shifts: int) -> Windowed:
    """How well two images fit, one of them shifted."""
    a, b = inputs((n, size, size), "float32"), inputs((n, size, size + shifts - 1), "float32")
    A, B = te.placeholder(a.shape, name="A"), te.placeholder(b.shape, name="B")
    c = te.reduce_axis((0, n), name="c")
    Y = te.compute(
        (shifts, size, size), lambda d, y, x: te.sum(A[c, y, x] * B[c, y, x + d], axis=c), name="Y"
    )
    moved = np.lib.stride_tricks.sliding_window_view(b, size, axis=2)
    return [A, B, Y], [a, b], np.einsum("cyx,cydx->dyx", a, moved)


def test_rows_of_a_tile_run_where_an_operand_stands_still() -> None:
    """Each vector of one image is used for several shifts of the other one."""
    args, arrays, right = cost_volume(5, 20, 6)
    tiles = next(s for s in derived(args) if s.name == "tiles along x")
    space = tiles.config_space
    config = next(c for c in map(space.get, range(space.range_length)) if c["tile"].val[0] == 4)
    s, given = tiles.instantiate(config)
    assert re.search(r"for d\w* in unrolled\(4\)", str(lw.lower(s, given)))
    for index in [space.default_index, *space.sample_ints(3, 0)]:
        out = np.full(right.shape, np.nan, "float32")
        lw.build(*tiles.instantiate(space.get(index)), TARGET)(*arrays, out)
        np.testing.assert_array_equal(out, right)
