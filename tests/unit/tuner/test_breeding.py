"""Rules for mutation, crossing and first populations: registered, named, weighed."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright.errors import TuneError, UsageError
from loopwright.task.sampling import digits_of, indices_of, random_digits
from loopwright.testing.tuner_contract import FakeMeasurer, FakeSpace, FakeTask
from loopwright.tuner import Evolution, XGBTuner, crossings, mutations, populations
from loopwright.tuner.breeding import Breeding, KnownPoints, Mutation, own_rules
from loopwright.tuner.evolution import ansor
from tests.unit.tuner.variants import VariantContract


class TestXGBTunerAsAnsorSearches(VariantContract):
    tuner = XGBTuner
    options = {  # noqa: RUF012
        "feature_type": "knob",
        "analytical": False,
        "optimizer": "ansor",
    }


@pytest.fixture
def mine():
    """Rules of a user: all change the last knob to its last choice."""

    @mutations.register("mine", weight=1.0)
    def last(space, digits, rng):
        changed = digits.copy()
        changed[:, -1] = space.dims[-1] - 1
        return changed

    @populations.register("mine", weight=0.25)
    def corner(known, count, rng):
        return np.tile(np.array(known.space.dims) - 1, (count, 1))

    yield
    mutations.remove("mine")
    populations.remove("mine")


def digits(space, count=2000, seed=0):
    return random_digits(space, count, np.random.default_rng(seed))


def test_the_default_rules_are_what_there_was_before_there_were_rules():
    space = FakeSpace((8,) * 6)
    rows, other = digits(space), digits(space, seed=1)
    bred = Breeding(space)
    plain = Mutation(space).mutate(rows, np.random.default_rng(2))
    assert np.array_equal(bred.mutate(rows, np.random.default_rng(2)), plain)
    crossed = bred.cross(rows, other, np.random.default_rng(3))
    from_first = np.random.default_rng(3).random(rows.shape) >= 0.5
    assert np.array_equal(crossed, np.where(from_first, rows, other))
    first = bred.begin(KnownPoints(space, rows, other), 100, np.random.default_rng(4))
    assert np.array_equal(first, np.concatenate([rows[:20], other[:50]]))
    assert own_rules() == {}


@pytest.mark.usefixtures("mine")
def test_a_rule_of_a_user_takes_part_by_its_weight():
    space = FakeSpace((64,) * 3)
    rows = digits(space) // 2  # so that the last choice is a rare neighbour of none
    changed = Breeding(space).mutate(rows, np.random.default_rng(0))
    share = float((changed[:, -1] == 63).mean())
    assert 0.45 < share < 0.55
    first = Breeding(space).begin(KnownPoints(space, rows, rows), 100, np.random.default_rng(0))
    assert len(first) == 20 + 50 + 25
    assert first[-25:].tolist() == [[63, 63, 63]] * 25
    assert own_rules() == {
        "mutations": {"small_steps": 1.0, "mine": 1.0},
        "populations": {"measured": 0.2, "drafted": 0.5, "mine": 0.25},
    }


@pytest.mark.usefixtures("mine")
def test_what_a_user_adds_stands_in_the_log_and_in_what_is_proposed():
    task = FakeTask(FakeSpace((40,) * 4))
    tuner = XGBTuner(task, feature_type="knob", analytical=False, seed=0)
    measurer = FakeMeasurer(lambda index: 1e-3 * (1 + index % 40))
    tuner.tune(n_trial=64, measure_option=measurer)
    last = digits_of(task.config_space, measurer.measured)[32:, -1]
    assert float((last == 39).mean()) >= 4 / 32  # by chance 1 in 40
    assert tuner.options["mutations"] == {"small_steps": 1.0, "mine": 1.0}
    named = XGBTuner(task, optimizer=Evolution(mutations={"tile_size": 1.0}))
    assert "mutations={'tile_size': 1.0}" in named.options["optimizer"]


def test_ansors_mutations_change_one_knob_of_their_kind():
    space = lw.create_task("matmul", (128, 128, 128), "llvm").config_space
    kinds = [knob.kind for knob in space.knobs.values()]
    rows = digits(space, 500)
    for name, kind in (("tile_size", {"split"}), ("placement", {"other", "reorder"})):
        changed = mutations[name](space, rows, np.random.default_rng(0)) != rows
        assert (changed.sum(axis=1) == 1).all()
        assert {kinds[k] for k in np.flatnonzero(changed.any(axis=0))} == kind & set(kinds)
    # This space has no annotations: any knob.
    assert "annotate" not in kinds
    changed = mutations["annotation"](space, rows, np.random.default_rng(0)) != rows
    assert (changed.sum(axis=1) == 1).all()
    assert changed.any(axis=0).all()


def test_tile_sizes_move_one_prime_factor():
    space = lw.ConfigSpace()
    space.define_split("tile", 96, num_outputs=3)
    space.freeze()
    rows = digits(space, 300)
    for before, after in zip(
        indices_of(space, rows),
        indices_of(space, mutations["tile_size"](space, rows, np.random.default_rng(1))),
        strict=True,
    ):
        a, b = (space.get(i)["tile"].size[1:] for i in (before, after))
        inner = [x / y for x, y in zip(a, b, strict=True) if x != y]
        assert 1 <= len(inner) <= 2
        assert {max(r, 1 / r) for r in inner} <= {2.0, 3.0}


def test_one_point_crossing_takes_the_first_knobs_of_one_parent():
    space = FakeSpace((4,) * 6)
    ones, twos = np.full((400, 6), 1), np.full((400, 6), 2)
    children = crossings["one_point"](space, ones, twos, np.random.default_rng(0))
    assert {tuple(row) for row in children.tolist()} == {
        tuple([1] * cut + [2] * (6 - cut)) for cut in range(7)
    }


def test_ansors_search_is_one_option():
    search = XGBTuner(FakeTask(), optimizer="ansor").settings.search
    assert search == ansor()
    assert (search.population, search.generations, search.mutation) == (2048, 4, 0.85)
    assert (search.crossover, XGBTuner(FakeTask()).settings.epsilon) == (0.0, 0.05)


def test_with_a_share_of_mutations_the_other_children_are_copies():
    space = FakeSpace((50,) * 5)
    rows = digits(space, 400)
    search = Evolution(population=400, crossover=0.0, mutation=0.85, greed=None)
    children = search._children(rows, np.zeros(400), search.moves(space), np.random.default_rng(0))
    known = set(indices_of(space, rows))
    copies = float(np.mean([index in known for index in indices_of(space, children)]))
    assert 0.10 < copies < 0.20


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (lambda rows: rows[:, :1], "whole numbers of shape"),
        (lambda rows: rows + 100, "below"),
        (lambda rows: rows * 0.5, "float64"),
    ],
)
def test_a_rule_that_returns_nonsense_is_named(returned, text):
    space = FakeSpace((8,) * 3)
    mutations.register("broken", weight=0.0)(lambda space, digits, rng: returned(digits))
    try:
        with pytest.raises(TuneError, match=f"mutation 'broken' must return.*{text}"):
            Breeding(space, {"broken": 1.0}).mutate(digits(space, 9), np.random.default_rng(0))
    finally:
        mutations.remove("broken")


def test_names_and_weights_are_checked():
    with pytest.raises(UsageError, match="there is a mutation 'small_steps'"):
        mutations.register("small_steps", weight=1.0)
    with pytest.raises(UsageError, match="the weight of crossing 'new' must be a number >= 0"):
        crossings.register("new", weight=-1)
    with pytest.raises(UsageError, match="unknown mutation 'small_step'"):
        Evolution(mutations={"small_step": 1.0})
    with pytest.raises(UsageError, match="unknown population 'none'"):
        populations.remove("none")
