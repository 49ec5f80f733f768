"""Nodes computed by onnx's own reference implementation, when a model is imported and as it runs.

Nodes over few known numbers, arithmetic of shapes, are evaluated at once: exporters write it as
nodes (``Shape``, ``Gather``, ``Concat``, ``Reshape``), and results decide sizes. Its reference
says what such a node means in its opset. Large constants are left to `FoldConstant`. Nodes over
known tensors one of which has no elements are evaluated here too, whatever they compute: kernels do
not take those.

A node without a converter becomes a call of a Python function, which is a separate step of the
program. The shapes of its results are those that onnx infers; where it cannot, sizes depend on
data, and the node stays refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.errors import GraphError, TensorError
from loopwright.graph.frontend.conversion import ExprTypes
from loopwright.graph.frontend.onnx.files import domain, numpy_dtype, onnx_package, operator
from loopwright.graph.frontend.onnx.node import INTEGERS, NAMES, storage, stored
from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.expr import Expr

#: Elements that the inputs and the outputs of a folded node have together, at most, and those of a
#: constant that may decide shapes, such as the new shape of a Reshape.
_FEW = 1 << 12
_NAMES = """
    Abs Add And Cast CastLike Ceil Concat ConstantOfShape CumSum Div Equal Expand Flatten Floor
    Gather GatherElements GatherND Greater GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul
    Neg NonZero Not OneHot Or Pad Pow Range Reciprocal ReduceMax ReduceMin ReduceProd ReduceSum
    Reshape Round ScatterElements ScatterND Sign Size Slice Sqrt Squeeze Sub Tile TopK
    Transpose Trilu Unsqueeze Where Xor
"""
_OPERATORS = frozenset(_NAMES.split())


def folded(
    node: Any, inputs: Sequence[Expr | None], versions: Mapping[str, int]
) -> list[Expr | None] | None:
    """The results of a node over few known numbers; None where it is not such a node."""
    constants = [e for e in inputs if isinstance(e, ir.Constant)]
    if len(constants) < sum(e is not None for e in inputs) or not _is_foldable(node, constants):
        return None
    try:
        results = iter(_evaluated(node, inputs, versions[""]))
    except Exception:  # an unknown node or dtype: its converter says what is wrong
        return None
    return [next(results) if name else None for name in node.output]


def _is_foldable(node: Any, constants: Sequence[ir.Constant]) -> bool:
    # Axes of a reduction are no data: none of them may be all.
    data = constants[:1] if node.op_type.startswith("Reduce") else constants
    empty = any(e.data.size == 0 for e in data)
    if domain(node.domain) or not constants or not (empty or node.op_type in _OPERATORS):
        return False
    if not empty and any(e.type.dtype in dtypes.HALVES for e in constants):
        return False  # which the reference rounds at each step
    if dtypes.is_float(constants[0].type.dtype):
        if node.op_type == "Pow" and (constants[0].data <= 0).any():
            return False  # NumPy takes a square root to 0.5, which -inf does not have and -0 keeps
        if node.op_type == "OneHot":
            return False  # places are cut to whole numbers, which the reference does not do
    return sum(e.data.size for e in constants) <= _FEW and not _makes_many(node, constants)


def _evaluated(node: Any, inputs: Sequence[Expr | None], opset: int) -> list[ir.Constant]:
    """The results of a node by onnx's reference, in the dtypes that its operator declares."""
    from onnx import NodeProto, defs, helper
    from onnx.reference import ReferenceEvaluator

    constants = [e for e in inputs if isinstance(e, ir.Constant)]
    if node.op_type == "ReduceMean" and constants[0].data.size == 0:
        node = NodeProto.FromString(node.SerializeToString())
        node.op_type = "ReduceL1"  # as in ONNX Runtime, the mean of nothing is 0

    def infos(names: Sequence[str]) -> list[Any]:
        plain = helper.make_tensor_type_proto(1, None)
        return [helper.make_value_info(name, plain) for name in names if name]

    graph = helper.make_graph([node], "folded", infos(node.input), infos(node.output))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    feeds = {name: e.data for name, e in zip(filter(None, node.input), constants, strict=True)}
    results = ReferenceEvaluator(model).run(None, feeds)
    schema = defs.get_schema(node.op_type, opset, "")
    pairs = zip(schema.inputs, inputs, strict=False)
    dtype_of = {p.type_str: e.data.dtype for p, e in pairs if isinstance(e, ir.Constant)}
    last = len(schema.outputs) - 1  # which a variadic operator has any number of
    types = [schema.outputs[min(n, last)].type_str for n, name in enumerate(node.output) if name]
    return [
        ir.const(np.asarray(x, dtype_of.get(t) if t.startswith("T") else None))
        for x, t in zip(results, types, strict=True)
    ]


def _makes_many(node: Any, args: Sequence[ir.Constant]) -> bool:
    """Whether a node's result may have more elements than its inputs, and more than a few."""
    if node.op_type in ("ConstantOfShape", "Expand", "Tile"):
        return float(np.prod(np.maximum(args[-1].data.astype("float64"), 1))) > _FEW
    scalars = {"Range": args, "OneHot": args[1:2]}.get(node.op_type, ())
    if any(e.data.size != 1 for e in scalars):
        return True  # its converter says what is wrong
    if node.op_type == "Range":
        start, limit, delta = (float(e.data.reshape(-1)[0]) for e in args)
        return abs(limit - start) > _FEW * abs(delta)
    if node.op_type == "OneHot":
        return args[0].data.size * float(args[1].data.reshape(-1)[0]) > _FEW
    if node.op_type == "Pad":
        return len(args) > 1 and float(np.abs(args[1].data.astype("float64")).sum()) > _FEW
    return False


