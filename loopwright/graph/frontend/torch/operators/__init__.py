"""Converters of ATen's operators, a file for each kind; importing them registers them."""

from __future__ import annotations

from loopwright.graph.frontend.torch.operators import (
    attention,
    elementwise,
    indexing,
    nn,
    products,
    reductions,
    shapes,
    windows,
)

__all__ = [
    "attention",
    "elementwise",
    "indexing",
    "nn",
    "products",
    "reductions",
    "shapes",
    "windows",
]
