"""Loading of ONNX models from files and bytes, and checks before anything is converted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopwright.errors import GraphError

if TYPE_CHECKING:
    import onnx

#: Names of the domain of ONNX's own operators.
OWN_DOMAINS = ("", "ai.onnx")
#: The opsets whose meanings are known.
OPSETS = range(6, 29)


def onnx_package() -> Any:
    try:
        import onnx
    except ImportError as exc:
        raise GraphError(
            'ONNX models need the package onnx: pip install "loopwright[onnx]"'
        ) from exc
    return onnx


def load(model: str | Path | bytes | onnx.ModelProto) -> Any:
    """A model from a file (external data are read from its folder), from bytes, or as it is."""
    onnx = onnx_package()
    loaded = model if isinstance(model, onnx.ModelProto) else _parsed(model)
    if not loaded.graph.node and not loaded.graph.output:
        raise GraphError(f"{_what(model)} no ONNX model: it has no nodes and no outputs")
    return loaded


def _parsed(model: Any) -> Any:
    onnx = onnx_package()
    try:
        if isinstance(model, bytes):
            return onnx.load_model_from_string(model)
        return onnx.load(str(model))
    except FileNotFoundError as exc:
        raise GraphError(f"there is no file {str(model)!r}") from exc
    except Exception as exc:  # protobuf and onnx have errors of many kinds
        text = " ".join(str(exc).split())
        raise GraphError(f"{_what(model)} no ONNX model: {text:.200}") from exc


def _what(model: Any) -> str:
    return f"{str(model)!r} is" if isinstance(model, (str, Path)) else "this is"


def domain(name: str) -> str:
    """A domain by one canonical name; ONNX's own has two."""
    return "" if name in OWN_DOMAINS else name


def operator(node: Any) -> str:
    """The type of a node, prefixed with the domain where it is not ONNX's own."""
    prefix = f"{node.domain}::" if domain(node.domain) else ""
    return f"{prefix}{node.op_type}"


def opsets(imports: Any) -> dict[str, int]:
    """The versions of the domains that a model or a function declares."""
    return {domain(o.domain): int(o.version) for o in imports}


def check_opset(model: Any) -> dict[str, int]:
    """The versions of the domains of a model.

    An opset older than the supported ones counts as the first of them, where no operator of the
    model has changed in between.
    """
    found = opsets(model.opset_import)
    own = found.get("")
    if own is not None and 0 < own < OPSETS[0] and _unchanged(model.graph, own):
        own = found[""] = OPSETS[0]
    if own not in OPSETS and (own is not None or not found):
        raise GraphError(
            f"the model is of opset {own or 'none'}; {OPSETS[0]} to {OPSETS[-1]} are supported: "
            "convert it with onnx.version_converter"
        )
    return found


def _unchanged(graph: Any, opset: int) -> bool:
    """Whether all operators of a graph mean the same in the oldest known opset as in another."""
    onnx = onnx_package()
    for node in graph.node:
        inner = [a.g for a in node.attribute if a.HasField("g")]
        if not all(_unchanged(g, opset) for g in inner):
            return False
        if domain(node.domain):
            continue
        try:
            then, later = (onnx.defs.get_schema(node.op_type, v) for v in (opset, OPSETS[0]))
        except onnx.defs.SchemaError:
            return False
        if then.since_version != later.since_version:
            return False
    return True
