"""Structures for GPUs: all stages bound, within the limits of the device, right in the interpreter.

The interpreter runs kernels block by block and thread by thread, and looks for races.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import lru_cache

import ml_dtypes  # noqa: F401  (NumPy learns bfloat16 from it)
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright as lw
from loopwright import ops, te
from loopwright.codegen.gpu import nvrtc
from loopwright.codegen.gpu.cuda import write_cuda
from loopwright.codegen.gpu.split import split_host_device
from loopwright.cost.analytical import AnalyticalModel
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Func
from loopwright.ir.verify import verify
from loopwright.lowering.gpu_limits import limits_of, verify_gpu_limits
from loopwright.space import Structure, ranked, structures
from loopwright.space.rules.knobs_gpu import Choices, Names
from loopwright.task.vectors import digits_of
from loopwright.te import Tensor, create_schedule
from loopwright.tuner.pruning import Pruning
from tests import opencl_runner
from tests.unit.space.expressions import CONTRACTIONS, OTHERS, Make, placeholder, product

NVRTC = importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings")
needs_nvrtc = pytest.mark.skipif(not NVRTC, reason=f"NVRTC is not here: {nvrtc.INSTALL}")
#: A device of few threads and little memory, whose defaults must fit as well.
NARROW = "opencl -max-threads-per-block=64 -max-shared-memory-per-block=4096"
#: Random points of each structure, beside its default.
_POINTS = 1


def turned() -> list[Tensor]:
    X = placeholder(3, 20, 33, name="X")
    return [X, te.compute((33, 3, 20), lambda c, a, b: X[a, b, c] + 1, name="T")]


def attention() -> list[Tensor]:
    Q, K, V = (
        placeholder(9, 8, name="Q"),
        placeholder(11, 8, name="K"),
        placeholder(11, 8, name="V"),
    )
    S = ops.matmul_compute(Q, K, trans_b=True, name="S")
    P = ops.softmax_compute(S)[0]
    return [Q, K, V, ops.matmul_compute(P, V, name="O")]


def whole() -> list[Tensor]:
    X, i, j = placeholder(9, 70, name="X"), te.reduce_axis((0, 9)), te.reduce_axis((0, 70))
    return [X, te.compute((), lambda: te.sum(X[i, j], axis=[i, j]), name="T")]


def scalar() -> list[Tensor]:
    X = placeholder(3, name="X")
    return [X, te.compute((), lambda: X[0] + X[1] * X[2], name="T")]


def long_sum() -> list[Tensor]:
    X, k = placeholder(1 << 15, name="X"), te.reduce_axis((0, 1 << 15), name="k")
    return [X, te.compute((1,), lambda i: te.sum(X[k], axis=k), name="T")]


def arg_max() -> list[Tensor]:
    X, k = placeholder(5, 40, name="X"), te.reduce_axis((0, 40), name="k")
    at, top = te.compute((5,), lambda i: te.argmax((k, X[i, k]), axis=k), name="found")
    return [X, te.compute((5,), lambda i: at[i] + top[i] * 100, name="Y")]


def doubling() -> list[Tensor]:
    """Every stage reads the one before twice: inlined, the last would read the first 2^40 times."""
    X = placeholder(50, name="X")
    t = X
    for n in range(40):
        t = te.compute((50,), lambda i, t=t: te.max(t[i], t[49 - i]) - 1, name=f"t{n}")
    return [X, t]


def gated() -> list[Tensor]:
    """Two products that one stage reads element by element, and a product of that."""
    X, G = placeholder(9, 16, name="X"), placeholder(16, 20, name="G")
    U, D = placeholder(16, 20, name="U"), placeholder(20, 16, name="D")
    g, u = ops.matmul_compute(X, G, name="g"), ops.matmul_compute(X, U, name="u")
    h = te.compute((9, 20), lambda i, j: te.max(g[i, j], 0) * u[i, j], name="h")
    return [X, G, U, D, ops.matmul_compute(h, D, name="O")]


def normalized() -> list[Tensor]:
    """Rows divided by a sum of everything."""
    X, i, j = placeholder(9, 17, name="X"), te.reduce_axis((0, 9)), te.reduce_axis((0, 17))
    S = te.compute((), lambda: te.sum(X[i, j], axis=[i, j]), name="S")
    return [X, te.compute((9, 17), lambda a, b: X[a, b] / (S() + 1000), name="Y")]


def pooled_convolution() -> list[Tensor]:
    X, W = placeholder(1, 4, 12, 12, name="X"), placeholder(8, 4, 3, 3, name="W")
    C = ops.conv2d_compute(X, W, (1, 1), (1, 1))
    R = te.compute(C.shape, lambda *i: te.max(C(*i), 0), name="R")
    a, b = te.reduce_axis((0, 2), name="a"), te.reduce_axis((0, 2), name="b")
    Y = te.compute(
        (1, 8, 6, 6),
        lambda n, c, y, x: te.max(R[n, c, 2 * y + a, 2 * x + b], axis=[a, b]),
        name="Y",
    )
    return [X, W, Y]


def two_of_a_name() -> list[Tensor]:
    X, Y = placeholder(8, 9, 10, name="X"), placeholder(9, 10, 12, name="Y")
    k, q = te.reduce_axis((0, 9), name="k"), te.reduce_axis((0, 10), name="k")
    return [
        X,
        Y,
        te.compute((8, 12), lambda i, j: te.sum(X[i, k, q] * Y[k, q, j], axis=[k, q]), name="C"),
    ]


#: Beside those of the tests for CPUs, with whether sums of integers are exact in any order.
DEVICES: dict[str, tuple[Make, bool]] = {
    "turned": (turned, True),
    "attention": (attention, False),
    "whole": (whole, True),
    "scalar": (scalar, True),
    "long sum": (long_sum, True),
    "argmax": (arg_max, True),
    "doubling": (doubling, True),
    "two loops of a name": (two_of_a_name, True),
    "gated": (gated, True),
    "normalized": (normalized, False),
    "pooled convolution": (pooled_convolution, True),
}
ALL = {
    **{name: (make, name != "tanh behind") for name, make in CONTRACTIONS.items()},
    **OTHERS,
    **DEVICES,
}


@lru_cache(maxsize=8)
def derived(name: str, target: str) -> tuple[list[Tensor], list[Structure]]:
    args = ALL[name][0]()
    with lw.Target(target):
        return args, structures(args[-1], args)


def lowered(structure: Structure, index: int) -> Func:
    """What a point becomes: verified, within the limits of its target, and all of it bound."""
    s, args = structure.instantiate(structure.config_space.get(index))
    with structure.target:
        f = lw.lower(s, args)
    verify(f)
    verify_gpu_limits(f, limits_of(structure.target.options), s)
    assert all(k.threads for k in split_host_device(f, structure.target.kind.name).kernels), (
        f"something runs unbound in {f}"
    )
    return f


def arrays_of(args: list[Tensor]) -> list[np.ndarray]:
    """Small integers, whose sums are exact in any order; the result is poisoned."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, t.static_shape).astype(t.dtype) for t in args]
    arrays[-1][...] = np.nan if arrays[-1].dtype.kind == "f" else 77
    return arrays


