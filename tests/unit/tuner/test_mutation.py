from __future__ import annotations

import math

import numpy as np
import pytest

from loopwright.task import ConfigSpace
from loopwright.testing.tuner_contract import FakeSpace
from loopwright.tuner.breeding import Mutation


def space_of(define):
    space = ConfigSpace()
    define(space)
    space.freeze()
    return space


def knob_of(define):
    (knob,) = space_of(define).knobs.values()
    return knob


def full(size, length):
    return [length // math.prod(size[1:]), *size[1:]]


@pytest.mark.parametrize(("length", "outputs"), [(64, 3), (60, 3), (13, 2), (1, 2), (24, 4)])
def test_a_split_moves_one_prime_factor_between_loops(length, outputs):
    knob = knob_of(lambda cfg: cfg.define_split("t", length, num_outputs=outputs))
    sizes = [full(knob.value(p), length) for p in range(len(knob))]
    found = knob.neighbours()
    for position, size in enumerate(sizes):
        expected = set()
        for other, there in enumerate(sizes):
            ratios = sorted(b / a for a, b in zip(size, there, strict=True) if a != b)
            if len(ratios) == 2 and math.isclose(ratios[0] * ratios[1], 1):
                factor = round(ratios[1])
                whole = math.isclose(factor, ratios[1])
                if whole and all(factor % d for d in range(2, factor)):
                    expected.add(other)
        assert expected <= set(found[position])
        assert position not in found[position]
        if len(expected) >= 4:
            assert expected == set(found[position])


def test_a_split_with_gaps_has_the_nearest_as_neighbours():
    sizes = [[-1, 1], [-1, 6], [-1, 8], [-1, 100], [-1, 128], [-1, 3]]
    knob = knob_of(lambda cfg: cfg.define_split("t", 1024, policy="candidate", candidate=sizes))
    assert knob.neighbours()[1] == [0, 2, 3, 5]


def test_a_reorder_swaps_two_axes():
    knob = knob_of(lambda cfg: cfg.define_reorder("o", [4, 4, 4], policy="all"))
    for position, found in enumerate(knob.neighbours()):
        here = knob.value(position)
        assert len(found) == 3
        for other in found:
            assert sum(a != b for a, b in zip(here, knob.value(other), strict=True)) == 2


def test_an_annotation_changes_one_axis():
    knob = knob_of(lambda cfg: cfg.define_annotate("a", [4, 4, 4], policy="try_unroll_vec"))
    for position, found in enumerate(knob.neighbours()):
        here = knob.value(position)
        near = [
            p
            for p in range(len(knob))
            if sum(a != b for a, b in zip(here, knob.value(p), strict=True)) == 1
        ]
        assert found == near


def test_numbers_go_to_the_next_and_names_anywhere():
    knob = knob_of(lambda cfg: cfg.define_knob("n", [8, 2, 16, 4]))
    assert knob.neighbours() == [[2, 3], [3], [0], [0, 1]]
    assert knob_of(lambda cfg: cfg.define_knob("n", ["x", "y"])).neighbours() == [[], []]
    assert knob_of(lambda cfg: cfg.define_knob("n", [True, False])).neighbours() == [[], []]


def mixed():
    def define(cfg):
        cfg.define_split("tile", 256, num_outputs=3)
        cfg.define_knob("one", [7])
        cfg.define_knob("unroll", [1, 2, 4, 8])
        cfg.define_knob("order", ["ij", "ji"])

    return space_of(define)


def test_every_mutant_differs_and_stays_in_the_space():
    space, rng = mixed(), np.random.default_rng(0)
    dims = np.array(space.dims)
    digits = rng.integers(0, dims, size=(2000, 4))
    before = digits.copy()
    mutants = Mutation(space).mutate(digits, rng)
    assert np.array_equal(digits, before)
    assert ((mutants != digits).any(axis=1)).all()
    assert ((mutants >= 0) & (mutants < dims)).all()
    assert (mutants[:, 1] == 0).all()
    changed = (mutants != digits).sum(axis=1)
    assert 1 <= changed.mean() < 1.5


def test_most_mutants_are_neighbours():
    space, rng = mixed(), np.random.default_rng(1)
    near = space.knobs["tile"].neighbours()
    digits = rng.integers(0, space.dims, size=(2000, 4))
    mutants = Mutation(space, anew=0.25).mutate(digits, rng)
    moved = np.flatnonzero(mutants[:, 0] != digits[:, 0])
    share = np.mean([mutants[r, 0] in near[digits[r, 0]] for r in moved])
    assert 0.7 < share < 0.95


@pytest.mark.parametrize("extents", [(), (1,), (1, 1)])
def test_a_space_of_one_point_stays_as_it_is(extents):
    digits = np.zeros((3, len(extents)), np.int64)
    mutants = Mutation(FakeSpace(extents)).mutate(digits, np.random.default_rng(0))
    assert np.array_equal(mutants, digits)


def test_no_rows():
    digits = np.empty((0, 2), np.int64)
    assert Mutation(FakeSpace((3, 3))).mutate(digits, np.random.default_rng(0)).shape == (0, 2)
