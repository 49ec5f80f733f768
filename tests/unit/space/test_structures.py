"""Every structure of an expression computes what the unscheduled one does."""

from __future__ import annotations

import re
import sys
from math import prod
from types import FrameType

import numpy as np
import pytest

import loopwright as lw
from loopwright.errors import TargetError, TensorError
from loopwright.space import Structure, structures
from loopwright.space.rules.several_cpu import several
from loopwright.te import Tensor, create_schedule, placeholder
from tests.covering import examples
from tests.unit.space.composed import (
    COMPOSED,
    counted_values,
    largest_place_of_tuples,
)
from tests.unit.space.expressions import CONTRACTIONS, OTHERS, Make, product

TARGET = "llvm -num-threads=1"
#: Structures of each expression that are run, beside the first at its default.
_RUN = examples(1, 3)
ALL = {**{name: (make, True) for name, make in CONTRACTIONS.items()}, **OTHERS, **COMPOSED}


def derived(args: list[Tensor], target: str = TARGET) -> list[Structure]:
    with lw.Target(target):
        return structures(args[-1], args)


def run(schedule: lw.schedule.Schedule, args: list[Tensor], inputs: list[np.ndarray]) -> np.ndarray:
    # Bytes that no kernel writes: what it leaves out is seen.
    out = np.frombuffer(b"\x7f" * 8 * prod(args[-1].static_shape), args[-1].dtype)
    out = out[: prod(args[-1].static_shape)].reshape(args[-1].static_shape).copy()
    lw.build(schedule, args, TARGET)(*inputs, out)
    return out


def small_integers(tensors: list[Tensor]) -> list[np.ndarray]:
    """Inputs whose sums are exact in any order."""
    rng = np.random.default_rng(0)
    found = [rng.integers(-4, 5, t.static_shape) for t in tensors]
    return [
        (np.abs(x) if t.dtype.startswith("u") else x).astype(t.dtype)
        for x, t in zip(found, tensors, strict=True)
    ]


class Checked:
    """An expression with the answer of its naive schedule."""

    def __init__(self, make: Make, exact: bool) -> None:
        args = make()
        self.inputs = small_integers(args[:-1])
        self.right = run(create_schedule(args[-1].op), args, self.inputs)
        self.tolerance = (0.0, 0.0) if exact else (1e-5, 1e-6)
        self.structures = derived(args)
        assert len({s.name for s in self.structures}) == len(self.structures)
        assert all(s.name != "naive" for s in self.structures)

    def point(self, structure: Structure, index: int) -> None:
        config = structure.config_space.get(index)
        answer = run(*structure.instantiate(config), self.inputs)
        rtol, atol = self.tolerance
        message = f"{structure}: {config}"
        np.testing.assert_allclose(answer, self.right, rtol=rtol, atol=atol, err_msg=message)


#: One expression of each kind of rule; by night all of them, at more points of every structure.
FAST = (
    "product", "long_product_with_bias", "grouped", "softmax", "depthwise", "transposed",
    "blurred_twice", "total", "product of three", "running maxima",
)  # fmt: skip
#: Structures that are run whatever is drawn: no other test by day runs one of their kind.
ALWAYS = {
    "softmax": "rows in cache, E computed again",
    "blurred_twice": "B, C in tiles, A computed again",
    "long_product_with_bias": "i x j, B packed at panel, vectors outside, k in blocks",
}


@pytest.mark.parametrize("name", FAST)
def test_structures_compute_what_the_naive_schedule_does(name: str) -> None:
    checked = Checked(*ALL[name])
    found = checked.structures
    rng = np.random.default_rng(len(name))
    default = [(found[0], found[0].config_space.default_index)]
    drawn = [found[n] for n in rng.permutation(len(found))[:_RUN]]
    if name in ALWAYS:
        drawn.append(next(s for s in found if s.name == ALWAYS[name]))
    for structure, index in default + [(s, *s.config_space.sample_ints(1, 1)) for s in drawn]:
        checked.point(structure, index)


