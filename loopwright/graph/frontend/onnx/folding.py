"""Arithmetic of shapes: nodes over few known numbers are evaluated when a model is imported.

Exporters write it as nodes (``Shape``, ``Gather``, ``Concat``, ``Reshape``), and what it gives
decides sizes. onnx's own reference implementation says what such a node means in its opset. Large
constants are left alone: `FoldConstant` has them. So are evaluated here, whatever they compute,
nodes over known tensors one of which has no elements: kernels do not take those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.errors import LoopwrightError
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
    """What a node over few known numbers makes; None where it is not such a node."""
    known = [e for e in inputs if isinstance(e, Constant)]
    # Axes of a reduction are no data: none of them may be all.
    data = known[:1] if node.op_type.startswith("Reduce") else known
    empty = any(e.data.size == 0 for e in data)
    if domain(node.domain) or not inputs or not (empty or node.op_type in _OPERATORS):
        return None
    if len(known) < sum(e is not None for e in inputs):
        return None
    if not empty and any(e.type.dtype in dtypes.HALVES for e in known):
        return None  # which the reference rounds at each step
    if dtypes.is_float(known[0].type.dtype):
        if node.op_type == "Pow" and (known[0].data <= 0).any():
            return None  # NumPy takes a square root to 0.5, which -inf does not have and -0 keeps
        if node.op_type == "OneHot":
            return None  # places are cut to whole numbers, which the reference does not do
    if sum(e.data.size for e in known) > _FEW or _makes_many(node, known):
        return None
    from onnx import NodeProto, defs, helper
    from onnx.reference import ReferenceEvaluator

    if empty and node.op_type == "ReduceMean":  # the mean of nothing is 0 in ONNX Runtime
        node = NodeProto.FromString(node.SerializeToString())
        node.op_type = "ReduceL1"
    names = [name for name in node.input if name]
    graph = helper.make_graph(
        [node],
        "folded",
        [helper.make_value_info(n, helper.make_tensor_type_proto(1, None)) for n in names],
        [
            helper.make_value_info(n, helper.make_tensor_type_proto(1, None))
            for n in node.output
            if n
        ],
    )
    opset = helper.make_opsetid("", versions[""])
    try:
        evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=[opset]))
        found = evaluator.run(None, dict(zip(names, (e.data for e in known), strict=True)))
        schema = defs.get_schema(node.op_type, versions[""], "")
        # The reference gives some results in another dtype than that of the operator.
        pairs = zip(schema.inputs, inputs, strict=False)
        typed = {p.type_str: e.data.dtype for p, e in pairs if isinstance(e, Constant)}
        results = [p.type_str for p, name in zip(schema.outputs, node.output, strict=False) if name]
        made = iter(
            [
                const(np.asarray(x, typed.get(t) if t.startswith("T") else None))
                for x, t in zip(found, results, strict=False)
            ]
        )
    except LoopwrightError:
        return None  # of a dtype that only the converter can speak of
    except Exception:  # it does not know the node: the converter says what is wrong with it
        return None
    return [next(made) if name else None for name in node.output]


def _makes_many(node: Any, known: Sequence[Constant]) -> bool:
    """Whether a node's result may be larger than its inputs, beyond what is few."""
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
