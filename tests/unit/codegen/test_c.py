"""The C target: what schedules turn into, that it computes what NumPy does, and its refusals."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.codegen.backends import compile_func
from loopwright.codegen.c import compiler as c
from loopwright.codegen.c import system_compiler as cc
from loopwright.driver import build, build_func
from loopwright.errors import BuildError, CodegenError, TargetError, UsageError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Var, cast, const
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Allocate, For, Func, Let, Seq, Store, seq
from loopwright.lowering import lower
from loopwright.runtime import load_module
from loopwright.schedule import create_schedule
from loopwright.target import Target, host_cpu
from tests.covering import covering
from tests.unit.lowering.programs import CASES, packed_matmul
from tests.unit.schedule.programs import chain

ROOT = Path(__file__).parents[3]
needs_cc = pytest.mark.skipif(
    shutil.which(Target("c").cc) is None, reason=f"no C compiler here: {cc.INSTALL}"
)


WITH_FMA = Target("c -mcpu=x86-64-v3")


def text(case: Any, target: str = "c -num-threads=2", name: str = "f") -> str:
    return c.write_c(lower(case.s, case.args, name), Target(target))[0]


# ------------------------------------------------------------------ the text


@pytest.mark.parametrize("name", ["packed_matmul", "conv2d_not_dividing", "dense_in_lanes"])
def test_text(name: str, golden: Any) -> None:
    golden(text(CASES[name](), "c -num-threads=2 -mcpu=x86-64-v3", name))


def test_text_of_values(golden: Any) -> None:
    """Helpers for what C's operators do not say; narrow integers are cut."""
    a = te.placeholder((37,), "float32", name="x.y")
    b = te.placeholder((37,), "int8", name="int")
    out = te.compute(
        (37,),
        lambda i: te.select(
            te.any(a[i] > 1.5, te.all(a[i] < -1e30, te.equal(b[i], 3))),
            te.cast(te.max(a[i], te.sigmoid(a[i])), "int8") + b[i] // (b[i] - 1),
            te.cast((2 - i * 3) % 5, "int8") - (b[i] << 1),
        ),
        name="linux",
    )
    s = create_schedule(out)
    s[out].vectorize(out.op.axis[0])
    golden(c.write_c(lower(s, [a, b, out], "main"), WITH_FMA)[0])


def test_names_that_c_takes_are_changed() -> None:
    names = ["for", "1x", "a.b", "a_b", "M_PI", "INT8_MAX", "_x", "ws", "expf", "größe", ""]
    tensors = [te.placeholder((2,), name=n) for n in names]
    out = te.compute((2,), lambda i: sum((t[i] for t in tensors[1:]), tensors[0][i]), name="while")
    s = create_schedule(out)
    source = c.write_c(lower(s, [*tensors, out], "f"), Target("c"))[0]
    found = re.findall(r"const float (\w+)\[restrict 2\]", source)
    assert len(set(found)) == len(names)
    assert found[:7] == ["for_1", "x1x", "a_b", "a_b_1", "xM_PI", "xINT8_MAX", "x_x"]


def test_identifiers_are_used_again_when_their_scope_ends() -> None:
    source = text(CASES["fused_elementwise"]())
    assert "_1_1" not in source


@needs_cc
@pytest.mark.parametrize("name", ["main", "int", "y0", "printf", "atan2f", "args"])
def test_any_name_can_be_called(name: str) -> None:
    p = chain(4, 4)
    f = build(p.s, [p.a, p.d], "c", name=name)
    a, d = np.ones((4, 4), "float32"), np.zeros((4, 4), "float32")
    f[name](a, d)
    assert (d == 6.0).all()


# ------------------------------------------------------------------ results


@needs_cc
@pytest.mark.parametrize(
    ("name", "target"),
    covering(CASES, ["c -num-threads=1", "c -num-threads=2 -opt-level=3"], strength=1),
)
def test_functions_compute_what_numpy_does(name: str, target: str) -> None:
    case = CASES[name]()
    f = build(case.s, case.args, target, name=name)
    rng = np.random.default_rng(1)
    inputs = [rng.integers(-4, 5, t.shape).astype("float32") for t in case.args[:-1]]
    out = np.full(case.args[-1].shape, np.nan, "float32")
    f(*inputs, out)
    np.testing.assert_array_equal(out, case.reference(*inputs))