@pytest.mark.parametrize("name", ["min-plus", "conv2d NHWC", "softmax_of_columns", "winograd"])
def test_structures_lower_at_their_default_and_elsewhere(name: str) -> None:
    for structure in derived(ALL[name][0]()):
        space = structure.config_space
        for index in {space.default_index, *space.sample_ints(1, 2)}:
            lw.lower(*structure.instantiate(space.get(index)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_random_points_of_all_structures(name: str) -> None:
    checked = Checked(*ALL[name])
    for structure in checked.structures:
        space = structure.config_space
        for index in {space.default_index, *space.sample_ints(8, 3)}:
            checked.point(structure, index)


@pytest.mark.parametrize(
    "name",
    [
        "min-plus",
        # Further products.
        pytest.param("product of transposed B", marks=pytest.mark.slow),
        pytest.param("product", marks=pytest.mark.slow),
        pytest.param("batched", marks=pytest.mark.slow),
    ],
)
def test_little_work_may_be_left_to_one_thread(name: str) -> None:
    checked = Checked(CONTRACTIONS[name], True)
    alone = [s for s in checked.structures if s.name.endswith("one thread")]
    assert alone[0] in checked.structures[:2]
    for structure in alone:
        space = structure.config_space
        assert "parallel" not in str(lw.lower(*structure.instantiate(space.get(0))))
        checked.point(structure, space.default_index)


def test_much_work_is_never_left_to_one_thread() -> None:
    names = [s.name for s in derived(product(256, 256, 256)())]
    assert names
    assert not any("one thread" in name for name in names)


def test_what_tiles_leave_over_has_a_microkernel_of_its_own() -> None:
    """Rows of 91 in tiles of 8, vectors of 72 in tiles of 48: four kernels without tests."""
    args = product(91, 72, 30)()
    with lw.Target("llvm -mcpu=x86-64-v4"):
        found = structures(args[-1], args)
    structure = next(s for s in found if s.name == "i x j, B packed at panel, vectors outside")
    space = structure.config_space
    start = space.get(space.default_index).values
    index = space.find({**start, "tile": [8, 48], "row_block": 1, "vector_block": 1, "unroll": 1})
    assert index is not None
    text = str(lw.lower(*structure.instantiate(space.get(index))))
    product_of_rows = re.findall(
        r"unrolled\((\d+)\):\n +for \S+ in vectorized\((\d+)\):\n +([^=]+) = \3 \+ A\[", text
    )
    assert sorted({(int(r), int(w)) for r, w, _ in product_of_rows}) == [
        (3, 32), (3, 48), (8, 32), (8, 48)
    ]  # fmt: skip
    assert "else 0.0" not in text[text.index("C.local = alloc") :]


def test_a_reduction_of_any_length_is_cut_into_blocks() -> None:
    """1103 is a prime: the last of three blocks is shorter, and no step of them is tested."""
    found = derived(product(294, 131, 1103)())
    blocked = [s for s in found if "k in blocks" in s.name]
    assert blocked
    for structure in blocked:
        space = structure.config_space
        values = space.get(space.default_index).values
        index = space.find({**values, "steps": 368, "unroll": 1})
        assert index is not None
        text = str(lw.lower(*structure.instantiate(space.get(index))))
        assert "in range(368)" in text
        assert "in range(367)" in text
        assert not re.search(r"if k\S* \* 368 \+ k\S* < 1103", text)


def _row_with_bias() -> list[Tensor]:
    A, B, b = placeholder((1, 601)), placeholder((601, 523)), placeholder((523,), name="b")
    C = lw.ops.matmul_compute(A, B)
    return [A, B, b, lw.te.compute((1, 523), lambda i, j: C[i, j] + b[j], name="D")]


@pytest.mark.parametrize("make", [product(1, 523, 601), _row_with_bias])
def test_a_row_of_sums_over_a_large_matrix_is_made_in_parts(make: Make) -> None:
    checked = Checked(make, True)
    (structure,) = [s for s in checked.structures if s.name == "a row in parts"]
    space = structure.config_space
    for index in {space.default_index, *space.sample_ints(3, 1)}:
        checked.point(structure, index)
    assert all(s.name != "a row in parts" for s in derived(product(1, 100, 90)()))
    assert all(s.name != "a row in parts" for s in derived(product(2, 523, 601)()))


def test_windows_are_written_out_only_where_a_long_reduction_is_left() -> None:
    """Compilers hold a local copy in registers, which are too few, where nothing else is left."""

    def knobs(channels: int) -> list[set[str]]:
        X, W = placeholder((1, channels, 18, 18), name="X"), placeholder((32, channels, 7, 7))
        Y = lw.ops.conv2d_compute(X, W)
        found = [s for s in derived([X, W, Y]) if " x " in s.name]
        assert found
        return [set(s.config_space.knobs) for s in found]

    assert all("taps" not in own for own in knobs(3))
    assert all("taps" in own for own in knobs(16))


def test_what_no_rule_knows_runs_in_parallel_and_says_so() -> None:
    (structure,) = derived(largest_place_of_tuples())
    assert "no rule knows this kernel" in structure.why[0]


def test_an_expression_of_several_kernels_has_structures_that_differ_in_one() -> None:
    found = [s.name.split("; ") for s in derived(OTHERS["product of three"][0]())]
    assert len(found) > 10
    assert all(sum(a != b for a, b in zip(found[0], x, strict=True)) == 1 for x in found[1:])


def chain(stages: int) -> list[Tensor]:
    X = placeholder((64, 64), name="X")
    t = X
    for n in range(stages):
        t = _next(t, n)
    return [X, t]


def calls_of_derivation(args: list[Tensor]) -> tuple[int, int]:
    """How many functions of Python are called while structures are derived, and how deep."""
    calls = depth = deepest = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls, depth, deepest
        calls += event == "call"
        depth += (event == "call") - (event == "return")
        deepest = max(deepest, depth)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        derived(args)
    finally:
        sys.setprofile(before)
    return calls, deepest


def test_twice_as_long_a_chain_has_structures_in_less_than_three_times_the_work() -> None:
    """No deeper in calls either: recursion along a chain would end at Python's limit."""
    derived(chain(5))  # imports are no part of the work
    calls, depth = calls_of_derivation(chain(40))
    more_calls, more_depth = calls_of_derivation(chain(80))
    assert more_calls < 3 * calls
    assert more_depth <= depth


@pytest.mark.parametrize("stages", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_a_long_chain_computes_what_its_stages_do(stages: int) -> None:
    (structure,) = derived(chain(stages))
    out = np.empty((64, 64), "float32")
    lw.build(*structure.instantiate(structure.config_space.get(0)), TARGET)(
        np.zeros((64, 64), "float32"), out
    )
    np.testing.assert_array_equal(out, stages)


def _next(t: Tensor, n: int) -> Tensor:
    tensor: Tensor = lw.te.compute(t.shape, lambda i, j: t[i, j] + 1, name=f"t{n}")
    return tensor


def test_what_doubles_with_every_stage_is_kept() -> None:
    """Each stage reads the one before twice: all in one expression would have 2**60 nodes."""
    X = placeholder((8, 8), name="X")
    t = X
    for n in range(60):
        t = _product_with_itself(t, n)
    (structure, *_) = derived([X, t])
    out = np.empty((8, 8), "float32")
    s, args = structure.instantiate(
        structure.config_space.get(structure.config_space.default_index)
    )
    lw.build(s, args, TARGET)(np.ones((8, 8), "float32"), out)
    np.testing.assert_array_equal(out, 1)


def _product_with_itself(t: Tensor, n: int) -> Tensor:
    tensor: Tensor = lw.te.compute(t.shape, lambda i, j: t[i, j] * t[j, i], name=f"t{n}")
    return tensor


def test_rows_on_the_way_are_kept_or_computed_again() -> None:
    names = [s.name for s in derived(OTHERS["softmax"][0]())]
    assert names[:2] == ["rows in cache", "rows in cache, E computed again"]


def test_rows_are_scaled_by_numbers_without_dimensions() -> None:
    def scaled_row() -> list[Tensor]:
        A, B = placeholder((1, 40), "uint8", name="A"), placeholder((33, 40), "int8", name="B")
        k = lw.te.reduce_axis((0, 40), name="k")

        def element(i: lw.te.IterVar, j: lw.te.IterVar) -> lw.te.PrimExpr:
            return lw.te.sum(A[i, k].astype("int32") * B[j, k].astype("int32"), axis=k)

        C = lw.te.compute((1, 33), element, name="C")
        half = lw.te.compute((), lambda: lw.te.const(0.5, "float32"), name="half")
        D = lw.te.compute((1, 33), lambda i, j: C[i, j].astype("float32") * half(), name="D")
        return [A, B, D]

    checked = Checked(scaled_row, exact=True)
    names = {s.name for s in checked.structures}
    assert names == {"rows in cache", "dot products", "dot products, one thread"}
    for structure in checked.structures[: examples(1, 3)]:
        checked.point(structure, structure.config_space.default_index)


def test_vectors_run_across_where_every_operand_stands_still() -> None:
    checked = Checked(counted_values, exact=True)
    (across,) = [s for s in checked.structures if s.name == "vectors across"]
    for index in across.config_space.sample_ints(4, 1):
        checked.point(across, index)


def test_targets_and_sizes_that_are_not_known_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    args = OTHERS["flat"][0]()
    with monkeypatch.context() as patched:
        patched.setattr("loopwright.space.registry.RULES", {})
        with pytest.raises(TargetError, match="no rule knows structures for the target llvm"):
            derived(args)
    with pytest.raises(TensorError, match="nothing is computed"):
        derived([placeholder((4,), name="A")])
    n = lw.te.size_var("n")
    A = placeholder((n,), name="A")
    with pytest.raises(TensorError, match="has variables"):
        derived([A, lw.te.compute((n,), lambda i: A[i] + 1, name="B")])


def test_several_results_each_lie_in_memory() -> None:
    X, Y = OTHERS["softmax"][0]()
    E = next(t for t in Y.op.input_tensors if t.name == "E")
    with lw.Target(TARGET):
        found = several([Y, E], [X, Y, E])
    x = small_integers([X])[0]
    for structure in found:
        default = structure.config_space.get(structure.config_space.default_index)
        y, e = (np.full(x.shape, np.nan, "float32") for _ in range(2))
        lw.build(*structure.instantiate(default), TARGET)(x, y, e)
        exponentials = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(e, exponentials, rtol=1e-5)
        np.testing.assert_allclose(y, exponentials / exponentials.sum(1, keepdims=True), rtol=1e-5)


def test_a_cheap_stage_of_several_kernels_has_one_place() -> None:
    """A product and a stencil both would keep what they read, each where it runs."""
    X, W = placeholder((32, 32), name="X"), placeholder((32, 32), name="W")
    S = lw.te.compute((32, 32), lambda i, j: X[i, j] + 9, name="S")
    k = lw.te.reduce_axis((0, 32), name="k")
    C = lw.te.compute((32, 32), lambda i, j: lw.te.sum(S[i, k] * W[k, j], axis=k), name="C")
    D = lw.te.compute((30, 32), lambda i, j: S[i, j] + S[i + 1, j] + S[i + 2, j], name="D")
    args = [X, W, C, D]
    inputs = small_integers([X, W])
    s = inputs[0] + 9
    right = (s @ inputs[1], s[:-2] + s[1:-1] + s[2:])
    with lw.Target(TARGET):
        found = structures([C, D], args)
    assert len(found) > 1
    for structure in found:
        outs = [np.empty(t.static_shape, "float32") for t in (C, D)]
        space = structure.config_space
        lw.build(*structure.instantiate(space.get(space.default_index)), TARGET)(*inputs, *outs)
        for answer, wanted in zip(outs, right, strict=True):
            np.testing.assert_array_equal(answer, wanted, err_msg=str(structure))
