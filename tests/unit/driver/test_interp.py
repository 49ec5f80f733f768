"""The interpreter as a target: same checks, binding, timing and files as machine code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.codegen.backends import link_func
from loopwright.driver import build, compile
from loopwright.errors import ArgumentError, CodegenError, RunError, UsageError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Var, const
from loopwright.ir.stmt import For, Func, Store
from loopwright.lowering import lower
from loopwright.runtime import Artifact, load_module
from loopwright.runtime.module import Module
from loopwright.target import Target
from tests.unit.lowering.programs import CASES
from tests.unit.schedule.programs import chain

ROOT = Path(__file__).parents[3]


def built() -> tuple[Any, Module]:
    p = chain(4, 4)
    return p, build(p.s, [p.a, p.d], "interp", name="k")


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_numpy_does(name: str) -> None:
    case = CASES[name]()
    f = build(case.s, case.args, target="interp", name=name)
    rng = np.random.default_rng(1)
    inputs = [rng.integers(-4, 5, t.shape).astype("float32") for t in case.args[:-1]]
    out = np.full(case.args[-1].shape, np.nan, "float32")
    f(*inputs, out)
    np.testing.assert_array_equal(out, case.reference(*inputs))


def test_the_module_says_what_it_is() -> None:
    p, f = built()
    assert (f.type_key, f.format, f.is_binary) == ("interp", "json", False)
    assert f.artifact.kind == "interp"
    assert f.get_source() == f.get_source("ir") == f.get_ir() == str(lower(p.s, [p.a, p.d], "k"))
    assert repr(f) == "<Module k for interp: k>"
    with pytest.raises(UsageError, match="no source of kind 'asm'; available: ir"):
        f.get_source("asm")


def test_arguments_are_checked() -> None:
    _, f = built()
    with pytest.raises(ArgumentError, match=r"k: argument 0 \('A'\): expected dtype float32"):
        f(np.zeros((4, 4)), np.zeros((4, 4), "float32"))
    with pytest.raises(ArgumentError, match="k takes 2 arguments"):
        f(np.zeros((4, 4), "float32"))


def test_it_is_timed() -> None:
    _, f = built()
    a, d = np.ones((4, 4), "float32"), np.zeros((4, 4), "float32")
    result = f.time_evaluator("k", number=2, repeat=3)(a, d)
    assert len(result.results) == 3
    assert result.min > 0
    assert (d == 6.0).all()


def test_a_trace_compiles_to_the_same_program() -> None:
    p, f = built()
    made = compile(p.s.dag, p.s.trace_json(), p.s.arg_ids([p.a, p.d]), Target("interp"), "k")
    assert made == f.artifact
    a, d = np.ones((4, 4), "float32"), np.zeros((4, 4), "float32")
    Module(made)(a, d)
    assert (d == 6.0).all()


def test_a_saved_program_runs_where_the_compiler_is(tmp_path: Path) -> None:
    _, f = built()
    path = f.save(tmp_path / "k.json")
    code = """
import sys, numpy as np
from loopwright.runtime import load_module
a, d = np.ones((4, 4), "float32"), np.zeros((4, 4), "float32")
module = load_module(sys.argv[1])
try:
    module(a, d)
except Exception as error:
    print(error)
import loopwright.driver
module(a, d)
print(d.sum())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True
    )
    said = "a program of kind 'interp' runs in the compiler; import loopwright.driver first"
    assert done.stdout == f"{said}\n96.0\n", done.stderr
    with pytest.raises(UsageError, match="the module was loaded without its sources"):
        load_module(path).get_ir()


def test_damaged_programs_are_refused() -> None:
    _, f = built()
    a, d = np.ones((4, 4), "float32"), np.zeros((4, 4), "float32")
    for data in (b"{", json.dumps({"dag": 1}).encode(), b"[]"):
        with pytest.raises(UsageError, match="the program of 'k' is damaged"):
            Module(Artifact(f.artifact.manifest, data))(a, d)


def function(value: Any, n: int) -> Func:
    """``B[i] = value`` for i < 5, B of n elements."""
    b, i = Buffer("B", (n,), "int32"), Var("i")
    return Func("f", (b,), (True,), For(i, 5, "serial", Store(b, (i,), value(b, i))))


def called(f: Func) -> Module:
    _, m = built()
    manifest = json.loads(json.dumps(m.artifact.manifest).replace('"k"', '"f"'))
    b = f.params[0]
    manifest["functions"][0]["args"] = [
        {"name": "B", "shape": list(b.shape), "dtype": b.dtype, "output": True}
    ]
    return Module(Artifact(manifest, b"{}"), link=lambda manifest, objects: link_func(f))


def test_an_access_outside_is_reported_when_called_and_when_timed() -> None:
    m = called(function(lambda b, i: const(1, "int32"), 4))
    b = np.zeros(4, "int32")
    text = r"access outside B: index \[4\], shape \[4\]"
    with pytest.raises(RunError, match=text):
        m(b)
    with pytest.raises(RunError, match=text):
        m.time_evaluator("f", number=1)(b)


def test_other_failures_name_the_function() -> None:
    m = called(function(lambda b, i: Load(Buffer("C", (1,), "int32"), (i,), "int32"), 5))
    with pytest.raises(RunError, match="f: the interpreter failed: NameError"):
        m(np.zeros(5, "int32"))


def test_the_target_in_force_is_used() -> None:
    p = chain(4, 4)
    with Target("interp"):
        assert build(p.s, [p.a, p.d]).type_key == "interp"


def test_thread_axes_are_for_the_interpreter_too() -> None:
    """What a CPU target refuses, the interpreter runs one thread after the other."""
    p = chain(4, 4)
    p.s[p.d].bind(p.d.op.axis[0], te.thread_axis("blockIdx.x"))
    with pytest.raises(CodegenError):
        build(p.s, [p.a, p.d], "llvm")
    a, d = np.ones((4, 4), "float32"), np.zeros((4, 4), "float32")
    build(p.s, [p.a, p.d], "interp")(a, d)
    assert (d == 6.0).all()