@lru_cache(maxsize=64)
def right(name: str) -> np.ndarray:
    args = ALL[name][0]()
    arrays = arrays_of(args)
    lw.build(create_schedule(args[-1].op), args, "llvm -num-threads=1")(*arrays)
    return arrays[-1]


def assert_right(name: str, answer: np.ndarray, structure: Structure, index: int) -> None:
    message = f"{structure}: {structure.config_space.get(index)}"
    loose = 0 if ALL[name][1] else 1e-5
    np.testing.assert_allclose(answer, right(name), rtol=loose, atol=loose, err_msg=message)


def check(name: str, target: str, points: int) -> None:
    args, found = derived(name, target)
    for number, structure in enumerate(found):
        space = structure.config_space
        assert space.is_valid(space.default_index)
        # Later structures differ from the first two in one choice or two.
        for index in {space.default_index, *space.sample_ints(points if number < 2 else 0, 1)}:
            arrays = arrays_of(args)
            interpret(lowered(structure, index), arrays, thread_order=1, races=True)
            assert_right(name, arrays[-1], structure, index)


@pytest.mark.parametrize("points", [0, pytest.param(_POINTS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ALL)
def test_defaults_and_random_points_are_right(name: str, points: int) -> None:
    check(name, "opencl", points)


@pytest.mark.parametrize("target", ["cuda", NARROW])
@pytest.mark.parametrize("name", ALL)
def test_points_are_within_the_limits_of_other_devices(name: str, target: str) -> None:
    _, found = derived(name, target)
    for structure in found:
        space = structure.config_space
        for index in {space.default_index, *space.sample_ints(_POINTS, 2)}:
            lowered(structure, index)


def test_each_of_two_results_has_a_kernel() -> None:
    """One is read by the other, and one comes of the other element by element."""
    A, B, C = product(13, 40, 21)()
    k = te.reduce_axis((0, 40), name="k")
    D = te.compute((13,), lambda i: te.max(C[i, k], axis=k), name="D")
    E = te.compute((13, 40), lambda i, j: C[i, j] + 1, name="E")
    args = [A, B, C, D, E]
    with lw.Target("opencl"):
        found = structures([C, D, E], args)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-4, 5, t.static_shape).astype(t.dtype) for t in (A, B)]
    wanted = inputs[0] @ inputs[1]
    for structure in found[:4]:
        space = structure.config_space
        for index in {space.default_index, *space.sample_ints(1, 0)}:
            arrays = [*inputs, *(np.full(t.static_shape, np.nan, t.dtype) for t in (C, D, E))]
            interpret(lowered(structure, index), arrays, thread_order=1, races=True)
            np.testing.assert_array_equal(arrays[2], wanted)
            np.testing.assert_array_equal(arrays[3], wanted.max(axis=1))
            np.testing.assert_array_equal(arrays[4], wanted + 1)


