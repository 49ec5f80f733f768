"""Compiled programs of symbolic sizes: one build serves every size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzzing.guarded import GuardedRunner
from loopwright import te
from loopwright.codegen.c import compiler as c
from loopwright.driver import build
from loopwright.errors import ArgumentError, BuildError, TaskError
from loopwright.lowering import lower
from loopwright.runtime import Module, load_module
from loopwright.runtime.devices.device import cpu
from loopwright.runtime.guarded_memory import Side
from loopwright.runtime.kernels.symbolic import SymbolicFunction
from loopwright.schedule import create_schedule
from loopwright.target import Target
from loopwright.task import Task, template
from loopwright.testing.target_contract import runs_here
from tests.unit.lowering.test_symbolic import flat, packed, panel_at_root, parts, plain, product

SCHEDULES = [plain, flat, packed, panel_at_root, parts]
C_TARGETS = ("c -num-threads=1", "c -num-threads=2") if runs_here("c") else ()
TARGETS = ("llvm -num-threads=1", "llvm -num-threads=2", *C_TARGETS)
ONE_THREAD = TARGETS[::2]
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def runner() -> Iterator[GuardedRunner]:
    runner = GuardedRunner()
    yield runner
    runner.close()


def operands(rng: Any, n: int, m: int, k: int) -> tuple[Array, Array, Array]:
    a, b = rng.integers(-4, 4, (n, k)), rng.integers(-4, 4, (k, m))
    return a.astype("float32"), b.astype("float32"), np.full((n, m), np.nan, "float32")


@cache
def matmul(schedule: Any, target: str) -> Module:
    s, A, B, C = product()
    schedule(s, B, C)
    return build(s, [A, B, C], target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.__name__)
def test_one_matmul_for_all_sizes(schedule: Any, target: str) -> None:
    f = matmul(schedule, target)
    rng = np.random.default_rng(1)
    shapes = [(1, 1, 1), (8, 8, 8), (64, 32, 16), (97, 89, 83), (100, 7, 1), (1, 130, 31)]
    shapes += [tuple(int(x) for x in rng.integers(1, 40, 3)) for _ in range(24)]
    for n, m, k in shapes:
        a, b, c = operands(rng, n, m, k)
        f(a, b, c)
        np.testing.assert_array_equal(c, a @ b, err_msg=f"{n} {m} {k}")


@pytest.mark.parametrize("target", ["interp", *ONE_THREAD])
def test_size_zero_is_served_where_no_output_has_elements(target: str) -> None:
    f = matmul(packed, target)
    for n, m, k in [(0, 5, 3), (5, 0, 3), (0, 0, 0)]:
        f(np.ones((n, k), "float32"), np.ones((k, m), "float32"), np.empty((n, m), "float32"))
    with pytest.raises(ArgumentError, match="expected dtype float32, got float64"):
        f(np.ones((0, 3), "float32"), np.ones((3, 5)), np.empty((0, 5), "float32"))
    with pytest.raises(ArgumentError, match=r"the extent \w+ is 0 .*where no output has elements"):
        f(np.ones((2, 0), "float32"), np.ones((0, 5), "float32"), np.empty((2, 5), "float32"))


@pytest.mark.parametrize("target", ONE_THREAD)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.__name__)
def test_nothing_outside_is_touched(runner: GuardedRunner, schedule: Any, target: str) -> None:
    """Arrays and workspace of exactly the size, against pages that may not be touched."""
    artifact = matmul(schedule, target).artifact
    rng = np.random.default_rng(2)
    sides: tuple[Side, ...] = ("start", "end")
    for side in sides:
        for n, m, k in [(1, 1, 1), (3, 5, 7), (8, 16, 4), (17, 9, 33)]:
            a, b, c = operands(rng, n, m, k)
            got = runner.run(artifact, [a, b, c], side)
            np.testing.assert_array_equal(got[2], a @ b, err_msg=f"{side} {n} {m} {k}")


@pytest.mark.parametrize("target", TARGETS[1::2])
def test_softmax_of_rows(target: str) -> None:
    n, m = te.var("n"), te.var("m")
    X = te.placeholder((n, m), name="X")
    k, k2 = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="k2")
    top = te.compute((n,), lambda i: te.max(X[i, k], axis=k), name="top")
    E = te.compute((n, m), lambda i, j: te.exp(X[i, j] - top[i]), name="E")
    total = te.compute((n,), lambda i: te.sum(E[i, k2], axis=k2), name="total")
    Y = te.compute((n, m), lambda i, j: E[i, j] / total[i], name="Y")
    s = create_schedule(Y.op)
    i, j = Y.op.axis
    _, inner = s[Y].split(j, 8)
    s[Y].vectorize(inner)
    s[Y].parallel(i)
    for t in (total, E, top):
        s[t].compute_at(s[Y], i)
    f = build(s, [X, Y], target)
    rng = np.random.default_rng(3)
    for shape in [(1, 1), (3, 7), (16, 8), (5, 1000)]:
        x = rng.standard_normal(shape).astype("float32")
        y = np.empty_like(x)
        f(x, y)
        e = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("target", TARGETS[1::2])
def test_convolution_with_padding(target: str) -> None:
    h, w = te.size_var("h"), te.size_var("w")
    A = te.placeholder((2, h, w), name="A")
    W = te.placeholder((3, 2, 3, 3), name="W")
    P = te.compute(
        (2, h + 2, w + 2),
        lambda c, y, x: te.if_then_else(
            te.all(y >= 1, y < h + 1, x >= 1, x < w + 1), A[c, y - 1, x - 1], 0.0
        ),
        name="P",
    )
    c, ky, kx = (te.reduce_axis((0, e), name=t) for e, t in ((2, "c"), (3, "ky"), (3, "kx")))
    R = te.compute(
        (3, h, w),
        lambda o, y, x: te.sum(P[c, y + ky, x + kx] * W[o, c, ky, kx], axis=[c, ky, kx]),
        name="R",
    )
    s = create_schedule(R.op)
    o, y, x = R.op.axis
    yo, yi = s[R].split(y, 4)
    xo, xi = s[R].split(x, 8)
    s[R].reorder(yo, xo, o, yi, xi)
    s[R].vectorize(xi)
    s[R].parallel(s[R].fuse(yo, xo))
    s[P].compute_at(s[R], s[R].leaf_iter_vars[0])
    f = build(s, [A, W, R], target)
    rng = np.random.default_rng(4)
    weight = rng.integers(-3, 3, (3, 2, 3, 3)).astype("float32")
    for rows, columns in [(1, 1), (4, 8), (5, 9), (3, 30), (17, 16)]:
        a = rng.integers(-3, 3, (2, rows, columns)).astype("float32")
        out = np.full((3, rows, columns), np.nan, "float32")
        f(a, weight, out)
        p = np.pad(a, ((0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(p, (3, 3), (1, 2))
        np.testing.assert_array_equal(out, np.einsum("cyxij,ocij->oyx", windows, weight))


# ------------------------------------------------------------------ arguments


def shifted() -> tuple[Any, te.Tensor, te.Tensor, Any]:
    n, k = te.var("n"), te.var("k")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[te.min(te.max(i + k, 0), n - 1)] * k, name="B")
    return create_schedule(B.op), A, B, k


@pytest.mark.parametrize("target", [*ONE_THREAD, "interp"])
def test_a_size_that_is_passed(target: str) -> None:
    s, A, B, k = shifted()
    f = build(s, [k, A, B], target)
    a, b = np.arange(1, 6, dtype="float32"), np.zeros(5, "float32")
    for shift in (-2, 0, 3):
        f(shift, a, b)
        np.testing.assert_array_equal(b, a[np.clip(np.arange(5) + shift, 0, 4)] * shift)
    with pytest.raises(
        ArgumentError, match=r"main takes 3 arguments \(k: int, A: float32\[n\], B:"
    ):
        f(a, b)
    with pytest.raises(ArgumentError, match=r"main: the size 'k' is an int, got array"):
        f(a, a, b)


def test_a_size_that_nothing_tells() -> None:
    s, A, B, k = shifted()
    with pytest.raises(BuildError) as e:
        build(s, [A, B])
    assert str(e.value) == (
        "build: no dimension of an argument tells the size 'k'; pass it as an argument: "
        "build(s, [k, ...])"
    )
    with pytest.raises(BuildError, match="build: the program has no size variable 'z'; leave it"):
        build(s, [te.var("z"), A, B])
    with pytest.raises(BuildError, match="build: a size variable is given twice"):
        build(s, [k, k, A, B])


def test_shapes_that_disagree() -> None:
    s, A, B, C = product()
    f = build(s, [A, B, C])
    a, b, c = operands(np.random.default_rng(0), 2, 3, 4)
    with pytest.raises(ArgumentError) as e:
        f(a, b[:3], c)
    assert str(e.value) == (
        "main: dimension 0 of argument 1 ('B') is 3, so k is 3, but dimension 1 of argument 0 "
        "('A') says that k is 4"
    )
    with pytest.raises(ArgumentError, match=r"main: argument 2 .'C'.: expected dtype float32"):
        f(a, b, c.astype("float64"))
    assert np.isnan(c).all()


def test_the_other_ways_to_run(tmp_path: Path) -> None:
    s, A, B, C = product()
    packed(s, B, C)
    made = build(s, [A, B, C])
    made.save(tmp_path / "f.o")
    assert json.loads((tmp_path / "f.o.json").read_text())["format"] == 2
    f = Module.load(tmp_path / "f.o")
    a, b, c = operands(np.random.default_rng(0), 20, 30, 40)
    assert f.time_evaluator("main", cpu(0), number=1)(a, b, c).mean > 0
    np.testing.assert_array_equal(c, a @ b)
    main = f["main"]
    assert isinstance(main, SymbolicFunction)
    assert main.signature == ("A: float32[n, k]", "B: float32[k, m]", "C: float32[n, m]")
    assert [(a.name, a.shape, a.output) for a in main.args[1:]] == [
        ("B", ("k", "m"), False),
        ("C", ("n", "m"), True),
    ]
    small, large = main.at(n=20, m=30, k=2), main.at(n=20, m=30, k=41)
    assert (small.workspace_bytes, large.workspace_bytes) == (64, 42 * 8 * 4)
    assert small.args[0].shape == (20, 2)
    with pytest.raises(ArgumentError, match="main: the sizes are n, k, m; got n"):
        main.at(n=1)


def test_programs_of_known_sizes_keep_their_manifest() -> None:
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    manifest = build(create_schedule(B.op), [A, B]).artifact.manifest
    assert manifest["format"] == 1
    assert "sizes" not in manifest["functions"][0]


def test_sizes_of_one_name() -> None:
    x, y = te.var("n"), te.var("n")
    A = te.placeholder((x, y), name="A")
    B = te.compute((y, x), lambda i, j: A[j, i], name="B")
    f = build(create_schedule(B.op), [A, B])
    a, b = np.arange(6, dtype="float32").reshape(2, 3), np.zeros((3, 2), "float32")
    f(a, b)
    np.testing.assert_array_equal(b, a.T)


@pytest.mark.parametrize("target", TARGETS[1::2])
def test_a_library_serves_every_size(tmp_path: Path, target: str) -> None:
    if not runs_here("c"):
        pytest.skip("no C compiler, which links the library")
    s, A, B, C = product()
    packed(s, B, C)
    build(s, [A, B, C], target, name="mm").export_library(tmp_path / "mm.so")
    f = load_module(tmp_path / "mm.so")
    rng = np.random.default_rng(5)
    for n, m, k in [(1, 1, 1), (20, 30, 40), (97, 89, 83)]:
        a, b, c = operands(rng, n, m, k)
        f(a, b, c)
        np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("target", C_TARGETS)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.__name__)
def test_workspaces_in_c_are_those_of_llvm(schedule: Any, target: str) -> None:
    other = target.replace("c ", "llvm ")
    one, two = (matmul(schedule, t).artifact.manifest["functions"] for t in (target, other))
    assert one == two


def test_text_in_c(golden: Any) -> None:
    s, A, B, C = product()
    packed(s, B, C)
    f = lower(s, [A, B, C], "mm")
    golden(c.write_c(f, Target("c -num-threads=2 -mcpu=x86-64-v3"))[0])


def test_reads_that_stay_inside_for_some_sizes_only() -> None:
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n,), name="A")
    B = te.compute((m,), lambda i: A[i + 2], name="B")
    f = build(create_schedule(B.op), [A, B])
    a = np.arange(6, dtype="float32")
    b = np.zeros(4, "float32")
    f(a, b)
    np.testing.assert_array_equal(b, a[2:])
    with pytest.raises(ArgumentError) as e:
        f(a[:5].copy(), b)
    assert str(e.value) == (
        "main: index 0 of A in B runs from 2 to m + 1, the dimension has n elements with n = 5, "
        "m = 4"
    )


def test_a_task_needs_sizes_that_are_known() -> None:
    @template("test/symbolic_task")
    def symbolic(k: int) -> Any:
        s, A, B, C = product()
        return s, [A, B, C]

    with pytest.raises(TaskError, match=r"size variables n, k, m; give the template ints for them"):
        Task("test/symbolic_task", (1,), "llvm")
