"""Nodes without a converter, computed by onnx's own reference implementation.

A node becomes a call of a Python function, which is a separate step of the program. The shapes of
its results are those that onnx infers; where it cannot, sizes depend on data, and the node stays
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.errors import GraphError, TensorError
from loopwright.graph.frontend.onnx.files import onnx_package, operator
from loopwright.graph.frontend.onnx.narrow import INTEGERS, NAMES, storage, stored
from loopwright.graph.frontend.types import Types
from loopwright.graph.ir.expr import (
    Call,
    Constant,
    Expr,
    HostFunction,
    TensorType,
    TupleGetItem,
    TupleType,
)

#: Who computes what falls back.
BY = "onnx.reference"
#: Elements of a constant that may decide shapes, such as the new shape of a Reshape, at most.
_FEW = 1 << 12


def fallen_back(
    node: Any,
    inputs: Mapping[str, Expr],
    types: Types,
    versions: Mapping[str, int],
    reason: str,
) -> list[Expr | None]:
    """The outputs of a node by onnx's reference implementation; None for unnamed ones.

    ``inputs`` are all values it reads, by name, those of its subgraphs included. Outputs of narrow
    dtypes are noted in ``types``. ``reason`` says why the node has no kernel. Raises GraphError
    where there is no reference implementation, or shapes or dtypes are not known.
    """
    model = _model_of(node, inputs, types, versions)
    found = _output_types(model)
    step = _function_of(model, list(inputs), [types.narrow(e) for e in inputs.values()])
    storages = [TensorType(s, storage(d) if d in NAMES else dtypes.check(d)) for s, d in found]
    result = storages[0] if len(storages) == 1 else TupleType(tuple(storages))
    label = f"{operator(node)} {node.name!r}" if node.name else operator(node)
    host = HostFunction(operator(node), step, result, BY, reason, span=label)
    call = Call(host, tuple(inputs.values()), span=label)
    single = len(storages) == 1
    made = [call if single else TupleGetItem(call, n) for n in range(len(storages))]
    for e, (_, dtype) in zip(made, found, strict=True):
        if dtype in NAMES:
            types.mark(e, dtype)
    outputs = iter(made)
    return [next(outputs) if name else None for name in node.output]


def captured(node: Any) -> list[str]:
    """Names that the subgraphs of a node read from the graphs around it."""
    found: dict[str, None] = {}
    for graph in (a.g for a in node.attribute if a.HasField("g")):
        own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
        for inner in graph.node:
            for name in (*inner.input, *captured(inner)):
                if name and name not in own:
                    found[name] = None
            own.update(inner.output)
        found |= {o.name: None for o in graph.output if o.name not in own}
    return list(found)


def _model_of(
    node: Any, inputs: Mapping[str, Expr], types: Types, versions: Mapping[str, int]
) -> Any:
    """A model of one node; small known inputs are part of it, since they may decide shapes."""
    onnx = onnx_package()
    helper = onnx.helper
    known = {
        name: e.data
        for name, e in inputs.items()
        if isinstance(e, Constant) and e.data.size <= _FEW and types.narrow(e) is None
    }
    infos = [
        helper.make_value_info(name, _proto(types, e))
        for name, e in inputs.items()
        if name not in known
    ]
    weights = [onnx.numpy_helper.from_array(np.asarray(x), name) for name, x in known.items()]
    outputs = [helper.make_value_info(n, onnx.TypeProto()) for n in node.output if n]
    graph = helper.make_graph([node], "fallback", infos, outputs, weights)
    imports = [helper.make_opsetid(d, v) for d, v in versions.items()]
    return helper.make_model(graph, opset_imports=imports)


def _proto(types: Types, e: Expr) -> Any:
    onnx = onnx_package()
    t = types.tensor(e)
    dtype = types.narrow(e) or t.dtype
    element = onnx.helper.np_dtype_to_tensor_dtype(_numpy_dtype(dtype))
    return onnx.helper.make_tensor_type_proto(element, t.shape)


def _output_types(model: Any) -> list[tuple[tuple[int, ...], str]]:
    """The shapes and dtypes of the outputs of a model of one node, as onnx infers them."""
    onnx = onnx_package()
    try:
        inferred = onnx.shape_inference.infer_shapes(
            model, check_type=True, strict_mode=True, data_prop=True
        )
    except Exception as exc:  # what onnx's C++ half raises
        raise GraphError(f"onnx refuses it: {' '.join(str(exc).split()):.160}") from exc
    return [_type_of(info) for info in inferred.graph.output]


def _type_of(info: Any) -> tuple[tuple[int, ...], str]:
    onnx = onnx_package()
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type" or not info.type.tensor_type.HasField("shape"):
        raise GraphError(f"onnx cannot tell the shape of its output {info.name!r}")
    tensor = info.type.tensor_type
    shape = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    if any(n is None for n in shape):
        raise GraphError(f"the shape of its output {info.name!r} depends on data")
    name = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    if name not in NAMES:
        try:
            dtypes.check(name)
        except TensorError as exc:
            raise GraphError(f"its output {info.name!r} is {name}, which no program holds") from exc
    return tuple(int(n) for n in shape if n is not None), name


def _function_of(model: Any, names: Sequence[str], narrow: Sequence[str | None]) -> Any:
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(model)
    except Exception as exc:  # it raises what the class of the operator raises
        text = " ".join(str(exc).split())
        raise GraphError(f"onnx has no reference implementation of it: {text:.120}") from exc
    given = {i.name for i in model.graph.input}

    def run(*arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        feed = {
            name: _as_onnx(x, dtype)
            for name, x, dtype in zip(names, arrays, narrow, strict=True)
            if name in given
        }
        return [stored(x) for x in evaluator.run(None, feed)]

    return run


def _as_onnx(x: np.ndarray[Any, Any], narrow: str | None) -> np.ndarray[Any, Any]:
    """An array of a program as onnx has it; bits of a narrow dtype become that dtype."""
    if narrow is None:
        return x
    dtype = _numpy_dtype(narrow)
    return x.astype(dtype) if narrow in INTEGERS else x.view(dtype)


def _numpy_dtype(name: str) -> np.dtype[Any]:
    """A dtype of NumPy, or of the package ml_dtypes, which comes with onnx."""
    if name not in NAMES:
        return np.dtype(name)
    import ml_dtypes

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found
