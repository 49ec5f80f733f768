"""Converters of ONNX's operators, a file for each kind; importing them registers them."""

from __future__ import annotations

from loopwright.graph.frontend.onnx.operators import (
    control,
    elementwise,
    nn,
    quantized,
    reductions,
    resizing,
    shapes,
    trees,
    windows,
)

__all__ = [
    "control",
    "elementwise",
    "nn",
    "quantized",
    "reductions",
    "resizing",
    "shapes",
    "trees",
    "windows",
]
