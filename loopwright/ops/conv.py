"""Definitions that the convolutions and poolings share: padding, windows, references.

Data is (N, C, H, W) for ``"NCHW"`` and (N, H, W, C) for ``"NHWC"``; weights are (O, C / groups, KH,
KW) and (KH, KW, C / groups, O).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ir.expr import Expr, ExprLike
from loopwright.ops.operator import Array, LoopOrIndex

LAYOUTS = ("NCHW", "NHWC")
T = TypeVar("T")


def pair(v: object, what: str, op: str = "conv2d") -> tuple[int, int]:
    """``v`` if it is a pair, else ``(v, v)``; ``what`` and ``op`` are for messages."""
    both = (v, v) if isinstance(v, int) else v
    if not isinstance(both, list | tuple) or len(both) != 2 or not all(map(_is_int, both)):
        raise TensorError(f"{op}: {what} is an integer or a pair of integers, got {v!r}")
    return both[0], both[1]


def _is_int(x: object) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def check_layout(layout: str, op: str = "conv2d") -> None:
    if layout not in LAYOUTS:
        raise TensorError(f"{op}: layout is one of {', '.join(LAYOUTS)}, got {layout!r}")


def check_groups(groups: int, c: int, o: int) -> None:
    """Refuse groups that do not divide the channels."""
    whole = isinstance(groups, int) and not isinstance(groups, bool) and groups > 0
    if not whole or c % groups or o % groups:
        raise TensorError(
            f"conv2d: {groups} groups do not divide {c} input and {o} output channels"
        )


def by_role(axes: Sequence[T], layout: str) -> tuple[T, T, T, T]:
    """Four axes (or extents) in the order of a layout as (n, channel, y, x)."""
    a, b, c, d = axes
    return (a, b, c, d) if layout == "NCHW" else (a, d, b, c)


@dataclass(frozen=True)
class Window:
    """Sliding window of a kernel: its extents, and pairs (y, x) of stride, padding and dilation."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    def out(self, size: tuple[int, int], op: str) -> tuple[int, int]:
        if min(*self.stride, *self.dilation) < 1 or min(self.pad) < 0:
            raise TensorError(
                f"{op}: stride {self.stride} and dilation {self.dilation} must be positive, "
                f"padding {self.pad} not negative"
            )
        (oh, ow) = (
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(
                size, self.pad, self.dilation, self.kernel, self.stride, strict=True
            )
        )
        if min(oh, ow) < 1:
            kernel = "x".join(map(str, self.kernel))
            wide = "" if self.dilation == (1, 1) else f" dilated by {self.dilation}"
            raise TensorError(
                f"{op}: a {kernel} kernel{wide} does not fit {size[0]}x{size[1]} padded by "
                f"{self.pad}"
            )
        return oh, ow

    def at(
        self, y: LoopOrIndex, x: LoopOrIndex, r: LoopOrIndex, q: LoopOrIndex
    ) -> tuple[Expr, Expr]:
        """Place in the padded image of tap (r, q) for the result at (y, x)."""
        (sh, sw), (dh, dw) = self.stride, self.dilation
        return y * sh + r * dh, x * sw + q * dw


def pad_compute(
    X: te.Tensor,
    pad: tuple[int, int],
    layout: str = "NCHW",
    value: ExprLike = 0,
    name: str = "pad",
) -> te.Tensor:
    """``value`` around the two spatial dimensions; X itself where there is nothing to add."""
    if pad == (0, 0):
        return X
    first = layout.index("H")
    extents = {first: (pad[0], X.shape[first]), first + 1: (pad[1], X.shape[first + 1])}
    shape = [n + 2 * extents[d][0] if d in extents else n for d, n in enumerate(X.shape)]

    def element(*at: ExprLike) -> Expr:
        tests = [c for d, (p, n) in extents.items() for c in (at[d] >= p, at[d] < n + p)]
        source = [i - extents[d][0] if d in extents else i for d, i in enumerate(at)]
        return te.if_then_else(te.all(*tests), X[tuple(source)], value)

    names = [c.lower() for c in layout]
    padded: te.Tensor = te.compute(shape, element, name=name, tag="pad", varargs_names=names)
    return padded


def windows(x: Array, w: Window, value: float = 0) -> Array:
    """NumPy view (N, C, OH, OW, KH, KW) of the taps of an NCHW image."""
    (ph, pw), (dh, dw), (sh, sw) = w.pad, w.dilation, w.stride
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)), constant_values=value)
    reach = (dh * (w.kernel[0] - 1) + 1, dw * (w.kernel[1] - 1) + 1)
    views = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
    return views[:, :, ::sh, ::sw, ::dh, ::dw]
