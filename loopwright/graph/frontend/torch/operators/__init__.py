"""Converters of ATen's operators, a file for each kind; importing them registers them."""

from __future__ import annotations

from loopwright.graph.frontend.torch.operators import elementwise, nn, reductions, shapes, windows

__all__ = ["elementwise", "nn", "reductions", "shapes", "windows"]
