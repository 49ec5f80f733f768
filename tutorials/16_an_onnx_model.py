"""Tutorial 16: an ONNX model, tuned and deployed.

Run it with ``python tutorials/16_an_onnx_model.py``; it needs the package onnx (``pip install
onnx``), and a C compiler for its last two steps. Set ``LOOPWRIGHT_TUTORIAL_SMALL=1``
for a quick run. ``loopwright tune``, ``inspect``, ``build`` and ``run`` do the same with a file of
your own; docs/models.md has the details.
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import loopwright as lw
from loopwright.executors import AotExecutor

SMALL = bool(os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL"))
ROWS, WIDTH = (4, 16) if SMALL else (64, 512)
TRIALS = 2 if SMALL else 64
TARGET = "llvm"

#: What runs the model where there is no Python: the library, its header, and this.
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "classifier.h"

int main(void) {
  static float rows[%d], scores[%d];
  void *memory = aligned_alloc(64, (CLASSIFIER_WORKSPACE_BYTES + 63) / 64 * 64);
  for (int n = 0; n < %d; n++) rows[n] = (float)(n %% 7) - 3;
  if (classifier_run(rows, scores, memory)) return 1;
  for (int n = 0; n < %d; n++) printf("%%.6f ", scores[n]);
  free(memory);
  return 0;
}
"""


def classifier():
    """Two layers of one shape, and a softmax over the classes."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "rows"
    for n in range(2):
        w = rng.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)
        weights.append(numpy_helper.from_array(w.astype("float32"), f"w{n}"))
        nodes.append(helper.make_node("Gemm", [value, f"w{n}"], [f"sum{n}"], transB=1))
        nodes.append(helper.make_node("Relu", [f"sum{n}"], [f"layer{n}"]))
        value = f"layer{n}"
    nodes.append(helper.make_node("Softmax", [value], ["scores"], axis=1))
    rows, scores = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, WIDTH])
        for name in ("rows", "scores")
    )
    graph = helper.make_graph(nodes, "classifier", [rows], [scores], weights)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def compare(found, expected):
    """Two executions sum in another order, so that the last bits may differ."""
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    return f"largest difference {np.abs(found - expected).max():.1g}"


def main():
    if importlib.util.find_spec("onnx") is None:
        print("The package onnx is missing: pip install onnx, then run this again.")
        return
    import onnx
    from onnx.reference import ReferenceEvaluator

    folder = Path(tempfile.mkdtemp(prefix="loopwright-tutorial-"))
    onnx.save(classifier(), folder / "classifier.onnx")
    file = str(folder / "classifier.onnx")

    # 1. What the model is here: operators of graphs, in functions of one kernel each.
    print("1. imported\n")
    print(lw.graph.from_onnx(file))

    # 2. Compiled without a measurement. Outputs have the names that the model gives them.
    model = lw.compile(file, TARGET)
    executor = model.executor()
    rows = (np.arange(ROWS * WIDTH) % 7 - 3).astype("float32").reshape(ROWS, WIDTH)
    executor.run(rows=rows)
    expected = ReferenceEvaluator(file).run(None, {"rows": rows})[0]
    print("\n2. compiled; beside ONNX's reference:", end=" ")
    print(compare(executor.get_output("scores").numpy(), expected))
    untuned = executor.benchmark(repeat=5, number=5)

    # 3. Tuned, here the kernels that are layers: both are one task, since they compute the same of
    #    other data. All measurements are in the log, and the same command goes on where it stopped.
    log = str(folder / "classifier.jsonl")
    lw.tune(file, TARGET, log=log, trials=TRIALS, ops=["nn.dense"])
    tuned = lw.compile(file, TARGET, history=log)
    print("\n3. tuned; what each kernel is built from:\n")
    print(tuned.report)
    executor = tuned.executor()
    executor.run(rows=rows)
    print("  ", compare(executor.get_output("scores").numpy(), expected))
    print(f"   untuned {untuned.median * 1e6:.0f} us", end=", ")
    print(f"tuned {executor.benchmark(repeat=5, number=5).median * 1e6:.0f} us a run")

    # 4. Deployed as a file: program, machine code and weights. It is read without a compiler.
    path = tuned.save(folder / "classifier.lw")
    again = lw.graph.load(path)
    print(f"\n4. {path.name}: {path.stat().st_size} bytes;", compare(again(rows)[0], expected))

    # 5. Deployed as a library: one function, which Python loads without LLVM, and C without Python.
    cc = lw.Target("c").cc
    if shutil.which(cc) is None:
        print("\nThere is no C compiler here; apt-get install gcc libc6-dev for what follows.")
        return
    library = tuned.export_library(folder / "classifier.so")
    one = AotExecutor(lw.load_module(library))
    one.run(rows=rows)
    print(f"\n5. {library.name}:", compare(one.get_output("scores").numpy(), expected))

    # 6. And from C, by the header that was written beside it.
    (folder / "main.c").write_text(PROGRAM % ((rows.size,) * 4))
    command = [cc, "-D_ISOC11_SOURCE", "main.c", library.name, "-lm", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    ran = subprocess.run(
        ["./main"],
        cwd=folder,
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    scores = np.array(ran.stdout.split(), "float32").reshape(ROWS, WIDTH)
    print("\n6. a program in C:", compare(scores, expected))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
