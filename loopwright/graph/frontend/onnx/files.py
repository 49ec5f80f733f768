"""ONNX files and their parts: loading, checks, sparse tensors, function bodies of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
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
    for o in imports:
        if not -1 < o.version < 1 << 31:
            raise GraphError(f"the version of the domain {o.domain or 'ai.onnx'!r} is {o.version}")
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
    check_texts(*own)
    try:
        versions = [[defs.get_schema(n, v).since_version for v in (opset, OPSETS[0])] for n in own]
    except defs.SchemaError:
        return False
    return all(a == b for a, b in versions) and all(_unchanged(g, opset) for g in inner)


Array = npt.NDArray[Any]
#: Elements of an array that a few numbers of a model describe, at most, and of a sparse tensor for
#: each of its values: more would take memory that a small file asks for.
_MOST_ELEMENTS, _MOST_ZEROS = 1 << 28, 1 << 12


def check_elements(shape: Sequence[int], values: int = 0) -> None:
    """Refuse a shape that is not written out in a model, and that has too many elements."""
    most = max(_MOST_ELEMENTS, _MOST_ZEROS * values)
    if min(shape, default=0) < 0:
        raise GraphError(f"an array has the shape {list(shape)}")
    if prod(shape) > most:
        raise GraphError(
            f"an array of shape {list(shape)} would be made when the model is imported, which may "
            f"have up to {most} elements; write out its elements in the model, or make it an input"
        )


def array_of(tensor: Any) -> Array:
    """A ``TensorProto`` as an array; GraphError where its fields do not fit each other."""
    onnx = onnx_package()
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        place = next((e.value for e in tensor.external_data if e.key == "location"), "")
        raise GraphError(
            f"its elements are in another file ({place!r:.60}), which is found only beside a file: "
            "give the path of the model in place of its bytes"
        )
    if tensor.data_type not in onnx.helper.get_all_tensor_dtypes():
        raise GraphError(f"its dtype is number {tensor.data_type}, which ONNX does not have")
    try:
        array: Array = onnx.numpy_helper.to_array(tensor)
    except (TypeError, ValueError) as exc:  # onnx reads what is there, and NumPy reshapes it
        text = " ".join(str(exc).split())
        raise GraphError(f"its elements do not fill its shape {list(tensor.dims)}: {text}") from exc
    return array


def dense_of(tensor: Any) -> Array:
    """A ``SparseTensorProto`` as an array; its indices are flat, or rows of coordinates."""
    values, indices, shape = array_of(tensor.values), array_of(tensor.indices), tuple(tensor.dims)
    check_elements(shape, values.size)
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


def check_texts(*texts: str | bytes) -> None:
    """Refuse names that are no UTF-8, which protobuf gives as bytes."""
    for text in texts:
        if not isinstance(text, str):
            raise GraphError(f"{text!r:.60} in the model is no text in UTF-8; export it again")


def check_node(node: Any, versions: Mapping[str, int]) -> None:
    """Refuse a node whose inputs and attributes are not those that its operator declares."""
    for a in node.attribute:
        if a.ref_attr_name:
            raise GraphError(
                f"its attribute {a.name!r} is {a.ref_attr_name!r} of a function, and no function "
                "is around it"
            )
    own = domain(node.domain)
    least, most, declared_attributes = _declared(node.op_type, versions.get(own, 0), own)
    if not least <= len(node.input) <= most:
        raise GraphError(f"it has {len(node.input)} inputs; {node.op_type} takes {least} to {most}")
    types = {a.name: a.type for a in node.attribute}
    for name, number, required in declared_attributes:
        if name not in types and required:
            raise GraphError(f"its attribute {name!r} is missing")
        if name in types and types[name] != number:
            raise GraphError(
                f"its attribute {name!r} is of type {_type_name(types[name])}; "
                f"{node.op_type} takes {_type_name(number)}"
            )


@lru_cache(maxsize=1 << 10)
def _declared(
    op_type: str, version: int, own: str
) -> tuple[int, int, tuple[tuple[str, int, bool], ...]]:
    """Least and most inputs of an operator, and its attributes with their types, and whether they
    are required; of an unknown one, whatever there is.
    """
    defs = onnx_package().defs
    try:
        schema = defs.get_schema(op_type, version, own)
    except defs.SchemaError:
        return 0, 1 << 31, ()
    attributes = ((n, int(a.type.value), a.required) for n, a in schema.attributes.items())
    return schema.min_input, schema.max_input, tuple(attributes)


def _type_name(number: int) -> str:
    kinds = onnx_package().AttributeProto.AttributeType
    return str(kinds.Name(number)) if number in kinds.values() else str(number)


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
