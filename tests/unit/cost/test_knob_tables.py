"""What one knob decides is looked up: the same numbers as from the values of each candidate."""

from __future__ import annotations

import numpy as np

from loopwright import ops
from loopwright.cost.features import Extractor
from loopwright.cost.symbolic import population
from loopwright.cost.symbolic.evaluation import ColumnProgram
from loopwright.cost.symbolic.symbols import Graph, Number, at_most, ceil_div, least, where
from loopwright.task import create_task

#: Knob 0 has two parts, knob 1 has one.
VALUES = {(0, 0): [1, 2, 4, 8], (0, 1): [8, 4, 2, 1], (1, 0): [3, 5, 7]}


def choices(knob: int, part: int) -> np.ndarray:
    return np.array(VALUES[knob, part], np.float64)


def expressions() -> list[Number]:
    graph = Graph()
    a, b, c = (graph.leaf(knob, part, values) for (knob, part), values in VALUES.items())
    test = at_most(a, b)
    return [
        ceil_div(a, 3) * b,  # of knob 0 alone
        where(test, a + c, b * c),
        where(test, 1, 0) + least(c, 4),
        c,
        c * c - 2,
        5,
    ]


def test_looked_up_numbers_are_those_of_the_values() -> None:
    digits = np.stack(np.meshgrid(range(4), range(3)), axis=-1).reshape(-1, 2)
    logged = [False, True, False, False, True, False]
    plain = ColumnProgram(expressions(), logged)
    looked_up = ColumnProgram(expressions(), logged, choices)
    out = np.empty((2, len(digits), len(logged)), np.float32)
    columns = [choices(k, p)[digits[:, k]] for k, p in plain.leaves]
    plain.evaluate(columns, out[0])
    looked_up.evaluate(looked_up.columns(digits), out[1])
    assert np.array_equal(out[0], out[1])
    a, b, c = (choices(k, p)[digits[:, k]] for k, p in VALUES)
    assert np.array_equal(out[1][:, 1], np.log2(1 + np.where(a <= b, a + c, b * c), dtype="f4"))
    # What is left: the two choices, what is chosen from, and one sum.
    assert len(looked_up) == 4 < len(plain)


def test_features_of_a_space_look_most_of_their_operations_up(monkeypatch) -> None:
    task = create_task(ops.matmul, args=(64, 64, 64), target="cuda -arch=sm_90")
    made: list[tuple[int, int]] = []

    class Noting(ColumnProgram):
        def __init__(self, outputs, logged, choices, known) -> None:
            super().__init__(outputs, logged, choices, known)
            made.append((len(self), len(ColumnProgram(outputs, logged))))

    monkeypatch.setattr(population, "ColumnProgram", Noting)
    Extractor(task).rows(np.zeros((1, len(task.config_space.dims)), np.int64))
    ((looked_up, plain),) = made
    assert looked_up < 0.8 * plain
