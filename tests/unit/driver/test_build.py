"""`build` and `compile`: from a schedule or a trace to something that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import llvmlite
import numpy as np
import pytest

import loopwright
from loopwright import lower, te, tir
from loopwright.driver import build, compile
from loopwright.errors import (
    BuildError,
    CodegenError,
    LowerError,
    ScheduleError,
    TargetError,
    TensorError,
)
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.module import Module
from loopwright.target import Target, host_cpu
from tests.unit.lowering.programs import CASES, packed_matmul
from tests.unit.schedule.programs import chain, matmul

ROOT = Path(__file__).parents[3]


def data(case: Any) -> tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    *inputs, out = case.args
    arrays = [rng.integers(-4, 5, t.shape).astype("float32") for t in inputs]
    return arrays, np.full(out.shape, np.nan, "float32")


# ------------------------------------------------------------------ build


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_built_functions_compute_what_numpy_does(name: str, threads: int) -> None:
    case = CASES[name]()
    f = build(case.s, case.args, target=f"llvm -num-threads={threads}", name=name)
    inputs, out = data(case)
    f(*inputs, out)
    np.testing.assert_array_equal(out, case.reference(*inputs))


def test_the_entry_is_called_by_its_name() -> None:
    p = chain(4, 4)
    f = build(p.s, [p.a, p.d], name="twice_and_more")
    a, d = np.ones((4, 4), "float32"), np.zeros((4, 4), "float32")
    assert f.entry_name == "twice_and_more"
    f["twice_and_more"](a, d)
    assert (d == 6.0).all()
    assert build(p.s, [p.a, p.d]).entry_name == "main"


def test_the_target_in_force_is_used() -> None:
    case = packed_matmul(8, 32, 12)
    with Target("llvm -num-threads=1"):
        assert not manifest(build(case.s, case.args))["functions"][0]["uses_pool"]
    with Target("llvm -num-threads=2"):
        assert manifest(build(case.s, case.args))["num_threads"] == 2
        explicit = build(case.s, case.args, target={"kind": "llvm", "num_threads": 1})
        assert manifest(explicit)["num_threads"] == 1
    assert manifest(build(case.s, case.args))["num_threads"] == 0


def manifest(m: Module) -> dict[str, Any]:
    return m.artifact.manifest


def test_sources() -> None:
    p = chain(4, 4)
    f = build(p.s, [p.a, p.d], target="llvm -num-threads=1", name="f")
    assert "define internal i32 @f.body" in f.get_source("ll-unoptimised")
    assert "@f(" in f.get_source("ll")
    assert "@f.body" not in f.get_source("ll"), "the body was inlined"
    assert "f:" in f.get_source("asm")


# ------------------------------------------------------------------ the manifest


def test_manifest() -> None:
    p = chain(64, 64)
    m = manifest(build(p.s, [p.a, p.c, p.d], target="llvm -num-threads=2", name="k"))
    assert json.loads(json.dumps(m)) == m
    assert m["functions"] == [
        {
            "name": "k",
            "args": [
                {"name": "A", "shape": [64, 64], "dtype": "float32", "output": False},
                {"name": "C", "shape": [64, 64], "dtype": "float32", "output": True},
                {"name": "D", "shape": [64, 64], "dtype": "float32", "output": True},
            ],
            "workspace_bytes": 64 * 64 * 4,
            "parallel_workspace_bytes": 0,
            "uses_pool": False,
        }
    ]
    assert (m["format"], m["kind"], m["entry"], m["num_threads"]) == (1, "llvm-object", "k", 2)
    assert (m["cpu"], m["features"]) == host_cpu()
    assert m["loopwright"] == loopwright.__version__
    assert m["llvmlite"] == llvmlite.__version__


def test_workspaces_of_workers_are_in_the_manifest() -> None:
    case = packed_matmul(64, 64, 64, 4, 32)
    (f,) = manifest(build(case.s, case.args, target="llvm -num-threads=2"))["functions"]
    panel = 64 * 32 * 4
    assert (f["parallel_workspace_bytes"], f["workspace_bytes"]) == (panel, panel)
    assert f["uses_pool"]
    (f,) = manifest(build(case.s, case.args, target="llvm -num-threads=1"))["functions"]
    assert (f["parallel_workspace_bytes"], f["workspace_bytes"]) == (0, panel)


# ------------------------------------------------------------------ compile


def test_a_trace_compiles_to_the_same_object() -> None:
    case = packed_matmul(11, 37, 9)
    target = Target("llvm -num-threads=1")
    dag = te.Dag.from_json(json.loads(json.dumps(case.s.dag.to_json())))
    trace = json.loads(json.dumps(case.s.trace_json()))
    artifact = compile(dag, trace, case.s.arg_ids(case.args), target, "mm")
    assert isinstance(artifact, Artifact)
    built = build(case.s, case.args, target=target, name="mm").artifact
    assert artifact.manifest == built.manifest
    assert artifact.objects == built.objects
    inputs, out = data(case)
    Module(artifact)(*inputs, out)
    np.testing.assert_array_equal(out, case.reference(*inputs))


@pytest.mark.parametrize("target", ["llvm -num-threads=1", "interp"])
def test_arguments_that_are_not_output_0_compile_from_json(target: str) -> None:
    A, k = te.placeholder((5, 7), name="A"), te.reduce_axis((0, 7), "k")
    at, top = te.compute((5,), lambda i: te.argmax((k, A[i, k]), axis=k), name="T")
    s = te.create_schedule(top)
    ids = json.loads(json.dumps(s.arg_ids([A, top, at])))
    assert ids == [0, [1, 1], 1]
    f = Module(compile(s.dag, [], ids, Target(target)))
    a = np.random.default_rng(3).random((5, 7), "float32")
    best, place = np.zeros(5, "float32"), np.zeros(5, "int32")
    f(a, best, place)
    np.testing.assert_array_equal(best, a.max(1))
    np.testing.assert_array_equal(place, a.argmax(1))


def test_compile_is_the_same_in_another_process() -> None:
    """Nothing in the object depends on hashes of this process."""
    code = (
        "import hashlib\n"
        "from loopwright.driver import compile\n"
        "from loopwright.target import Target\n"
        "from tests.unit.lowering.programs import conv2d\n"
        "c = conv2d(7, 6)\n"
        "a = compile(c.s.dag, c.s.trace_json(), c.s.arg_ids(c.args), Target('llvm'), 'f')\n"
        "print(hashlib.sha256(a.objects).hexdigest())\n"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
        for _ in range(2)
    }
    assert len(runs) == 1


def test_the_empty_trace_is_the_naive_program() -> None:
    p = matmul(3, 4, 5)
    artifact = compile(p.s.dag, [], [0, 1, 2], Target("llvm"))
    assert artifact.manifest["entry"] == "main"
    a, b = np.ones((3, 5), "float32"), np.ones((5, 4), "float32")
    c = np.zeros((3, 4), "float32")
    Module(artifact)(a, b, c)
    assert (c == 5.0).all()


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("1st", "build: the name '1st' cannot be used; take letters, digits and underscores"),
        ("a-b", "build: the name 'a-b' cannot be used"),
        ("", "build: the name '' cannot be used"),
        ("fünf", "build: the name 'fünf' cannot be used"),
        (
            "lw_mine",
            "build: the name 'lw_mine' cannot be used; .* not beginning with a digit or 'lw_'",
        ),
        ("x\n", r"build: the name 'x\\n' cannot be used"),
        ("expf", "build: the name 'expf' is that of a C function which code may call"),
        ("memset", "build: the name 'memset' is that of a C function"),
    ],
)
def test_names(name: str, text: str) -> None:
    p = chain()
    with pytest.raises(BuildError, match=text):
        build(p.s, [p.a, p.d], name=name)


@pytest.mark.parametrize("target", ["llvm", "c", "interp"])
def test_an_argument_that_nothing_reads_is_one(target: str) -> None:
    """The only read of A folds away; the user declared it, and calls pass it."""
    a, b = (te.placeholder((4,), "int32", name=n) for n in "AB")
    x, out = np.arange(4, dtype="int32"), np.full(4, 9, "int32")
    for body in (lambda i: te.floormod(a[i], 1), lambda i: a[i] * 0, lambda i: b[i] * 2 + a[i] * 0):
        c = te.compute((4,), body, name="C")
        s = te.create_schedule(c)
        copied = s.cache_write(c, "global")
        s[copied].split(s[copied].op.axis[0], 2)
        dag, args = s.dag.hash, [*([b] if b in c.op.input_tensors else []), a, c]
        build(s, args, target)(*[x] * (len(args) - 1), out)
        np.testing.assert_array_equal(out, x * 2 if b in args else x * 0)
        assert s.dag.hash == dag
        with pytest.raises(LowerError, match="the output 'C' is not in"):
            build(s, args[:-1], target)


def test_arguments_that_nothing_reads_of_tensors_and_templates() -> None:
    a = te.placeholder((4,), "int32", name="A")
    c = te.compute((4,), lambda i: a[i] * 0 + 7, name="C")
    x, out = np.arange(4, dtype="int32"), np.zeros(4, "int32")
    loopwright.build([a, c], "llvm")(x, out)
    np.testing.assert_array_equal(out, [7] * 4)

    @loopwright.template("tests/scaled")
    def scaled(scale: int) -> Any:
        a = te.placeholder((4,), "int32", name="A")
        c = te.compute((4,), lambda i: a[i] * scale, name="C")
        return te.create_schedule(c), [a, c]

    task = loopwright.Task("tests/scaled", (0,), "llvm")
    s, args = task.instantiate(task.config_space.get(0))
    assert s.arg_ids(args) == [1, 0]
    build(s, args)(x, out)
    np.testing.assert_array_equal(out, [0] * 4)


def test_what_lowering_refuses() -> None:
    p = chain()
    with pytest.raises(LowerError, match="lower: 'A' is read but is not among the arguments"):
        build(p.s, [p.d])
    with pytest.raises(LowerError, match="lower: 'A' is read but is not among the arguments"):
        build(p.s, [te.placeholder((4,)), p.d])
    with pytest.raises(ScheduleError, match="is not part of this schedule"):
        build(p.s, [p.a, te.compute((4,), lambda i: i, name="E")])
    with pytest.raises(
        BuildError, match=r"build: expected a schedule .*, got \[Tensor\(A: .* first"
    ):
        build([p.a, p.d], p.s)  # type: ignore[arg-type]
    with pytest.raises(TensorError, match=r"A is one tensor; where a list is expected give \[A\]"):
        build(p.s, p.a)  # type: ignore[arg-type]


def test_thread_axes_on_a_cpu() -> None:
    p = chain()
    p.s[p.d].bind(p.d.op.axis[0], te.thread_axis("blockIdx.x"))
    with pytest.raises(
        CodegenError, match=r"llvm: loop 'D\.i' is bound to blockIdx\.x; thread axes are"
    ):
        build(p.s, [p.a, p.d])


def test_targets() -> None:
    p = chain()
    with pytest.raises(TargetError, match="unknown target 'llvmm'"):
        build(p.s, [p.a, p.d], target="llvmm")


def test_damaged_traces() -> None:
    p = matmul()
    with pytest.raises(ScheduleError, match="trace: unknown primitive 'spilt'"):
        compile(p.s.dag, [["spilt", 2, "a0", 4, None]], [0, 1, 2], Target("llvm"))


@pytest.mark.parametrize("host", [None, "llvm", "llvm -num-threads=1", Target("llvm")])
def test_a_host_target_changes_nothing(host: Any) -> None:
    p = chain(4, 4)
    plain = build(p.s, [p.a, p.d], "llvm -num-threads=1")
    hosted = build(p.s, [p.a, p.d], "llvm -num-threads=1", target_host=host)
    assert hosted.artifact == plain.artifact


def test_a_host_that_is_no_cpu_is_refused() -> None:
    p = chain(4, 4)
    with pytest.raises(TargetError, match=r"target_host must be a CPU: a host is .*not 'cuda'$"):
        build(p.s, [p.a, p.d], target_host="cuda")


def test_the_order_of_tvm_s_arguments() -> None:
    p = chain(4, 4)
    assert build(p.s, [p.a, p.d], "llvm", "llvm", "scaled").entry_name == "scaled"
    with pytest.raises(TargetError, match=r"unknown target 'scaled'.*as name='scaled'"):
        build(p.s, [p.a, p.d], "llvm", "scaled")


def test_buffers_that_say_what_arguments_are_anyway() -> None:
    p = chain(4, 8)
    bound = {
        p.a: tir.decl_buffer((4, 8), p.a.dtype, name="A"),
        p.d: tir.decl_buffer((4, 8), p.d.dtype, strides=[te.var("stride"), 1]),
    }
    plain = build(p.s, [p.a, p.d], "llvm -num-threads=1")
    assert build(p.s, [p.a, p.d], "llvm -num-threads=1", binds=bound).artifact == plain.artifact
    assert str(lower(p.s, [p.a, p.d], binds=bound)) == str(lower(p.s, [p.a, p.d]))


@pytest.mark.parametrize(
    ("buffer", "text"),
    [
        (
            lambda p: {p.a: tir.decl_buffer((4, 8), strides=[16, 1])},
            r"of strides \[16, 1\] for 'A'",
        ),
        (lambda p: {p.a: tir.decl_buffer((8, 4))}, r"a buffer float32\[8, 4\]"),
        (lambda p: {p.c: tir.decl_buffer((4, 8))}, "binds names .*C.* which is no argument"),
    ],
)
def test_other_layouts_of_arguments_are_refused(buffer: Any, text: str) -> None:
    p = chain(4, 8)
    with pytest.raises(BuildError, match=text):
        build(p.s, [p.a, p.d], binds=buffer(p))


def test_a_lowered_function_is_built_as_it_is() -> None:
    p = chain(4, 8)
    made = build(lower(p.s, [p.a, p.d], "scaled"), target="llvm -num-threads=1")
    assert made.entry_name == "scaled"
    data = np.random.default_rng(0).random((4, 8), "float32")
    one, two = np.zeros((4, 8), "float32"), np.zeros((4, 8), "float32")
    made(data, one)
    build(p.s, [p.a, p.d])(data, two)
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("more", [{"args": []}, {"name": "other"}, {"verify": True}])
def test_a_lowered_function_takes_nothing_more(more: dict[str, Any]) -> None:
    p = chain(4, 8)
    with pytest.raises(BuildError, match=r"'main' is lowered already.*give the target"):
        build(lower(p.s, [p.a, p.d]), **more)


def test_a_schedule_needs_its_arguments() -> None:
    with pytest.raises(BuildError, match="expected a schedule and its arguments"):
        build(chain(4, 8).s)
