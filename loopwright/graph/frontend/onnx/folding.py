"""Shape arithmetic: nodes over few known numbers are evaluated when a model is imported.

Exporters write it as nodes (``Shape``, ``Gather``, ``Concat``, ``Reshape``), and its results decide
sizes. onnx's own reference implementation says what such a node means in its opset. Large constants
are left to `FoldConstant`. Nodes over known tensors one of which has no elements are evaluated here
too, whatever they compute: kernels do not take those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.graph.frontend.onnx.files import domain
from loopwright.graph.ir.expr import Constant, Expr, const

#: Elements that the inputs and the outputs of such a node have together, at most.
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
    known = [e for e in inputs if isinstance(e, Constant)]
    if len(known) < sum(e is not None for e in inputs) or not _is_foldable(node, known):
        return None
    try:
        results = iter(_evaluated(node, inputs, versions[""]))
    except Exception:  # an unknown node or dtype: its converter says what is wrong
        return None
    return [next(results) if name else None for name in node.output]


def _is_foldable(node: Any, known: Sequence[Constant]) -> bool:
    # Axes of a reduction are no data: none of them may be all.
    data = known[:1] if node.op_type.startswith("Reduce") else known
    empty = any(e.data.size == 0 for e in data)
    if domain(node.domain) or not known or not (empty or node.op_type in _OPERATORS):
        return False
    if not empty and any(e.type.dtype in dtypes.HALVES for e in known):
        return False  # which the reference rounds at each step
    if dtypes.is_float(known[0].type.dtype):
        if node.op_type == "Pow" and (known[0].data <= 0).any():
            return False  # NumPy takes a square root to 0.5, which -inf does not have and -0 keeps
        if node.op_type == "OneHot":
            return False  # places are cut to whole numbers, which the reference does not do
    return sum(e.data.size for e in known) <= _FEW and not _makes_many(node, known)


def _evaluated(node: Any, inputs: Sequence[Expr | None], opset: int) -> list[Constant]:
    """The results of a node by onnx's reference, in the dtypes that its operator declares."""
    from onnx import NodeProto, defs, helper
    from onnx.reference import ReferenceEvaluator

    known = [e for e in inputs if isinstance(e, Constant)]
    if node.op_type == "ReduceMean" and known[0].data.size == 0:
        node = NodeProto.FromString(node.SerializeToString())
        node.op_type = "ReduceL1"  # as in ONNX Runtime, the mean of nothing is 0

    def infos(names: Sequence[str]) -> list[Any]:
        plain = helper.make_tensor_type_proto(1, None)
        return [helper.make_value_info(name, plain) for name in names if name]

    graph = helper.make_graph([node], "folded", infos(node.input), infos(node.output))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    feeds = {name: e.data for name, e in zip(filter(None, node.input), known, strict=True)}
    results = ReferenceEvaluator(model).run(None, feeds)
    schema = defs.get_schema(node.op_type, opset, "")
    pairs = zip(schema.inputs, inputs, strict=False)
    dtype_of = {p.type_str: e.data.dtype for p, e in pairs if isinstance(e, Constant)}
    last = len(schema.outputs) - 1  # which a variadic operator has any number of
    types = [schema.outputs[min(n, last)].type_str for n, name in enumerate(node.output) if name]
    return [
        const(np.asarray(x, dtype_of.get(t) if t.startswith("T") else None))
        for x, t in zip(results, types, strict=True)
    ]


def _makes_many(node: Any, known: Sequence[Constant]) -> bool:
    """Whether a node's result may have more elements than its inputs, and more than a few."""
    if node.op_type in ("ConstantOfShape", "Expand", "Tile"):
        return float(np.prod(np.maximum(known[-1].data.astype("float64"), 1))) > _FEW
    if node.op_type == "Range":
        start, limit, delta = (float(e.data.reshape(-1)[0]) for e in known)
        return abs(limit - start) > _FEW * abs(delta)
    if node.op_type == "OneHot":
        return known[0].data.size * float(known[1].data.reshape(-1)[0]) > _FEW
    if node.op_type == "Pad":
        return len(known) > 1 and float(np.abs(known[1].data.astype("float64")).sum()) > _FEW
    return False
