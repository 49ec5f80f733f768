"""ONNX files and their parts: loading, checks, sparse tensors, function bodies of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import GraphError
from loopwright.extras import install
from loopwright.graph.ir.expr import TensorType, TupleType, Type

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
        raise GraphError(f"ONNX models need the package onnx: {install('onnx')}") from exc
    return onnx


def numpy_dtype(number: int) -> np.dtype[Any]:
    dtype: np.dtype[Any] = onnx_package().helper.tensor_dtype_to_np_dtype(number)
    return dtype


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
    """The versions of the domains of a model. An opset older than the supported ones counts as the
    first of them, where no operator of the model has changed in between.
    """
    versions = opsets(model.opset_import)
    own = versions.get("")
    if own is not None and 0 < own < OPSETS[0] and _unchanged(model.graph, own):
        own = versions[""] = OPSETS[0]
    if own not in OPSETS and (own is not None or not versions):
        raise GraphError(
            f"the model is of opset {own or 'none'}; {OPSETS[0]} to {OPSETS[-1]} are supported: "
            "convert it with onnx.version_converter"
        )
    return versions


def _unchanged(graph: Any, opset: int) -> bool:
    """Whether all operators of a graph mean the same in the oldest known opset as in another."""
    defs = onnx_package().defs
    inner = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    own = {node.op_type for node in graph.node if not domain(node.domain)}
    try:
        versions = [[defs.get_schema(n, v).since_version for v in (opset, OPSETS[0])] for n in own]
    except defs.SchemaError:
        return False
    return all(a == b for a, b in versions) and all(_unchanged(g, opset) for g in inner)


Array = npt.NDArray[Any]
#: A few bytes of a file may ask for any number of elements; more bytes are refused.
_MOST_BYTES = 1 << 34


def dense_of(tensor: Any) -> Array:
    """A ``SparseTensorProto`` as an array; its indices are flat, or rows of coordinates."""
    to_array = onnx_package().numpy_helper.to_array
    values, indices, shape = to_array(tensor.values), to_array(tensor.indices), tuple(tensor.dims)
    if min(shape, default=0) < 0:
        raise GraphError(f"the sparse tensor has the shape {list(shape)}")
    if prod(shape) * values.dtype.itemsize > _MOST_BYTES:
        raise GraphError(f"with its zeros the sparse tensor {list(shape)} is over 16 GB")
    if values.ndim != 1 or len(indices) != len(values) or indices.dtype.kind != "i":
        raise GraphError(f"the sparse tensor has {len(values)} values and {len(indices)} indices")
    in_order = indices.ndim == 1
    coordinates = indices.reshape(-1, 1) if in_order else indices
    limits = (prod(shape),) if in_order else shape
    if coordinates.shape[1:] != (len(limits),):
        raise GraphError(f"the sparse tensor of shape {list(shape)} has other coordinates")
    if ((coordinates < 0) | (coordinates >= np.array(limits))).any():
        raise GraphError(f"an index of the sparse tensor is not in its shape {list(shape)}")
    dense = np.zeros(limits, values.dtype)
    dense[tuple(coordinates.T)] = values
    return dense.reshape(shape)


def nodes_of(function: Any, call: Any) -> list[Any]:
    """The nodes of a function, with the attributes of a node that calls it."""
    attributes = {a.name: a for a in (*function.attribute_proto, *call.attribute)}
    return [_with_attributes(n, attributes) for n in function.node]


def _with_attributes(node: Any, attributes: Mapping[str, Any]) -> Any:
    onnx = onnx_package()
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        value = attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if value is None:
            continue
        filled = copy.attribute.add()
        filled.CopyFrom(value)
        filled.name = attribute.name
        if value is attribute and attribute.type == onnx.AttributeProto.GRAPH:
            nodes = [_with_attributes(n, attributes) for n in attribute.g.node]
            del filled.g.node[:]
            filled.g.node.extend(nodes)
    return copy


def body_of(node: Any, versions: Mapping[str, int], types: Sequence[Type | None]) -> Any:
    """The body of a node's operator as of the version of its domain; None where there is none. It
    has the operator's defaults, and may depend on the node's attributes. ``types`` are those of its
    inputs, None for omitted ones.
    """
    onnx = onnx_package()
    try:
        schema = onnx.defs.get_schema(node.op_type, versions[domain(node.domain)], node.domain)
    except onnx.defs.SchemaError:
        return None
    function = onnx.FunctionProto()
    if schema.has_function:
        function.CopyFrom(schema.function_body)
    elif schema.has_context_dependent_function:
        protos = [_type_proto(t).SerializeToString() for t in types]
        try:
            text = schema.get_context_dependent_function(node.SerializeToString(), protos)
        except Exception as exc:  # onnx raises what its C++ half raises
            reason = " ".join(str(exc).split())
            raise GraphError(f"onnx cannot tell its body: {reason:.120}") from exc
        function.ParseFromString(text)
    if not function.node:
        return None
    names = {a.name for a in function.attribute_proto}
    for name, attribute in schema.attributes.items():
        if name not in names and attribute.default_value.name:
            function.attribute_proto.add().CopyFrom(attribute.default_value)
    return function


def _type_proto(t: Type | None) -> Any:
    onnx = onnx_package()
    if isinstance(t, TupleType):
        return onnx.helper.make_sequence_type_proto(_type_proto(next(iter(t.fields), None)))
    if not isinstance(t, TensorType):
        return onnx.TypeProto()
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(t.dtype))
    shape = [n if isinstance(n, int) else str(n) for n in t.shape]
    return onnx.helper.make_tensor_type_proto(element, shape)
