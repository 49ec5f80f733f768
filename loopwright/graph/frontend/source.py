"""Model arguments: a module, or a model of another system that becomes one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx import from_onnx
from loopwright.graph.frontend.torch import from_torch
from loopwright.graph.ir.module import IRModule

if TYPE_CHECKING:
    import onnx
    import torch

#: A module; an ONNX model: a file, its bytes, or the model itself; or a model of PyTorch.
ModelLike: TypeAlias = (
    "IRModule | str | Path | bytes | onnx.ModelProto | torch.nn.Module "
    "| torch.export.ExportedProgram"
)


def module_of(
    model: ModelLike, *, example_inputs: Sequence[Any] | None = None, fallback: bool = True
) -> IRModule:
    """The module of a model: itself, or converted as `from_onnx` and `from_torch` do."""
    if is_torch(model):
        return from_torch(model, example_inputs, fallback=fallback)
    if example_inputs is not None:
        raise GraphError(
            f"example_inputs are for a torch.nn.Module; this model is a {type(model).__name__}"
        )
    check_model(model)
    if isinstance(model, IRModule):
        return model
    return from_onnx(model, fallback=fallback)


def check_model(model: object) -> None:
    """Raise GraphError unless this is a module or an ONNX model."""
    if isinstance(model, (IRModule, str, Path, bytes)) or hasattr(model, "SerializeToString"):
        return
    raise GraphError(
        f"a {type(model).__name__} is no model; give a module, an ONNX model as a file, its "
        "bytes, or a ModelProto, or a torch.nn.Module with example_inputs"
    )


def is_torch(model: object) -> bool:
    """Whether it is a model of PyTorch, which is loaded then."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))