def test_outputs_of_one_operation_are_one_kernel() -> None:
    X, k = placeholder(5, 40, name="X"), te.reduce_axis((0, 40), name="k")
    at, top = te.compute((5,), lambda i: te.argmax((k, X[i, k]), axis=k), name="found")
    with lw.Target("opencl"):
        (structure,) = structures([at, top], [X, at, top])
    x = np.random.default_rng(0).permutation(200).reshape(5, 40).astype("float32")
    arrays = [x, np.zeros(5, at.dtype), np.zeros(5, "float32")]
    interpret(lowered(structure, 0), arrays, thread_order=1, races=True)
    np.testing.assert_array_equal(arrays[1], x.argmax(axis=1))
    np.testing.assert_array_equal(arrays[2], x.max(axis=1))


def test_every_kind_of_kernel_is_among_these_expressions() -> None:
    firsts = {derived(name, "opencl")[1][0].name.split(",")[0] for name in ALL}
    assert firsts == {
        "tiles in shared memory",
        "windows in registers",
        "rows of a block",
        "squares through shared memory",
        "threads along memory",
        "several kernels",
    }


def test_the_kernels_of_attention() -> None:
    """Products are tiled, the reductions of the softmax have kernels of their own."""
    _, found = derived("attention", "opencl")
    f = lowered(found[0], found[0].config_space.default_index)
    assert len(split_host_device(f, "opencl").kernels) == 4
    assert {"S_tile", "tile"} <= set(found[0].config_space.knobs)


def test_what_is_read_very_often_is_computed_once() -> None:
    _, (structure,) = derived("doubling", "opencl")
    f = lowered(structure, structure.config_space.default_index)
    assert 5 <= len(split_host_device(f, "opencl").kernels) <= 10
    assert len(str(f)) < 200_000


