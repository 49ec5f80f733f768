"""Models that are one function: in this process, as a library for Python, and for C."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopwright import graph
from loopwright.errors import ArgumentError, UsageError
from loopwright.executors import AotExecutor
from loopwright.graph import op
from loopwright.graph.ir.module import MAIN, OUTPUT_NAMES
from loopwright.runtime import load_module

ROOT = Path(__file__).parents[3]
Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
has_cc = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler here links libraries"
)
LOAD = """
import sys, numpy as np
from loopwright.runtime import load_module
from loopwright.executors import AotExecutor
executor = AotExecutor(load_module(sys.argv[1]))
executor.run(x=np.full((2, 8), 0.5, "float32"))
np.save(sys.argv[2], executor.get_output("logits").numpy())
print("llvmlite" in sys.modules)
"""
IN_C = """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"

int main(void) {
  float image[2 * 8], logits[2 * 4], copy[2 * 8], again[2 * 4];
  void *memory = aligned_alloc(64, (NET_WORKSPACE_BYTES + 63) / 64 * 64);
  for (int n = 0; n < 2 * 8; n++) image[n] = 0.5f;
  for (int run = 0; run < 3; run++)
    if (net_run(image, logits, copy, again, memory)) return 1;
  for (int n = 0; n < 2 * 4; n++) printf("%a %a ", logits[n], again[n]);
  printf("%a", copy[15]);
  free(memory);
  return 0;
}
"""


def _filled(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


A, B = _filled(64, 8), _filled(4, 64)


def _network() -> graph.IRModule:
    """Two layers; its outputs are the second layer, the input, and the second layer again."""
    x = graph.var("x", (2, 8))
    y = op.nn.relu(op.nn.dense(x, graph.const(A, name="a")))
    z = op.nn.dense(y, graph.const(B, name="b"))
    attrs = {OUTPUT_NAMES: ("logits", "x", "for")}
    return graph.IRModule({MAIN: graph.Function((x,), graph.Tuple((z, x, z)), attrs=attrs)})


def _by_numpy(x: Array) -> Array:
    return np.maximum(x @ A.T, 0) @ B.T


@pytest.fixture(scope="module")
def model() -> graph.CompiledModel:
    return graph.compile(_network(), "llvm -num-threads=2")


@pytest.fixture(scope="module")
def exported(model: graph.CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model.export_library(tmp_path_factory.mktemp("aot") / "net.so")


def test_one_function_gives_what_the_graph_executor_gives(model: graph.CompiledModel) -> None:
    aot, one_by_one = model.aot_executor(), model.executor()
    assert aot.get_input_info() == one_by_one.get_input_info()
    assert aot.get_output_info() == one_by_one.get_output_info()
    for _ in range(2):
        x = _filled(2, 8)
        for executor in (aot, one_by_one):
            executor.run(x=x)
        for n in range(3):
            np.testing.assert_array_equal(aot.get_output(n), one_by_one.get_output(n))
        np.testing.assert_allclose(aot.get_output(0).numpy(), _by_numpy(x), rtol=1e-4, atol=1e-5)


def test_arrays_of_the_caller_are_read_and_written(model: graph.CompiledModel) -> None:
    executor, x, out = model.aot_executor(), _filled(2, 8), np.empty((2, 4), "float32")
    executor.set_input_zero_copy("x", x)
    executor.set_output_zero_copy("for", out)
    x[...] = _filled(2, 8)
    executor.run()
    np.testing.assert_allclose(out, _by_numpy(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match="overlap"):
        executor.set_output_zero_copy("logits", out)
    other = executor.another()
    other.run(x=np.zeros((2, 8), "float32"))
    np.testing.assert_allclose(out, _by_numpy(x), rtol=1e-4, atol=1e-5)
    assert executor.benchmark(repeat=2, number=2).min > 0
    assert not executor.another().get_output(0).numpy().any()  # until it runs
    weights = {"a": np.ones(2, ">f4"), "b": np.ones(2, "complex64"), "c": [1.0]}
    module = executor._placed.kernels["model"]
    AotExecutor(module, weights).run(x=x)  # type: ignore[arg-type]


def test_weights_that_were_changed_are_those_of_the_function(model: graph.CompiledModel) -> None:
    executor, x = model.executor(), _filled(2, 8)
    executor.load_params({"b": B * 2})
    aot = AotExecutor(executor.whole_program("twice").module())
    aot.run(x=x)
    np.testing.assert_allclose(aot.get_output(0).numpy(), 2 * _by_numpy(x), rtol=1e-4, atol=1e-5)


@has_cc
def test_a_library_runs_in_a_process_without_llvm(exported: Path, tmp_path: Path) -> None:
    found = tmp_path / "logits.npy"
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(exported), str(found)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "False\n", done.stderr
    wanted = _by_numpy(np.full((2, 8), 0.5, "float32"))
    np.testing.assert_allclose(np.load(found), wanted, rtol=1e-4, atol=1e-5)
    assert sorted(os.listdir(exported.parent)) == ["net.h", "net.so"]


@has_cc
@pytest.mark.parametrize("form", ["so", "a"])
def test_a_program_in_c_runs_it(model: graph.CompiledModel, form: str, tmp_path: Path) -> None:
    library = model.export_library(tmp_path / f"net.{form}")
    (tmp_path / "main.c").write_text(IN_C)
    cc = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_ISOC11_SOURCE"]
    command = [cc, *flags, "main.c", library.name, "-lm", "-lpthread", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    environ = {"LD_LIBRARY_PATH": str(tmp_path)}
    told = subprocess.run(
        ["./main"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    values = [float.fromhex(word) for word in told.stdout.split()]
    wanted = _by_numpy(np.full((2, 8), 0.5, "float32")).reshape(-1)
    np.testing.assert_allclose(values[:-1:2], wanted, rtol=1e-4, atol=1e-5)
    assert values[:-1:2] == values[1::2]
    assert values[-1] == 0.5


@has_cc
def test_a_loaded_library_checks_what_it_is_given(exported: Path) -> None:
    f = load_module(exported)
    assert [a.name for a in f["net"].args] == ["x", "logits", "x", "for"]
    outs = [np.empty((2, 4), "float32"), np.empty((2, 8), "float32"), np.empty((2, 4), "float32")]
    with pytest.raises(ArgumentError, match=r"argument 0 \('x'\): expected shape \(2, 8\)"):
        f(np.zeros((2, 9), "float32"), *outs)
    damaged = bytearray(exported.read_bytes())
    damaged[9000] ^= 1
    (exported.parent / "bad.so").write_bytes(damaged)
    with pytest.raises(UsageError, match="damaged"):
        load_module(exported.parent / "bad.so")
    (exported.parent / "bad.so").unlink()


def test_what_cannot_be_one_function_is_refused(tmp_path: Path) -> None:
    x = graph.var("x", (2,))
    alone = graph.compile(graph.IRModule.from_expr(x), "llvm")
    with pytest.raises(UsageError, match="the model computes nothing"):
        alone.aot_executor()
    interpreted = graph.compile(graph.IRModule.from_expr(op.tanh(x)), "interp")
    with pytest.raises(UsageError, match="'tanh_0' of the model is a interp; kernels that one"):
        interpreted.aot_executor()
    compiled = graph.compile(graph.IRModule.from_expr(op.tanh(x)), "llvm")
    with pytest.raises(UsageError, match="called 'tanh_0', too; give another name"):
        compiled.export_library(tmp_path / "tanh_0.so")
    with pytest.raises(UsageError, match="gives no name for a function"):
        compiled.export_library(tmp_path / "_.so")
