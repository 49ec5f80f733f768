"""Models of other systems as modules of graphs."""

from __future__ import annotations

from loopwright.graph.frontend import onnx, torch

__all__ = ["onnx", "torch"]
