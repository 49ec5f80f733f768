"""The solver of layouts against every choice of small problems."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright.errors import UsageError
from loopwright.graph.layout.pbqp import solve

Problem = tuple[list[list[float]], dict[tuple[int, int], Any]]


@st.composite
def problems(draw: st.DrawFn, dense: bool) -> Problem:
    """Up to six nodes with up to three choices; those that are not dense are trees and circles."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    numbers = st.integers(0, 20).map(float)
    costs = [draw(st.lists(numbers, min_size=n, max_size=n)) for n in sizes]
    if dense:
        pairs = [p for p in itertools.combinations(range(len(sizes)), 2) if draw(st.booleans())]
    else:
        pairs = [(draw(st.integers(0, n - 1)), n) for n in range(1, len(sizes))]
        pairs += [(len(sizes) - 1, 0)] if len(sizes) > 2 and draw(st.booleans()) else []
    edges = {
        (a, b): [
            draw(st.lists(numbers, min_size=sizes[b], max_size=sizes[b])) for _ in range(sizes[a])
        ]
        for a, b in pairs
    }
    return costs, edges


def price(problem: Problem, choice: Any) -> float:
    costs, edges = problem
    nodes = sum(c[i] for c, i in zip(costs, choice, strict=True))
    return nodes + sum(m[choice[a]][choice[b]] for (a, b), m in edges.items())


def least(problem: Problem) -> float:
    return min(price(problem, c) for c in itertools.product(*(range(len(c)) for c in problem[0])))


@settings(max_examples=60, deadline=None)
@given(problems(dense=False))
def test_trees_with_one_more_edge_are_solved_exactly(problem: Problem) -> None:
    found = solve(*problem)
    assert found.exact
    assert found.cost == price(problem, found.choice) == least(problem)


@settings(max_examples=60, deadline=None)
@given(problems(dense=True))
def test_any_problem_is_solved_exactly_or_cannot_be_improved_by_one_change(
    problem: Problem,
) -> None:
    costs, edges = problem
    found = solve(costs, edges)
    assert found.cost == price(problem, found.choice) >= least(problem)
    if found.exact:
        assert found.cost == least(problem)
        return
    for n, one in enumerate(costs):
        for i in range(len(one)):
            assert price(problem, (*found.choice[:n], i, *found.choice[n + 1 :])) >= found.cost
    assert found.cost <= price(problem, [int(np.argmin(c)) for c in costs])


@settings(max_examples=20, deadline=None)
@given(problems(dense=True), st.data())
def test_a_known_choice_is_never_cheaper(problem: Problem, data: st.DataObject) -> None:
    start = [data.draw(st.integers(0, len(c) - 1)) for c in problem[0]]
    assert solve(*problem, starts=[start]).cost <= price(problem, start)


def test_a_problem_that_needs_the_heuristic_says_so() -> None:
    """Four nodes, each beside each other."""
    edges = {p: np.ones((2, 2)) - np.eye(2) for p in itertools.combinations(range(4), 2)}
    found = solve([[0.0, 1.0]] * 4, edges)
    assert (found.exact, found.choice, found.cost) == (False, (0, 0, 0, 0), 0.0)


def test_both_orders_of_a_pair_are_one_edge() -> None:
    found = solve([[0.0, 0.0], [0.0, 0.0]], {(0, 1): [[3, 0], [3, 3]], (1, 0): [[3, 3], [3, 1]]})
    assert found.cost == 4.0 - 1.0
    assert found.choice == (0, 1)


@pytest.mark.parametrize(
    ("costs", "edges", "text"),
    [
        ([[]], {}, r"node 0 has costs of shape \(0,\)"),
        ([[1.0, float("inf")]], {}, "the costs of node 0 are not all finite"),
        ([[1.0], [1.0]], {(0, 1): [[1.0, 2.0]]}, r"has shape \(1, 2\); give \(1, 1\)"),
        ([[1.0]], {(0, 0): [[1.0]]}, r"no edge \(0, 0\) among 1 nodes"),
    ],
)
def test_malformed_problems_are_refused(costs: Any, edges: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        solve(costs, edges)