def test_long_reductions_are_shared_by_blocks() -> None:
    _, found = derived("long sum", "cuda")
    assert "parts" in found[0].name
    assert len({s.name for s in found}) == len(found) > 1


def test_loops_of_one_name_have_knobs_of_their_own() -> None:
    args = two_of_a_name()
    with lw.Target("opencl"):
        found = structures(args[-1], args)
    assert {"tile", "steps"} <= set(found[0].config_space.knobs)
    names = Names()
    assert [names.of(n) for n in ("k", "k", "q", "k")] == ["k", "k_1", "q", "k_2"]


def test_structures_differ_in_one_choice_first() -> None:
    def run(decided: tuple[int, ...]) -> Choices:
        choices = Choices(decided)
        for name in "abc":
            choices.take(name, [False, True])
        return choices

    assert run(()).others == [(True,), (False, True), (False, False, True)]
    assert run((False, True)).others == [(False, True, True)]
    assert run((True, False, True)).words == ["a", "c"]


@pytest.mark.parametrize("name", ["conv2d", "softmax", "turned", "product of three"])
def test_one_description_holds_for_all_points(name: str) -> None:
    """The analytical model derives a structure once, with symbols, and predicts for each point what
    it does for that point by itself."""
    _, found = derived(name, "opencl")
    for structure in found[:4]:
        space = structure.config_space
        digits = digits_of(space, space.sample_ints(4, 0))
        model, alone = AnalyticalModel(structure), AnalyticalModel(structure)
        together = model.predict(digits)
        assert model._population.derived == 1
        alone._population._fixed = frozenset(range(len(space.knobs)))
        np.testing.assert_array_equal(together, alone.predict(digits))


@pytest.mark.parametrize("target", ["opencl", "cuda"])
def test_ranked_points_can_be_launched(target: str) -> None:
    _, found = derived("product of transposed B", target)
    order = ranked(found, sample=64)
    assert [r.speed for r in order] == sorted((r.speed for r in order), reverse=True)
    for r in order:
        assert r.config.index is not None
        assert r.structure.config_space.is_valid(r.config.index)
        lowered(r.structure, r.config.index)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_legal_points_are_within_the_limits(data: st.DataObject) -> None:
    """Whatever the filters accept lowers, and the estimate of resources accepts it too."""
    name = data.draw(st.sampled_from(sorted(ALL)))
    target = data.draw(st.sampled_from(["opencl", "cuda -arch=sm_80", NARROW]))
    structure = data.draw(st.sampled_from(derived(name, target)[1]))
    space = structure.config_space
    (index,) = space.sample_ints(1, data.draw(st.integers(0, 1 << 16)))
    lowered(structure, index)
    assert Pruning(structure)([index]).all()


def test_points_that_take_too_much_are_pruned_and_counted() -> None:
    """The same points under the limits of a smaller device."""
    _, found = derived("product", "opencl")
    space = found[0].config_space
    pruning = Pruning(replace(found[0], target=lw.Target(NARROW)))
    points = space.sample_ints(64, 0)
    kept = pruning(points)
    assert not kept.all()
    assert pruning.pruned == 64 - kept.sum()
    assert "pruned" in pruning.note


@pytest.mark.skipif(bool(opencl_runner.why_not()), reason=opencl_runner.why_not())
@pytest.mark.parametrize("name", ["conv2d, stride 2", "softmax", "turned", "whole"])
def test_defaults_run_on_opencl(name: str) -> None:
    from loopwright.driver.backends import LoweredProgram
    from loopwright.driver.device_backends import compile_opencl

    args, (structure, *_) = derived(name, "opencl")
    index = structure.config_space.default_index
    code = compile_opencl(LoweredProgram(lowered(structure, index)), structure.target)
    answer = opencl_runner.run_opencl(code.objects, arrays_of(args))[-1]
    assert_right(name, answer, structure, index)


