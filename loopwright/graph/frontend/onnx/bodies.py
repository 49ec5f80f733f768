"""Function bodies that ONNX defines for operators, for the types of a node's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.files import domain, onnx_package, opsets
from loopwright.graph.ir.expr import TensorType, TupleType, Type


@dataclass(frozen=True)
class Body:
    function: Any  # its inputs, outputs and nodes
    versions: Mapping[str, int]  # of the domains of its nodes

    def nodes(self, call: Any) -> list[Any]:
        """Its nodes, with the attributes of a node that calls it."""
        given = {a.name: a for a in self.function.attribute_proto}
        given.update({a.name: a for a in call.attribute})
        return [_with_attributes(n, given) for n in self.function.node]


def _with_attributes(node: Any, given: Mapping[str, Any]) -> Any:
    """A node whose references to attributes of the function are resolved."""
    onnx = onnx_package()
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            filled = made.attribute.add()
            filled.CopyFrom(attribute)
            if attribute.type == onnx.AttributeProto.GRAPH:
                nodes = [_with_attributes(n, given) for n in attribute.g.node]
                del filled.g.node[:]
                filled.g.node.extend(nodes)
        elif attribute.ref_attr_name in given:
            filled = made.attribute.add()
            filled.CopyFrom(given[attribute.ref_attr_name])
            filled.name = attribute.name
    return made


def body_of(node: Any, versions: Mapping[str, int], types: Sequence[Type | None]) -> Body | None:
    """The body of a node's operator as of the version of its domain; None where there is none.

    It may depend on the node's attributes. ``types`` are those of its inputs, None for omitted
    ones.
    """
    onnx = onnx_package()
    try:
        schema = onnx.defs.get_schema(node.op_type, versions[domain(node.domain)], node.domain)
    except onnx.defs.SchemaError:
        return None
    function = _function(schema, node, types)
    if function is None:
        return None
    return Body(_with_defaults(function, schema), {**versions, **opsets(function.opset_import)})


def _function(schema: Any, node: Any, types: Sequence[Type | None]) -> Any:
    onnx = onnx_package()
    if schema.has_function:
        return schema.function_body
    if not schema.has_context_dependent_function:
        return None
    protos = [_type_proto(t).SerializeToString() for t in types]
    try:
        text = schema.get_context_dependent_function(node.SerializeToString(), protos)
    except Exception as exc:  # onnx raises what its C++ half raises
        raise GraphError(f"onnx cannot tell its body: {' '.join(str(exc).split()):.120}") from exc
    function = onnx.FunctionProto()
    function.ParseFromString(text)
    return function if function.node else None


def _type_proto(t: Type | None) -> Any:
    onnx = onnx_package()
    if isinstance(t, TupleType):
        return onnx.helper.make_sequence_type_proto(_type_proto(next(iter(t.fields), None)))
    if not isinstance(t, TensorType):
        return onnx.TypeProto()
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(t.dtype))
    shape = [n if isinstance(n, int) else str(n) for n in t.shape]
    return onnx.helper.make_tensor_type_proto(element, shape)


def _with_defaults(function: Any, schema: Any) -> Any:
    """A function whose attributes have the defaults of the operator."""
    onnx = onnx_package()
    made = onnx.FunctionProto()
    made.CopyFrom(function)
    known = {a.name for a in made.attribute_proto}
    for name, attribute in schema.attributes.items():
        if name not in known and attribute.default_value.name:
            made.attribute_proto.add().CopyFrom(attribute.default_value)
    return made
