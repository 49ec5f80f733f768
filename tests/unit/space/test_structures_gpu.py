"""Structures for GPUs: all stages bound, within the limits of the device, right in the interpreter.

The interpreter runs kernels block by block and thread by thread, and looks for races.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product as product_of

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright as lw
from loopwright import te
from loopwright.codegen.gpu.split import split_host_device
from loopwright.cost.analytical import AnalyticalModel
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Func
from loopwright.space import ranked, structures
from loopwright.space.rules.common_gpu import Choices, unique_name
from loopwright.task.sampling import digits_of
from loopwright.tuner.candidate_checks import Pruning
from tests import opencl_runner
from tests.covering import examples
from tests.unit.space.expressions import placeholder, product
from tests.unit.space.on_devices import (
    ALL,
    arrays_of,
    assert_right,
    derived,
    lowered,
    two_of_a_name,
)

#: A device of few threads and little memory, whose defaults must fit as well.
NARROW = "opencl -max-threads-per-block=64 -max-shared-memory-per-block=4096"
#: Random points of each structure, beside its default.
_POINTS = 1


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


#: One expression of each kind of kernel, run at its default for every change.
_KINDS = ("product", "depthwise", "softmax", "turned", "flat", "normalized")


@pytest.mark.parametrize(
    ("name", "points"),
    [(x, 0) for x in _KINDS] + [pytest.param(x, _POINTS, marks=pytest.mark.slow) for x in ALL],
)
def test_defaults_and_random_points_are_right(name: str, points: int) -> None:
    check(name, "opencl", points)


#: One of each kind of kernel for every change, as above, and several products, each for one device.
_ON = {
    ("conv2d", NARROW), ("depthwise", "cuda"), ("softmax", NARROW), ("turned", "cuda"),
    ("flat", NARROW), ("normalized", "cuda"), ("product of three", "cuda"),
}  # fmt: skip
assert {name for name, _ in _ON} <= ALL.keys()


@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param(*x, marks=() if x in _ON else pytest.mark.slow)
        for x in product_of(ALL, ["cuda", NARROW])
    ],
)
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
    for structure in found[: examples(2, 4)]:
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


def test_a_product_that_starts_from_something_is_tiled() -> None:
    for name in ("started", "started from an operand"):
        assert derived(name, "opencl")[1][0].name.startswith("tiles in shared memory")


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
    taken: set[str] = set()
    assert [unique_name(n, taken) for n in ("k", "k", "q", "k")] == ["k", "k_1", "q", "k_2"]


def _unnamed(f: Func) -> str:
    """The text of a function with numbers for names: a size of 1 that is a symbol leaves a part in
    the names of loops."""
    numbers: dict[str, int] = {}
    return re.sub(
        r"[A-Za-z_][\w.]*", lambda m: f"v{numbers.setdefault(m[0], len(numbers))}", str(f)
    )


@pytest.mark.parametrize(
    ("name", "params"),
    [("matmul", (96, 100, 40)), ("conv2d", (1, 8, 14, 14, 32, 3, 3, 1, 1))],
)
def test_structures_have_every_point_of_the_template(name: str, params: tuple[int, ...]) -> None:
    template = lw.create_task(name, params, "opencl")
    _, args = template.instantiate(template.config_space.default_index)
    with lw.Target("opencl"):
        found = {s.name: s for s in structures(args[-1], args)}
    space = template.config_space
    for index in {space.default_index, *space.sample_ints(6, 0)}:
        config = space.get(index)
        words = [word for word in ("turn", "double") if config.values[word]]
        structure = found[", ".join(["tiles in shared memory", *words])]
        sizes = {n: v[1:] if isinstance(v, list) else int(v) for n, v in config.values.items()}
        chosen = {n: v for n, v in sizes.items() if n in structure.config_space.knobs}
        same = structure.config_space.find(structure.config_space.entity_of(chosen))
        assert same is not None
        assert structure.config_space.is_valid(same)
        s, own_args = structure.instantiate(structure.config_space.get(same))
        with lw.Target("opencl"):
            own, theirs = lw.lower(s, own_args), lw.lower(*template.instantiate(config))
        assert _unnamed(own) == _unnamed(theirs)


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


@settings(deadline=None, max_examples=examples(12))
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
    from loopwright.codegen.backends import LoweredProgram, compile_opencl

    args, (structure, *_) = derived(name, "opencl")
    index = structure.config_space.default_index
    code = compile_opencl(LoweredProgram(lowered(structure, index)), structure.target)
    answer = opencl_runner.run_opencl(code.objects, arrays_of(args))[-1]
    assert_right(name, answer, structure, index)