#: Who computes what falls back.
BY = "onnx.reference"


def fallen_back(
    node: Any,
    inputs: Mapping[str, Expr],
    types: ExprTypes,
    versions: Mapping[str, int],
    reason: str,
) -> list[Expr | None]:
    """The outputs of a node by onnx's reference implementation; None for unnamed ones. ``inputs``
    are all values it reads, by name, those of its subgraphs included. Outputs of narrow dtypes are
    noted in ``types``. ``reason`` says why the node has no kernel. Raises GraphError where there is
    no reference implementation, or shapes or dtypes are not known.
    """
    model = _model_of(node, inputs, types, versions)
    pairs = _output_types(model)
    step = _function_of(model, list(inputs), [types.narrow(e) for e in inputs.values()])
    storages = [ir.TensorType(s, storage(d) if d in NAMES else dtypes.check(d)) for s, d in pairs]
    result = storages[0] if len(storages) == 1 else ir.TupleType(tuple(storages))
    label = f"{operator(node)} {node.name!r}" if node.name else operator(node)
    host = ir.HostFunction(operator(node), step, result, BY, reason, span=label)
    call = ir.Call(host, tuple(inputs.values()), span=label)
    parts: list[Expr] = [ir.TupleGetItem(call, n) for n in range(len(storages))]
    parts = [call] if len(storages) == 1 else parts
    for e, (_, dtype) in zip(parts, pairs, strict=True):
        if dtype in NAMES:
            types.mark(e, dtype)
    outputs = iter(parts)
    return [next(outputs) if name else None for name in node.output]


def captured(node: Any) -> list[str]:
    """Names that the subgraphs of a node read from the graphs around it."""
    names: dict[str, None] = {}
    for graph in (a.g for a in node.attribute if a.HasField("g")):
        own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
        for inner in graph.node:
            for name in (*inner.input, *captured(inner)):
                if name and name not in own:
                    names[name] = None
            own.update(inner.output)
        names |= {o.name: None for o in graph.output if o.name not in own}
    return list(names)


def _model_of(
    node: Any, inputs: Mapping[str, Expr], types: ExprTypes, versions: Mapping[str, int]
) -> Any:
    """A model of one node; small known inputs are part of it, since they may decide shapes."""
    onnx = onnx_package()
    helper = onnx.helper
    constants = {
        name: e.data
        for name, e in inputs.items()
        if isinstance(e, ir.Constant) and e.data.size <= _FEW and types.narrow(e) is None
    }
    others = {name: e for name, e in inputs.items() if name not in constants}
    infos = []
    for name, e in others.items():
        t = types.tensor(e)
        dtype = _numpy_dtype(types.narrow(e) or t.dtype)
        shape = [n if isinstance(n, int) else str(n) for n in t.shape]
        proto = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), shape)
        infos.append(helper.make_value_info(name, proto))
    weights = [onnx.numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items()]
    outputs = [helper.make_value_info(n, onnx.TypeProto()) for n in node.output if n]
    graph = helper.make_graph([node], "fallback", infos, outputs, weights)
    imports = [helper.make_opsetid(d, v) for d, v in versions.items()]
    return helper.make_model(graph, opset_imports=imports)


def _output_types(model: Any) -> list[tuple[tuple[int, ...], str]]:
    onnx = onnx_package()
    try:
        inferred = onnx.shape_inference.infer_shapes(
            model, check_type=True, strict_mode=True, data_prop=True
        )
    except Exception as exc:  # what onnx's C++ half raises
        raise GraphError(f"onnx refuses it: {' '.join(str(exc).split()):.160}") from exc
    return [_type_of(info) for info in inferred.graph.output]


def _type_of(info: Any) -> tuple[tuple[int, ...], str]:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type" or not info.type.tensor_type.HasField("shape"):
        raise GraphError(f"onnx cannot tell the shape of its output {info.name!r}")
    tensor = info.type.tensor_type
    if not all(d.HasField("dim_value") for d in tensor.shape.dim):
        raise GraphError(f"the shape of its output {info.name!r} depends on data")
    name = numpy_dtype(tensor.elem_type).name
    if name not in NAMES:
        try:
            dtypes.check(name)
        except TensorError as exc:
            raise GraphError(f"its output {info.name!r} is {name}, which no program holds") from exc
    return tuple(int(d.dim_value) for d in tensor.shape.dim), name


def _function_of(model: Any, names: Sequence[str], narrow: Sequence[str | None]) -> Any:
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(model)
    except Exception as exc:  # it raises what the class of the operator raises
        text = " ".join(str(exc).split())
        raise GraphError(f"onnx has no reference implementation of it: {text:.120}") from exc
    fed = {i.name for i in model.graph.input}

    def run(*arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        feed = {
            name: _as_onnx(x, dtype)
            for name, x, dtype in zip(names, arrays, narrow, strict=True)
            if name in fed
        }
        return [stored(x) for x in evaluator.run(None, feed)]

    return run


def _as_onnx(x: np.ndarray[Any, Any], narrow: str | None) -> np.ndarray[Any, Any]:
    if narrow is None:
        return x
    dtype = _numpy_dtype(narrow)
    return x.astype(dtype) if narrow in INTEGERS else x.view(dtype)


def _numpy_dtype(name: str) -> np.dtype[Any]:
    """A dtype of NumPy, or of the package ml_dtypes, which comes with onnx."""
    if name not in NAMES:
        return np.dtype(name)
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype
