"""ONNX models of one node, and what they compute by NumPy beside what onnx says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator

from loopwright.graph.frontend.onnx import from_onnx, stored
from tests.unit.graph.values import Array, run


def info(name: str, x: Array | None) -> Any:
    """What a model says of an input or an output; without an array, that it has one."""
    if x is None:
        return helper.make_empty_tensor_value_info(name)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)


def model_of(
    operator: str,
    inputs: Sequence[Array],
    opset: int,
    outputs: int = 1,
    domain: str = "",
    **attrs: Any,
) -> Any:
    """A model of one node, all of whose inputs are inputs of the model."""
    names = [f"x{n}" for n in range(len(inputs))]
    results = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(operator, names, results, name="node", domain=domain, **attrs)
    infos = [info(n, x) for n, x in zip(names, inputs, strict=True)]
    g = helper.make_graph([node], "g", infos, [info(n, None) for n in results])
    return helper.make_model(g, opset_imports=[helper.make_opsetid(domain, opset)], ir_version=10)


def compared(
    model: Any, inputs: Sequence[Array], known: Mapping[int, Array], wanted: Sequence[Array] | None
) -> None:
    """Assert that a model computes some arrays; by default those of onnx's own implementation."""
    given = {f"x{n}": x for n, x in enumerate(inputs)}
    if wanted is None:
        wanted = ReferenceEvaluator(model).run(None, given)
    module = from_onnx(model, constants={f"x{n}": x for n, x in known.items()})
    found = run(module, *(stored(x) for n, x in enumerate(inputs) if n not in known))
    for a, b in zip(found, map(stored, wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
