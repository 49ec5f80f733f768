"""Nodes of every operator of ONNX that is converted, over numbers at the limits of their dtypes.

The schemas of ONNX say which versions an operator has and which dtypes it takes; its inputs and
attributes are those of `onnx_number_inputs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import helper, numpy_helper

from benchmarks.onnx_number_inputs import APART, Array, recipe_of
from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.graph.frontend.onnx import known_operators

#: The first opset that is read.
FIRST = 6


@dataclass(frozen=True)
class Case:
    """A node and its inputs.

    Attributes:
        operator: its type.
        opset: the version of its operators.
        dtype: of its first input.
        edge: a few words for what is at an edge.
        inputs: None where one is left out.
        attrs: its attributes.
        known: places of inputs that are weights of the model.
        outputs: how many it has.
    """

    operator: str
    opset: int
    dtype: str
    edge: str
    inputs: tuple[Array | None, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    known: tuple[int, ...] = ()
    outputs: int = 1

    def node(self, prefix: str = "") -> Any:
        """The node, whose names begin with a prefix."""
        names = ["" if x is None else f"{prefix}x{n}" for n, x in enumerate(self.inputs)]
        results = [f"{prefix}y{n}" for n in range(self.outputs)]
        node = helper.make_node(self.operator, names, results, name=f"{prefix}node")
        for name, value in self.attrs.items():
            empty = onnx.AttributeProto.INTS if value == [] else None
            node.attribute.append(helper.make_attribute(name, value, attr_type=empty))
        return node

    def feeds(self) -> dict[str, Array]:
        """The inputs of a model of this node alone that are no weights."""
        return {
            f"x{n}": x for n, x in enumerate(self.inputs) if x is not None and n not in self.known
        }


def model_of(cases: Sequence[Case]) -> Any:
    """A model of the nodes of several cases; one alone has names without a prefix."""
    nodes, infos, weights, results = [], [], [], []
    for number, case in enumerate(cases):
        prefix = f"c{number}_" if len(cases) > 1 else ""
        nodes.append(case.node(prefix))
        results += [helper.make_value_info(n, onnx.TypeProto()) for n in nodes[-1].output]
        for n, x in enumerate(case.inputs):
            if x is None:
                continue
            name = f"{prefix}x{n}"
            if n in case.known:
                weights.append(numpy_helper.from_array(x, name))
            else:
                element = helper.np_dtype_to_tensor_dtype(x.dtype)
                infos.append(helper.make_tensor_value_info(name, element, x.shape))
    graph = helper.make_graph(nodes, "g", infos, results, weights)
    opsets = [helper.make_opsetid("", cases[0].opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def schemas(only: str = "") -> Iterator[Any]:
    """The schemas of operators that are converted, all versions, whose names contain a text."""
    converted = set(known_operators())
    found = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""]
    for s in sorted(found, key=lambda s: (s.name, s.since_version)):
        if s.name not in converted - APART or only not in s.name or s.deprecated:
            continue
        holds = onnx.defs.get_schema(s.name, max(s.since_version, FIRST), "")
        if holds.since_version == s.since_version:
            yield s


def dtypes_of(schema: Any) -> list[str]:
    """The dtypes of the data of an operator that programs have."""
    data = next(i for i in schema.inputs if i.type_str != "tensor(bool)" and i.name != "condition")
    found = []
    for name in data.types:
        inner = name.removeprefix("tensor(").removesuffix(")")
        plain = {"float": "float32", "double": "float64"}.get(inner, inner)
        try:
            found.append(dtypes.check(plain))
        except TensorError:
            continue
    return sorted(found)


def cases_of(schema: Any, dtype: str) -> Iterator[Case]:
    """The cases of one version of an operator and one dtype."""
    opset = max(schema.since_version, FIRST)
    required = [
        i for i in schema.inputs if i.option != onnx.defs.OpSchema.FormalParameterOption.Optional
    ]
    for edge, attrs, inputs, *more in recipe_of(schema.name, len(required))(dtype, opset):
        taken = {k: v for k, v in attrs.items() if k in schema.attributes}
        if taken != attrs and edge.endswith("fmod=1"):
            continue
        known = more[0] if more else ()
        outputs = more[1] if len(more) > 1 else 1
        yield Case(schema.name, opset, dtype, edge, tuple(inputs), taken, known, outputs)
