"""Expressions over knob values against the same arithmetic on each candidate."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.cost.symbolic.evaluation import ColumnProgram
from loopwright.cost.symbolic.population import Population
from loopwright.cost.symbolic.symbols import (
    DataDependent,
    Graph,
    at_most,
    ceil_div,
    least,
    magnitude,
    most,
    where,
)
from loopwright.ir.expr import Binary, IterVar, Var

VALUES = [[1, 2, 3, 8, 100], [4, 16, 5, 32, 7], [1, 1, 2, 2, 64]]


def _expression(rng: random.Random, leaves: list[Any]) -> list[Any]:
    """A dozen numbers made of leaves; the same ones for equal generators, whatever leaves are."""
    found = [*leaves, 1, 3, 16]
    for _ in range(12):
        a, b, c = (rng.choice(found) for _ in range(3))
        kind = rng.randrange(9)
        positive = most(magnitude(b), 1)
        found.append(
            [
                lambda a=a, b=b, p=positive: a + b,
                lambda a=a, b=b, p=positive: a - b,
                lambda a=a, b=b, p=positive: least(a, 40) * least(b, 40),
                lambda a=a, b=b, p=positive: a // p,
                lambda a=a, b=b, p=positive: a % p,
                lambda a=a, b=b, p=positive: ceil_div(a, p),
                lambda a=a, b=b, p=positive: least(a, b),
                lambda a=a, b=b, p=positive: most(a, b),
                lambda a=a, b=b, p=positive, c=c: where(at_most(a, b), a, c),
            ][kind]()
        )
    return found


def test_columns_are_what_each_candidate_gives() -> None:
    for seed in range(150):
        graph = Graph()
        syms = [graph.leaf(k, 0, v) for k, v in enumerate(VALUES)]
        found = _expression(random.Random(seed), syms)
        program = ColumnProgram(found, [False] * len(found))
        columns = [np.array(VALUES[k], float) for k, _ in program.leaves]
        out = np.empty((5, len(found)), np.float32)
        program.evaluate(columns, out)
        for row in range(5):
            alone = _expression(random.Random(seed), [v[row] for v in VALUES])
            assert np.array_equal(out[row], np.array(alone, np.float32)), seed


def test_bounds_hold_and_parts_are_made_once() -> None:
    graph = Graph()
    a, b = graph.leaf(0, 0, [1, 2, 8]), graph.leaf(1, 0, [4, 16])
    assert (a + b) is (a + b)
    assert (a * b).bounds == (4, 128)
    assert least(a, 8) is a
    assert most(b, 3) is b
    assert where(at_most(a, 8), 5, a) == 5
    assert graph.leaf(2, 0, [7, 7]) == 7


def test_whoever_asks_for_a_value_is_told_on_which_knobs_it_depends() -> None:
    graph = Graph()
    a, b = graph.leaf(0, 0, [1, 2, 8]), graph.leaf(3, 1, [4, 16])
    for question in (
        lambda: bool(a + b > 9),
        lambda: int(a * b),
        lambda: range(a + b),
        lambda: float(a - b),
        lambda: max(a, b),
    ):
        graph.asked.clear()
        with pytest.raises(DataDependent) as info:
            question()
        assert info.value.knobs == {0, 3}
        assert graph.asked == {0, 3}


def test_what_holds_for_all_candidates_is_no_question() -> None:
    graph = Graph()
    a = graph.leaf(0, 0, [2, 8])
    assert a > 1
    assert not a > 8
    assert a
    assert graph.asked == set()


def test_beside_an_axis_a_symbol_is_part_of_an_expression() -> None:
    graph = Graph()
    a = graph.leaf(0, 0, [2, 8])
    i = IterVar(Var("i"), 64, "spatial")
    for e in (i // a, i.var % a, a * i, a + i.var):
        assert isinstance(e, Binary)
        assert a in e.children()


def test_outputs_may_be_logged_shared_and_constant() -> None:
    graph = Graph()
    a = graph.leaf(0, 0, [0, 1, 7])
    program = ColumnProgram([a, a, 3, 3, a], [True, False, True, False, True])
    out = np.empty((3, 5), np.float32)
    program.evaluate([np.array([0.0, 1, 7])], out)
    assert out.tolist() == [[0, 0, 2, 3, 0], [1, 1, 2, 3, 1], [3, 7, 2, 3, 3]]


def test_bounds_that_are_not_known_fold_nothing() -> None:
    graph = Graph()
    a, b = graph.leaf(0, 0, VALUES[0]), graph.leaf(1, 0, VALUES[1])
    unknown = (a // (b - 6)) * (a - 1)
    found = where(at_most(a, 2), 0, unknown)
    out = np.empty((5, 1), np.float32)
    ColumnProgram([found], [False]).evaluate([np.array(v, np.float64) for v in VALUES[:2]], out)
    wanted = [0 if x <= 2 else x // (y - 6) * (x - 1) for x, y in zip(*VALUES[:2], strict=True)]
    assert out[:, 0].tolist() == wanted


@pytest.mark.parametrize("a", [True, False, None])
@pytest.mark.parametrize("b", [True, False, None])
def test_tests_chosen_by_a_test(a: bool | None, b: bool | None) -> None:
    graph = Graph()
    x, y = graph.leaf(0, 0, VALUES[0]), graph.leaf(1, 0, VALUES[1])

    def chosen(x: Any, y: Any) -> Any:
        other = at_most(y, 6)
        test = at_most(x, 2)
        return where(where(test, other if a is None else a, other if b is None else b), x, y)

    out = np.empty((5, 1), np.float32)
    columns = {(0, 0): VALUES[0], (1, 0): VALUES[1]}
    made = ColumnProgram([chosen(x, y)], [False])
    made.evaluate([np.array(columns[leaf], np.float64) for leaf in made.leaves], out)
    assert out[:, 0].tolist() == [chosen(*pair) for pair in zip(*VALUES[:2], strict=True)]


@pytest.fixture
def collector() -> Iterator[None]:
    """The collector of cycles is on afterwards, whatever a test does to it."""
    yield
    gc.enable()


def test_a_graph_that_forgets_its_expressions_needs_no_collector(collector: None) -> None:
    gc.disable()
    kept, forgotten = Graph(), Graph()
    for graph in (kept, forgotten):
        x, y = (graph.leaf(k, 0, v) for k, v in enumerate(VALUES[:2]))
        assert least(x * y, 40) is least(x * y, 40)
        del x, y
    forgotten.forget()
    refs = [weakref.ref(kept), weakref.ref(forgotten)]
    del kept, forgotten, graph
    assert refs[0]() is not None
    assert refs[1]() is None


@pytest.mark.parametrize("on", [True, False])
def test_a_derivation_leaves_the_collector_as_it_was(on: bool, collector: None) -> None:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    structure = lw.create_task([A, B], target="llvm -num-threads=1").structures[0]
    seen: list[bool] = []

    def derive(state: Any) -> list[Any]:
        seen.append(gc.isenabled())
        raise ValueError("nothing can be derived")

    if not on:
        gc.disable()
    digits = np.zeros((1, len(structure.config_space.dims)), np.int64)
    rows = Population(structure, derive, (False,)).evaluate(digits)
    assert gc.isenabled() is on
    assert not seen[0]
    assert np.isnan(rows).all()


@pytest.mark.parametrize("op", ["*", "/"])
def test_bounds_of_products_and_quotients_hold_every_value(op: str) -> None:
    """Of all signs, and where nothing is negative, which has a way of its own."""
    rng = random.Random(5)
    for _ in range(400):
        low = rng.choice([-9, 0, 1])
        xs = [rng.randint(low, 12) for _ in range(3)]
        ys = [rng.randint(1 if op == "/" else low, 12) for _ in range(3)]
        graph = Graph()
        x, y = graph.leaf(0, 0, xs), graph.leaf(1, 0, ys)
        made = x * y if op == "*" else x / y
        low_bound, high_bound = getattr(made, "bounds", (made, made))
        values = [a * b if op == "*" else a / b for a in xs for b in ys]
        assert low_bound <= min(values)
        assert max(values) <= high_bound
