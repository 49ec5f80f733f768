#!/usr/bin/env bash
# ONNX Runtime 1.32.0: the maximum of elements that all are -inf is not -inf in GlobalMaxPool, but in ReduceMax.
#
# GlobalMaxPool on the CPU gives the least finite float32, -3.4028235e+38, which is none of its inputs; ReduceMax over
# the same axes and onnx's reference give -inf. Masks made of -inf so become finite numbers.
# Output seen: "GlobalMaxPool -3.4028234663852886e+38", "ReduceMax -inf", "reference -inf".
# Source: the run itself.
# Exit status 1 when this is no longer so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PROGRAM'
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator


def model(operator, **attributes):
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, 4, 4))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 1, 1, 1))
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def run(proto):
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=providers)
    return float(session.run(None, {"x": x})[0].item())


x = np.full((1, 1, 4, 4), -np.inf, np.float32)
pooled, reduced = run(model("GlobalMaxPool")), run(model("ReduceMax", axes=[2, 3], keepdims=1))
reference = float(ReferenceEvaluator(model("GlobalMaxPool")).run(None, {"x": x})[0].item())
print("GlobalMaxPool", pooled)
print("ReduceMax", reduced)
print("reference", reference)
sys.exit(0 if pooled == float(np.finfo(np.float32).min) and reduced == reference == -np.inf else 1)
PROGRAM
