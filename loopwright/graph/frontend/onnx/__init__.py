"""ONNX models: each operator by the meaning that it has in the opset of the model."""

from __future__ import annotations

from loopwright.graph.frontend.onnx import operators
from loopwright.graph.frontend.onnx.model import from_onnx
from loopwright.graph.frontend.onnx.node import (
    Node,
    UnboundInputsError,
    converter,
    known_operators,
    stored,
)

#: Importing it registers the converters.
_OPERATORS = operators

__all__ = ["Node", "UnboundInputsError", "converter", "from_onnx", "known_operators", "stored"]
