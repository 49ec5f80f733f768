"""Models of other systems as modules of graphs."""

from __future__ import annotations

from loopwright.graph.frontend import onnx

__all__ = ["onnx"]
