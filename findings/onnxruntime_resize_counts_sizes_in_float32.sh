#!/usr/bin/env bash
# onnx 1.23.2 and ONNX Runtime 1.32.0 disagree on how large the result of a Resize by scales is.
#
# The size is floor(input * scale). ONNX Runtime multiplies in float32, where 3 * 5/3 rounds to 5; onnx's inference of
# shapes and its reference multiply in float64, where the float32 next to 5/3 gives a little less than 5, and so 4.
# ONNX Runtime then warns that its own result has another shape than the model says, and goes on. Whoever plans memory
# by the inferred shape of an exported upsampling has too little of it.
# Output seen: "inferred [4], reference [4], ONNX Runtime [5]".
# Source: the run itself; the specification of Resize names the formula without a dtype.
# Exit status 1 when this is no longer so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PROGRAM'
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

scales = numpy_helper.from_array(np.array([5 / 3], np.float32), "scales")
node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")
x_info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
y_info = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
graph = helper.make_graph([node], "resize", [x_info], [y_info], [scales])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
x = np.arange(3, dtype=np.float32)

typed = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
inferred = [d.dim_value for d in typed.graph.output[0].type.tensor_type.shape.dim]
reference = list(ReferenceEvaluator(model).run(None, {"x": x})[0].shape)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
ran = list(session.run(None, {"x": x})[0].shape)
print(f"inferred {inferred}, reference {reference}, ONNX Runtime {ran}")
sys.exit(0 if (inferred, reference, ran) == ([4], [4], [5]) else 1)
PROGRAM
