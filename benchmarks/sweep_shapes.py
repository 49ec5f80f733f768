"""Shapes that nobody tuned for: those of the sweep, by kind, and products of random shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Sides of a random product; its least and most operations.
SIDES, FLOP = (4, 4096), (2e5, 6e9)


@dataclass(frozen=True)
class Shape:
    """One workload.

    Attributes:
        kind: the part of the sweep that it belongs to.
        op, params: the operator and its parameters as on the command line.
    """

    kind: str
    op: str
    params: tuple[str, ...]

    @property
    def name(self) -> str:
        """Row of the table."""
        sizes = [p.partition("=")[2] if p[0].isupper() else p for p in self.params]
        numbers = [x for x in sizes if x.isdigit()]
        return " ".join([self.op, "x".join(numbers), *(x for x in sizes if not x.isdigit())])


def _product(kind: str, sizes: str, *more: str) -> Shape:
    """``"MxNxK"``."""
    m, n, k = sizes.split("x")
    return Shape(kind, "matmul", (f"M={m}", f"N={n}", f"K={k}", *more))


def _dense(sizes: str, weight: str) -> Shape:
    m, n, k = sizes.split("x")
    plain = ("bias=false", "relu=false", f"weight={weight}")
    return Shape("dense", "dense", (f"M={m}", f"N={n}", f"K={k}", *plain))


def _batch(sizes: str) -> Shape:
    b, m, n, k = sizes.split("x")
    return Shape("batch", "batch_matmul", (f"B={b}", f"M={m}", f"N={n}", f"K={k}"))


def _conv(c: int, size: int, o: int, side: int, *more: str) -> Shape:
    given = {"N": 1, "C": c, "H": size, "W": size, "O": o, "KH": side, "KW": side}
    return Shape("conv", "conv2d", (*(f"{k}={v}" for k, v in given.items()), *more))


_SMALL = (
    "16x16x16 32x32x32 48x48x48 64x64x64 96x96x96 100x100x100 128x128x128 192x192x192 200x200x200 "
    "256x256x256"
)
_THIN = (
    "91x9x130 8x987x27 16x92x123 61x42x225 4x1024x1024 8x512x2048 16x4096x512 1024x8x1024 "
    "2048x16x256 512x24x512 1000x10x1000 3x3000x300 4096x32x64 7x4096x77"
)
_SHORT = "512x512x8 1024x1024x16 2000x300x12 333x777x5 128x4096x32"
_LONG = "256x256x8192 64x64x16384 128x128x4096 16x16x65536 32x512x8192 100x100x10000"
_LARGE = (
    "512x512x512 768x768x768 1024x1024x1024 1000x777x333 1024x4096x512 2048x512x2048 2048x2048x2048"
)
_ROW = "1x4096x4096 1x1024x1024 1x1000x2048 4096x1x4096 1x512x128"
_BATCH = "12x128x128x64 96x64x64x32 8x256x256x64 64x16x16x64 12x384x64x384"
_DENSE = "1x1000x512 8x1000x512 64x768x768 128x3072x768"

#: The fixed part of the sweep.
SHAPES = (
    *(_product("small", x) for x in _SMALL.split()),
    *(_product("thin", x) for x in _THIN.split()),
    *(_product("short K", x) for x in _SHORT.split()),
    *(_product("long K", x) for x in _LONG.split()),
    *(_product("large", x) for x in _LARGE.split()),
    *(_product("vector", x) for x in _ROW.split()),
    _product("transposed", "512x512x512", "trans_a=true"),
    _product("transposed", "512x512x512", "trans_b=true"),
    _product("transposed", "100x30x700", "trans_b=true"),
    *(_batch(x) for x in _BATCH.split()),
    *(_dense(x, weight) for x in _DENSE.split() for weight in ("NK", "KN")),
    _conv(24, 112, 144, 1),
    _conv(64, 56, 256, 1),
    _conv(256, 56, 64, 1),
    _conv(512, 7, 2048, 1),
    _conv(64, 56, 256, 1, "layout=NHWC"),
    _conv(3, 224, 64, 7, "stride=2", "pad=3"),
    _conv(64, 56, 64, 3, "pad=1"),
    _conv(64, 56, 64, 3, "pad=1", "layout=NHWC"),
)


def random_products(count: int, seed: int) -> list[Shape]:
    """Products with logarithms of sides that are drawn evenly, of few operations or many.

    Args:
        count: how many.
        seed: of the random numbers.
    """
    rng = np.random.default_rng(seed)
    low, high = np.log(SIDES)
    found: list[Shape] = []
    while len(found) < count:
        m, n, k = np.exp(rng.uniform(low, high, 3)).astype(int).tolist()
        if FLOP[0] <= 2 * m * n * k <= FLOP[1]:
            found.append(_product("random", f"{m}x{n}x{k}"))
    return found
