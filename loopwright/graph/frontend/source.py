"""What stands for a model: a module, or a model of another system that becomes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx import from_onnx
from loopwright.graph.ir.module import IRModule

if TYPE_CHECKING:
    import onnx

#: A module; or an ONNX model: a file, its bytes, or the model itself.
ModelLike: TypeAlias = "IRModule | str | Path | bytes | onnx.ModelProto"


def module_of(model: ModelLike, shape: Mapping[str, Sequence[int]] | None = None) -> IRModule:
    """The module of a model.

    Args:
        model: a module, which is returned as it is, or an ONNX model.
        shape: shapes of inputs of an ONNX model by name, see `from_onnx`.

    Raises:
        GraphError: it is no model, or one that cannot be imported.
    """
    if isinstance(model, IRModule):
        return model
    if not isinstance(model, (str, Path, bytes)) and not hasattr(model, "SerializeToString"):
        raise GraphError(
            f"a {type(model).__name__} is no model; give a module, or an ONNX model as a file, its "
            "bytes, or a ModelProto"
        )
    return from_onnx(model, shape=shape)