@needs_nvrtc
@pytest.mark.parametrize("name", ["large product", "large softmax", "large product of halves"])
def test_defaults_of_large_shapes_fit_the_registers(name: str) -> None:
    args = LARGE[name]()
    with lw.Target("cuda -arch=sm_80"):
        structure = structures(args[-1], args)[0]
    f = lowered(structure, structure.config_space.default_index)
    split = split_host_device(f, "cuda")
    have = nvrtc.resources(nvrtc.compile_cubin(write_cuda(split).text, "main", "sm_80").log)
    for kernel in split.kernels:
        taken = have[kernel.name]
        assert (taken.spill_bytes, taken.local_bytes) == (0, 0)
        assert taken.registers is not None
        assert taken.registers * kernel.thread_count <= 65536


# ------------------------------------------------------------------------------- tensor cores


def halves(m: int, n: int, k: int, trans_b: bool, dtype: str = "float16") -> list[Tensor]:
    A = placeholder(m, k, dtype=dtype)
    B = placeholder(*((n, k) if trans_b else (k, n)), name="B", dtype=dtype)
    q = te.reduce_axis((0, k), name="k")

    def element(i: te.IterVar, j: te.IterVar) -> te.PrimExpr:
        x, y = A[i, q], B[j, q] if trans_b else B[q, j]
        return te.sum(x.astype("float32") * y.astype("float32"), axis=q)

    return [A, B, te.compute((m, n), element, name="C")]


LARGE: dict[str, Make] = {
    "large product": product(1024, 1024, 1024),
    "large softmax": lambda: softmax_of(4096, 1000),
    "large product of halves": lambda: halves(1024, 1024, 1024, False),
}


def softmax_of(rows: int, columns: int) -> list[Tensor]:
    X = placeholder(rows, columns, name="X")
    return [X, ops.softmax_compute(X)[0]]


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_halves_go_to_tensor_cores(trans_b: bool, dtype: str) -> None:
    args = halves(33, 24, 32, trans_b, dtype)
    with lw.Target("cuda -arch=sm_80"):
        first, second, *_ = structures(args[-1], args)
    assert first.name == "fragments on tensor cores"
    assert second.name.startswith("tiles in shared memory")
    space = first.config_space
    inputs = arrays_of(args)[:-1]
    wanted = inputs[0].astype("float32") @ (inputs[1].T if trans_b else inputs[1]).astype("float32")
    for index in {space.default_index, *space.sample_ints(2, 0)}:
        arrays = arrays_of(args)
        f = lowered(first, index)
        assert "mma" in str(f)
        interpret(f, arrays, thread_order=1, races=True)
        np.testing.assert_array_equal(arrays[-1], wanted)


def names_of(args: list[Tensor], target: str) -> list[str]:
    with lw.Target(target):
        return [s.name for s in structures(args[-1], args)]


def test_what_tensor_cores_cannot_do_is_tiled() -> None:
    tensor_cores = "fragments on tensor cores"
    assert tensor_cores in names_of(halves(32, 32, 32, False), "cuda -arch=sm_80")
    assert tensor_cores not in names_of(halves(32, 32, 32, False), "cuda -arch=sm_75")
    assert tensor_cores not in names_of(halves(32, 32, 32, False), "opencl")
    assert tensor_cores not in names_of(halves(32, 32, 24, False), "cuda -arch=sm_80")
    assert tensor_cores not in names_of(product(32, 32, 32)(), "cuda -arch=sm_80")
    A, B, C = halves(32, 32, 32, False)
    D = te.compute((32, 32), lambda i, j: C[i, j] + 1, name="D")
    assert tensor_cores not in names_of([A, B, D], "cuda -arch=sm_80")


def test_rounded_floats_go_to_tensor_cores() -> None:
    A, B, q = placeholder(32, 16), placeholder(16, 32, name="B"), te.reduce_axis((0, 16), name="k")
    r = te.intrinsics.round_tf32
    C = te.compute((32, 32), lambda i, j: te.sum(r(A[i, q]) * r(B[q, j]), axis=q), name="C")
    assert names_of([A, B, C], "cuda -arch=sm_80")[0] == "fragments on tensor cores"
