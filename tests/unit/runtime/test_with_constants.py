"""Modules that take their constants once: `Module.with_constants`, `parts` and `timed_call`."""

from __future__ import annotations

import shutil
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import ArgumentError, UsageError
from loopwright.runtime import Artifact, Function, Module, Parts, PreparedCall, load_module
from loopwright.runtime.artifacts.manifest import Manifest
from loopwright.runtime.kernels.constants import InPlace

M, N, K = 6, 16, 8
TARGETS = ["llvm -num-threads=1", "llvm -num-threads=2", "c", "interp"]
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@cache
def packed_product(target: str = "llvm", name: str = "product") -> Module:
    """``C = A @ W + bias``: W is packed at the root, the bias is read by the rest."""
    a = te.placeholder((M, K), name="A")
    w = te.placeholder((K, N), name="W", constant=True)
    bias = te.placeholder((N,), name="bias", constant=True)
    k = te.reduce_axis(K, name="k")
    p = te.compute((M, N), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="P")
    c = te.compute((M, N), lambda i, j: p[i, j] + bias[j], name="C")
    s = lw.create_schedule(c.op)
    s[w].transform_layout(lambda i, j: (j // 4, i, j % 4))
    s[c].parallel(c.op.axis[0])
    s[p].compute_at(s[c], c.op.axis[0])
    return lw.build(s, [a, w, bias, c], target, name=name)


class Data:
    """Inputs, the right answer, and room for one."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.a, self.w = rng.random((M, K), "float32"), rng.random((K, N), "float32")
        self.bias = rng.random(N, "float32")
        self.c = np.full((M, N), np.nan, "float32")
        self.want = self.a @ self.w + self.bias

    def check(self) -> None:
        np.testing.assert_allclose(self.c, self.want, rtol=1e-5)
        self.c[:] = np.nan


@pytest.mark.parametrize("target", TARGETS)
def test_the_whole_and_the_function_with_constants_agree_with_numpy(target: str) -> None:
    d, f = Data(), packed_product(target)
    f(d.a, d.w, d.bias, d.c)
    d.check()
    g = f.with_constants(d.w, d.bias)
    g(d.a, d.c)
    d.check()
    g.bind(d.a, d.c).run()
    d.check()
    other = Data(1)
    f(other.a, other.w, other.bias, other.c)  # right for any values
    other.check()


def test_values_are_taken_over() -> None:
    d, f = Data(), packed_product()
    w, bias = d.w.copy(), d.bias.copy()
    g = f.with_constants(w, bias)
    w[:], bias[:] = 0, 0
    g(d.a, d.c)
    d.check()


def test_a_constant_in_place_counts_as_it_is_but_for_what_was_computed() -> None:
    d, f = Data(), packed_product()
    g = f.with_constants(InPlace(d.w), InPlace(d.bias))
    g.exchange(np.copy)
    d.bias += 1
    d.want += 1
    g(d.a, d.c)
    d.check()
    d.w *= 2
    g(d.a, d.c)
    d.check()


def test_constants_by_name_and_from_other_layouts_of_memory() -> None:
    d, f = Data(), packed_product()
    for g in (
        f.with_constants(bias=d.bias, W=d.w),
        f.with_constants(d.w, bias=d.bias),
        f.with_constants(np.asfortranarray(d.w), lw.nd.array(d.bias)),
    ):
        g(d.a, d.c)
        d.check()


def test_it_tells_what_it_holds_and_what_it_takes() -> None:
    d = Data()
    g = packed_product().with_constants(d.w, d.bias)
    # The packed copy and the bias; W itself is not kept.
    assert g.nbytes == d.w.nbytes + d.bias.nbytes
    assert g.constants == ("W", "bias")
    assert [arg.name for arg in g.args] == ["A", "C"]
    assert g.prepare_seconds > 0
    assert g.name == "product"
    assert "W, bias given" in repr(g)


def test_threads_may_share_it() -> None:
    data = [Data(seed) for seed in range(4)]
    for d in data:
        d.w, d.bias = data[0].w, data[0].bias
        d.want = d.a @ d.w + d.bias
    g = packed_product("llvm -num-threads=2").with_constants(data[0].w, data[0].bias)
    failed: list[BaseException] = []

    def work(d: Data) -> None:
        try:
            for _ in range(100):
                g(d.a, d.c)
                d.check()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(d,)) for d in data]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


@pytest.mark.parametrize("target", TARGETS[1:])
def test_files_keep_both_functions(target: str, tmp_path: Path) -> None:
    if target == "c" and shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    d, f = Data(), packed_product(target)
    again = load_module(f.save(tmp_path / f"product.{f.format}"))
    assert again.functions == ("product", "product_prepare", "product_prepared")
    again.with_constants(d.w, d.bias)(d.a, d.c)
    d.check()
    again(d.a, d.w, d.bias, d.c)
    d.check()


@needs_cc
@pytest.mark.parametrize(  # archives hold the same objects, see test_module_files.py
    "ending", ["so", pytest.param("a", marks=pytest.mark.slow)]
)
def test_libraries_keep_both_functions(ending: str, tmp_path: Path) -> None:
    d, f = Data(), packed_product()
    again = load_module(f.export_library(tmp_path / f"product.{ending}"))
    again.with_constants(d.w, d.bias)(d.a, d.c)
    d.check()
    again(d.a, d.w, d.bias, d.c)
    d.check()


def test_mistakes_are_named() -> None:
    d, f = Data(), packed_product()
    plain = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: plain[i] + 1, name="B")
    without = lw.build(lw.create_schedule(b.op), [plain, b])
    cases: list[tuple[Any, str]] = [
        (lambda: without.with_constants(d.w), "main has no constant arguments; declare them"),
        (lambda: f.with_constants(), "give W, bias as well"),
        (lambda: f.with_constants(d.w), "give bias as well"),
        (lambda: f.with_constants(d.w, d.bias, d.a), "W, bias, got 3 values"),
        (lambda: f.with_constants(d.w, d.bias, W=d.w), "got 'W' twice"),
        (lambda: f.with_constants(d.w, bios=d.bias), "'bios' is none .*did you mean 'bias'"),
        (lambda: f.with_constants(d.w[:2], d.bias), r"argument 1 \('W'\): expected W: float32"),
        (lambda: f.with_constants(d.w, d.bias.astype("float64")), "got float64"),
        (lambda: f.with_constants(d.w, None), r"argument 2 \('bias'\)"),
        (lambda: f.with_constants(d.w, d.bias)(d.a), "takes 2 arguments .*got 1"),
        (lambda: f.with_constants(d.w, d.bias)(d.a, d.w), "expected shape"),
    ]
    for call, text in cases:
        with pytest.raises(ArgumentError, match=text):
            call()


def test_two_constants_of_one_name_are_given_by_position() -> None:
    a = te.placeholder((4,), name="A")
    v, w = (te.placeholder((4,), name="W", constant=True) for _ in range(2))
    b = te.compute((4,), lambda i: a[i] + v[i] - w[i], name="B")
    f = lw.build(lw.create_schedule(b.op), [a, v, w, b])
    names = [arg.name for arg in f.artifact.contents.functions[0].args]
    one, two, got = np.full(4, 5, "float32"), np.full(4, 2, "float32"), np.empty(4, "float32")
    f.with_constants(one, two)(np.zeros(4, "float32"), got)
    np.testing.assert_array_equal(got, 3)
    f.with_constants(**{names[1]: one, names[2]: two})(np.zeros(4, "float32"), got)
    np.testing.assert_array_equal(got, 3)


def test_constants_of_a_program_without_such_stages_and_of_any_size() -> None:
    n = te.size_var("n")
    a, w = te.placeholder((n,), name="A"), te.placeholder((n,), name="W", constant=True)
    v = te.compute((n,), lambda i: w[i] * 2, name="V")
    b = te.compute((n,), lambda i: a[i] + v[i], name="B")
    f = lw.build(lw.create_schedule(b.op), [n, a, w, b])
    assert f.parts() is None
    w_now = np.ones(5, "float32")
    g = f.with_constants(w_now)
    w_now[:] = 7
    got = np.empty(5, "float32")
    g(5, np.zeros(5, "float32"), got)
    np.testing.assert_array_equal(got, 2)


@pytest.mark.parametrize("target", ["llvm -num-threads=1", "llvm -num-threads=2", "c", "interp"])
def test_constants_are_prepared_once_for_all_sizes(target: str) -> None:
    n = te.size_var("n")
    a, w = te.placeholder((n, 6), name="A"), te.placeholder((8, 6), name="W", constant=True)
    packed = te.compute((6, 8), lambda k, j: w[j, k], name="P")
    more = te.compute((n, 6), lambda i, k: a[i, k] + 1, name="T")
    r = te.reduce_axis((0, 6), name="r")
    b = te.compute((n, 8), lambda i, j: te.sum(more[i, r] * packed[r, j], axis=r), name="B")
    s = lw.create_schedule(b.op)
    if "2" in target:
        s[packed].parallel(s[packed].op.axis[0])
        s[b].parallel(s[b].op.axis[0])
    f = lw.build(s, [a, w, b], target)
    rng = np.random.default_rng(0)
    w_now = rng.standard_normal((8, 6), np.float32)
    g = f.with_constants(w_now)
    parts = f.parts()
    assert parts is not None
    for rows in (3, 1, 7):
        a_now = rng.standard_normal((rows, 6), np.float32)
        want = (a_now + 1) @ w_now.T
        for call in (
            lambda out, a_now=a_now: g(a_now, out),
            lambda out, a_now=a_now: g.bind(a_now, out).run(),
            lambda out, a_now=a_now: f(a_now, w_now, out),
            lambda out, a_now=a_now: parts.bind([a_now, w_now, out]).run(),
        ):
            got = np.full((rows, 8), np.nan, "float32")
            call(got)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match="dimension 1 of argument 0"):
        g(np.zeros((3, 5), "float32"), np.zeros((3, 8), "float32"))


def test_a_timed_call_runs_both_parts_and_times_the_second() -> None:
    d, f = Data(), packed_product()
    call = f.timed_call(d.a, d.w, d.bias, d.c)
    assert isinstance(call, PreparedCall)
    call.run()
    d.check()
    # The second part alone, on what the last run prepared.
    d.w[:] = 0
    assert lw.runtime.time_call(call, 3) > 0
    d.check()
    call.run()
    np.testing.assert_allclose(d.c, np.broadcast_to(d.bias, (M, N)), rtol=1e-6)


def test_what_is_kept_lies_in_the_workspace_that_is_given() -> None:
    d, f = Data(), packed_product("llvm -num-threads=1")
    parts = f.parts()
    assert isinstance(parts, Parts)
    whole = f["product"]
    assert isinstance(whole, Function)
    space = lw.runtime.arrays.host.aligned_bytes(whole.workspace_bytes)
    space.fill(0xFF)
    call = parts.bind([d.a, d.w, d.bias, d.c], space)
    call.run()
    d.check()
    packed = d.w.reshape(K, N // 4, 4).transpose(1, 0, 2)
    np.testing.assert_array_equal(space[: d.w.nbytes].view("float32"), packed.ravel())


def test_the_evaluator_times_calls_with_constants() -> None:
    d = Data()
    g = packed_product().with_constants(d.w, d.bias)
    result = g.time_evaluator(number=5, repeat=3)(d.a, d.c)
    assert len(result.results) == 3
    d.check()


# ---------------------------------------------------------------- manifests


def edited(**changes: Any) -> dict[str, Any]:
    """A manifest whose parts say something else."""
    manifest = packed_product().metadata
    manifest["functions"][0]["parts"] |= changes
    return manifest


def test_the_parts_survive_json() -> None:
    contents = packed_product().artifact.contents
    again = Manifest.from_json(contents.to_json(), "it", [contents.kind])
    assert again.functions[0].parts == contents.functions[0].parts
    assert [arg.constant for arg in again.functions[0].args] == [False, True, True, False]


@pytest.mark.parametrize(
    "changes",
    [
        {"prepare": "nothing"},
        {"prepare": "product"},
        {"main": "product_prepare"},
        {"prepare_args": [0]},
        {"prepare_args": [1, 1]},
        {"prepare_args": [9]},
        {"prepare_args": ["1"]},
        {"main_args": [0, 3]},
        {"main_args": [2, 0, 3]},
        {"main_args": [0, 2]},
        {"prepare": 3},
    ],
)
def test_parts_that_no_builder_writes_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="build the program again"):
        Artifact(edited(**changes), b"")


def test_what_is_kept_must_have_one_shape() -> None:
    manifest = packed_product().metadata
    manifest["functions"][1]["args"][-1]["shape"] = [4, 8, 5]
    with pytest.raises(UsageError, match="outputs that are inputs of the other part"):
        Artifact(manifest, b"")
