"""Converters of ONNX's operators, a file for each kind; importing them registers them."""

from __future__ import annotations

from loopwright.graph.frontend.onnx.operators import (
    activations,
    casts,
    control,
    elementwise,
    indexing,
    nn,
    quantized,
    recurrent,
    reductions,
    regions,
    resizing,
    sequences,
    shapes,
    signal,
    training,
    trees,
    windows,
)

__all__ = [
    "activations",
    "casts",
    "control",
    "elementwise",
    "indexing",
    "nn",
    "quantized",
    "recurrent",
    "reductions",
    "regions",
    "resizing",
    "sequences",
    "shapes",
    "signal",
    "training",
    "trees",
    "windows",
]