@needs_cc
@pytest.mark.parametrize("kind", ["serial", "vectorized", "parallel"])
def test_lets_of_any_type(kind: str) -> None:
    """Also those around a parallel loop, which reach its body through the closure."""
    a, b = Buffer("a", (9,), "float32"), Buffer("b", (9,), "float32")
    i, j, x, k = Var("i"), Var("j"), Var("x", "float32"), Var("k")
    zero = const(0, "int32")
    body = Store(b, (k,), Load(a, (j,), "float32") * x)
    inner = Let(k, const(8, "int32") - i, Let(j, i * 2 % 9, body))
    loop = For(i, 9, kind, inner)
    f = Func("f", (a, b), (False, True), Let(x, Load(a, (zero,), "float32") + 0.5, loop))
    data = np.arange(1, 10).astype("float32")
    want, got = np.zeros(9, "float32"), np.zeros(9, "float32")
    interpret(f, [data, want])
    build_func(f, "c -num-threads=2")(data, got)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(want[::-1], data[np.arange(9) * 2 % 9] * 1.5)


def scratch(nbytes: int, kind: str) -> Func:
    """A loop whose body stores through a buffer of ``nbytes``."""
    t, out = Buffer("t", (nbytes // 4,), "float32"), Buffer("c", (4,), "float32")
    i, zero = Var("i"), const(0, "int32")
    value = Load(t, (zero,), "float32")
    body = seq(Store(t, (zero,), const(1.0, "float32")), Store(out, (i,), value))
    return Func("f", (out,), (True,), For(i, 4, kind, Allocate(t, body)))


@needs_cc
@needs_cc
def test_names_of_one_block_are_declared_once() -> None:
    """A let that ends a sequence inside a sequence leaves its name to those that follow."""
    b = Buffer("B", (2,), "int32")
    x, y = Var("x", "int32"), Var("x", "float32")
    first = Let(x, Load(b, (const(0, "int32"),), "int32"), Store(b, (const(1, "int32"),), x))
    whole = cast(y, "int32")
    then = Let(y, const(2.5, "float32"), Store(b, (const(0, "int32"),), whole))
    body = Seq((Seq((Store(b, (const(0, "int32"),), const(7, "int32")), first)), then))
    f = compile_func(Func("main", (b,), (True,), body), Target("c"))
    assert f.objects


@needs_cc
@pytest.mark.parametrize("target", ["c -num-threads=1", "llvm -num-threads=2"])
def test_prefetches_change_no_value(target: str) -> None:
    """Lines beyond the tensor as well; inside a vector loop, and of a buffer with gaps."""
    a = te.placeholder((9, 40), name="A")
    d = te.compute((9, 40), lambda i, j: a[i, j] * 3.0, name="D")
    out = te.compute((9, 40), lambda i, j: d[i, j] * d[8 - i, j] + a[i, j], name="out")
    s = create_schedule(out)
    i, j = s[out].op.axis
    s[out].parallel(i)
    s[out].vectorize(j)
    s[d].storage_align(0, 16, 3)
    s[out].prefetch(a, i, 2)
    s[out].prefetch(d, i, 1)
    copy = s.cache_read(d, "local", [out])
    s[copy].compute_at(s[out], j)
    s[copy].prefetch(d, s[copy].op.axis[0], 1)
    f = build(s, [a, out], target=target)
    assert "prefetch" in f.get_source()
    x = np.random.default_rng(0).integers(-4, 5, (9, 40)).astype("float32")
    y = np.zeros_like(x)
    f(x, y)
    np.testing.assert_array_equal(y, 9 * x * x[::-1] + x)


@pytest.mark.parametrize("nbytes", [4096, 4100, 1 << 20])
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_workspaces_are_those_of_llvm(nbytes: int, kind: str) -> None:
    f = scratch(nbytes, kind)
    one, other = (compile_func(f, Target(f"{t} -num-threads=2")) for t in ("llvm", "c"))
    assert one.workspace_bytes == other.workspace_bytes
    assert one.parallel_workspace_bytes == other.parallel_workspace_bytes
    assert one.uses_pool == other.uses_pool


# ------------------------------------------------------------------ the module


@needs_cc
def test_the_module() -> None:
    case = packed_matmul(8, 32, 12)
    f = build(case.s, case.args, "c -num-threads=2", name="mm")
    assert (f.type_key, f.format, f.is_binary) == ("c", "o", True)
    m = f.artifact.manifest
    assert (m["kind"], m["entry"], m["num_threads"]) == ("c-object", "mm", 2)
    assert (m["cpu"], m["features"]) == host_cpu()
    assert f.get_source() == f.get_source("c") == text(case, name="mm")
    assert "mm:" in f.get_source("asm")
    assert f.get_ir() == str(lower(case.s, case.args, "mm"))
    with pytest.raises(UsageError, match="no source of kind 'll'; available: c, asm, ir"):
        f.get_source("ll")
    a, b = np.ones((8, 12), "float32"), np.ones((12, 32), "float32")
    out = np.zeros((8, 32), "float32")
    assert f.time_evaluator("mm", number=2, repeat=2)(a, b, out).min > 0
    assert (out == 12).all()


@needs_cc
def test_a_saved_module_needs_no_compiler(tmp_path: Path) -> None:
    p = chain(4, 4)
    path = build(p.s, [p.a, p.d], "c", name="k").save(tmp_path / "k.o")
    code = """
import sys, numpy as np
from loopwright.runtime import load_module
a, d = np.ones((4, 4), "float32"), np.zeros((4, 4), "float32")
load_module(sys.argv[1])(a, d)
column = [m for m in sys.modules if m.split(".")[1:2] in (["te"], ["codegen"], ["target"])]
print(d.sum(), [m for m in column if m.startswith("loopwright")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "96.0 []\n", done.stderr
    assert load_module(path).type_key == "c"


@needs_cc
def test_code_for_another_cpu_is_made_and_not_run(tmp_path: Path) -> None:
    p = chain(4, 4)
    f = build(p.s, [p.a, p.d], "c -mcpu=x86-64 -mattr=+avx512fp16", name="k")
    if "+avx512fp16" in host_cpu()[1]:
        pytest.skip("this CPU has avx512fp16")
    with pytest.raises(TargetError, match=r"built for x86-64 with .*avx512fp16"):
        f(np.ones((4, 4), "float32"), np.zeros((4, 4), "float32"))


# ------------------------------------------------------------------ the compiler


def test_without_a_compiler_it_says_what_to_install() -> None:
    p = chain(4, 4)
    with pytest.raises(
        TargetError,
        match=r"the target c is not available: there is no C compiler 'nocc' on this machine; "
        r"install one \(apt-get install gcc libc6-dev\), or name another with -cc=\.\.\.",
    ):
        build(p.s, [p.a, p.d], "c -cc=nocc")


def complaining(tmp_path: Path, said: str) -> str:
    """A compiler that says this and fails."""
    path = tmp_path / "cc"
    path.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 1\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("said", "error", "shown"),
    [
        (
            "<stdin>:2:10: fatal error: math.h: No such file or directory",
            TargetError,
            r"not available: .*math\.h.*install it \(apt-get install gcc libc6-dev\)",
        ),
        (
            "cc1: error: bad value ('znver9') for '-march=' switch",
            TargetError,
            "does not know the CPU 'haswell' .*name an older one, or install a newer compiler",
        ),
        ("cc1: error: unrecognized option", BuildError, "refused the code: cc1: error: unrec"),
        ("", BuildError, "refused the code: exit status 1"),
    ],
)
def test_what_the_compiler_says(tmp_path: Path, said: str, error: Any, shown: str) -> None:
    with pytest.raises(error, match=shown):
        cc.compile_c(cc.Source(""), Target("c -mcpu=haswell", cc=complaining(tmp_path, said)))


@needs_cc
def test_flags_of_the_user_reach_the_compiler() -> None:
    p = chain(4, 4)
    with pytest.raises(BuildError, match=r"refused the code: .*-fno-such-flag"):
        build(p.s, [p.a, p.d], "c -cflags=-fno-such-flag")
    assert "-ffast-math" in cc.flags(Target("c -fastmath=true"), cc.Source(""))
    assert "-ffast-math" not in cc.flags(Target("c -fastmath=true"), cc.Source("", strict=True))


@pytest.mark.skipif("+sse2" not in host_cpu()[1], reason="flags of x86-64")
def test_flags_of_cpus() -> None:
    assert cc.cpu_flags(Target("c"))[0] == "-march=native"
    assert cc.cpu_flags(Target("c -march=x86-64-v2")) == [
        "-march=x86-64-v2",
        "-mprefer-vector-width=128",
    ]
    assert cc.cpu_flags(Target("c -mcpu=x86-64 -mattr=+avx2,-avx512f,+cmov"))[:3] == [
        "-march=x86-64",
        "-mavx2",
        "-mno-avx512f",
    ]


@needs_cc
def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    p = chain(4, 4)
    build(p.s, [p.a, p.d], "c").get_source("asm")
    assert list(tmp_path.iterdir()) == []


def test_folders_of_killed_builders_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old ones only, and those of no process that lives."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    names = [f"loopwright-cc-{done.pid}-old", f"loopwright-cc-{os.getpid()}-mine"]
    names += [f"loopwright-cc-{done.pid}-new", "another"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "out").write_text("x")
        if not name.endswith("new"):
            os.utime(tmp_path / name, (1, 1))
    cc.remove_abandoned.cache_clear()
    cc.remove_abandoned()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(names[1:])


def test_conditions_around_memory_turn_masked_loads_off() -> None:
    """GCC 12 gives some masked loads a wrong mask; see `system_compiler.GUARDED`."""
    assert cc.GUARDED in cc.flags(Target("c -cc=gcc"), cc.Source("", guarded=True))
    assert cc.GUARDED not in cc.flags(Target("c -cc=gcc"), cc.Source("", guarded=False))
    assert cc.GUARDED not in cc.flags(Target("c -cc=clang-19"), cc.Source("", guarded=True))


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize("tag", ["threadIdx.x", "blockIdx.y"])
def test_thread_axes_are_refused(tag: str) -> None:
    p = chain()
    p.s[p.d].bind(p.d.op.axis[0], te.thread_axis(tag))
    with pytest.raises(
        CodegenError,
        match=rf"c: loop 'D.i' is bound to {tag}; thread axes are for GPU targets, on a CPU use",
    ):
        compile_func(lower(p.s, [p.a, p.d]), Target("c"))


def test_a_let_of_another_type_is_refused() -> None:
    b, x = Buffer("b", (1,), "int32"), Var("x", "int32")
    f = Func("f", (b,), (True,), Let(x, const(1, "int64"), Store(b, (const(0, "int32"),), x)))
    with pytest.raises(CodegenError, match="c: 'x' is int32, not int64"):
        compile_func(f, Target("c"))


# ------------------------------------------------------------------ tuning


@pytest.mark.slow
@needs_cc
def test_tasks_with_target_c_are_tuned(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Builders compile with the C compiler, runners link the object and time it."""
    if request.config.getoption("--cpu"):
        pytest.skip("builders ask the real CPU for the flags of the C compiler")
    task = lw.create_task("matmul", args=(32, 32, 32), target="c -num-threads=1")
    log = tmp_path / "log.jsonl"
    option = lw.measure_option(lw.LocalBuilder(n_parallel=1), lw.LocalRunner(number=1, repeat=1))
    callbacks = [lw.callback.log_to_file(log)]
    summary = lw.tuner.RandomTuner(task, seed=0).tune(2, option, callbacks=callbacks)
    assert summary.failures == {}
    records = lw.records.load(log).records
    assert {r.target["kind"] for r in records} == {"c"}
    assert all(r.times for r in records)
