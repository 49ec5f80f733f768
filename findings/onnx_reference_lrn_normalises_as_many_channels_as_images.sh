#!/usr/bin/env bash
# onnx 1.23.2: the reference evaluator's LRN loops over the batch where it means the channels.
#
# LRN divides each element by a sum of squares over neighbouring channels. With fewer images than channels the
# channels beyond the number of images are divided by bias ** beta alone; ONNX Runtime 1.32.0 has all of them right.
# Whoever takes the reference as the truth in tests of LRN finds differences that are none.
# Output seen: "reference: channels wrong [1, 2, 3]" for one image of four channels, "ONNX Runtime: channels wrong []".
# Source: the run itself, beside the formula of the operator's specification computed by NumPy.
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
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

shape, size, alpha, beta, bias = (1, 4, 2, 2), 3, 0.5, 0.75, 1.0
node = helper.make_node("LRN", ["x"], ["y"], size=size, alpha=alpha, beta=beta, bias=bias)
x_info = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
y_info = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
graph = helper.make_graph([node], "lrn", [x_info], [y_info])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
x = np.arange(1, 17, dtype=np.float32).reshape(shape)

squares = np.zeros_like(x)
for c in range(shape[1]):
    low, high = max(0, c - (size - 1) // 2), min(shape[1], c + size // 2 + 1)
    squares[:, c] = (x[:, low:high] ** 2).sum(axis=1)
want = x / (bias + alpha / size * squares) ** beta

session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
found = {}
for name, result in (("reference", ReferenceEvaluator(model).run(None, {"x": x})[0]),
                     ("ONNX Runtime", session.run(None, {"x": x})[0])):
    near = np.isclose(result, want, rtol=1e-5).all(axis=(0, 2, 3))
    found[name] = np.flatnonzero(~near).tolist()
    print(f"{name}: channels wrong {found[name]}")
sys.exit(0 if found == {"reference": [1, 2, 3], "ONNX Runtime": []} else 1)
PROGRAM
