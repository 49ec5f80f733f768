"""Models of PyTorch: each ATen operator by its own meaning, and a backend of ``torch.compile``."""

from __future__ import annotations

from loopwright.graph.frontend.torch import operators
from loopwright.graph.frontend.torch.model import from_torch
from loopwright.graph.frontend.torch.node import Node, converter, known_operators

#: Importing it registers the converters.
_OPERATORS = operators

__all__ = ["Node", "converter", "from_torch", "known_operators"]
