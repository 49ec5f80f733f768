"""Structures as data: knobs in place of sizes, and schedules made of them."""

from __future__ import annotations

import numpy as np
import pytest

from loopwright import te
from loopwright.cost.symbolic.symbols import Graph, Sym, ceil_div, least
from loopwright.errors import InternalError
from loopwright.schedule import replay
from loopwright.space import Sketch, Structure
from tests.unit.space.expressions import placeholder


def _tiled() -> Structure:
    A = placeholder(30, 40)
    B = te.compute((30, 40), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((30, 40), lambda i, j: B[i, j] + 1, name="C")
    sketch = Sketch([C], [A, C])
    i, j = B.op.axis
    rows, columns = sketch.numbers("tile", [(2, 8), (3, 8), (2, 16)], (3, 8))
    one = sketch.number("one", [4])
    assert one == 4
    assert isinstance(rows, Sym)
    sketch.s[B].tile(i, j, rows, columns)
    sketch.s[B].transform_layout(lambda a, b: (b // columns, a, b % columns))
    sketch.why.append("a test")
    return sketch.finished("tiles")


def test_a_schedule_has_the_numbers_that_a_configuration_chooses() -> None:
    structure = _tiled()
    assert [k.default for k in structure.config_space.knobs.values()] == [1, 0, 0]
    for index in range(structure.config_space.range_length):
        config = structure.config_space.get(index)
        rows, columns = config["tile"].val
        s, args = structure.instantiate(config)
        assert [a.name for a in args] == ["A", "C"]
        assert [t.factor for t in s.trace[:2]] == [rows, columns]  # type: ignore[attr-defined]
        assert s.trace_json()[-1][2] == [[1, columns, None], [0, 1, None], [1, 1, columns]]
        # What is built is data: it replays from its JSON alone.
        assert replay(s.dag, s.trace_json()).trace == s.trace
    assert structure.why == ("a test",)
    assert str(structure) == "tiles (3 configurations)"


def test_symbols_of_another_graph_may_take_the_place_of_numbers() -> None:
    from loopwright.task import ConfigEntity

    structure = _tiled()
    graph, (knob, one, name) = Graph(), structure.config_space.knobs.values()
    symbols = [graph.leaf(0, part, values) for part, values in enumerate(knob.parts())]
    chosen = {
        "tile": knob.from_parts(symbols),
        "one": one.entities[0],
        "structure": name.entities[0],
    }
    s, _ = structure.instantiate(ConfigEntity(structure.config_space, chosen, None))
    assert s.trace[0].factor is symbols[0]  # type: ignore[attr-defined]


def test_sizes_may_be_computed_from_knobs() -> None:
    A = placeholder(64)
    B = te.compute((64,), lambda i: A[i] + 1, name="B")
    sketch = Sketch([B], [A, B])
    size, flag = sketch.number("size", [2, 4]), sketch.number("flag", [0, 1])
    width = least(size * 2, 1 + flag * (ceil_div(9, size) - 1))
    sketch.s[B].split(B.op.axis[0], factor=width)
    structure = sketch.finished("computed")
    space = structure.config_space
    found = {}
    for index in range(4):
        s, _ = structure.instantiate(space.get(index))
        values = space.get(index)
        found[values["size"].val, values["flag"].val] = s.trace[0].factor  # type: ignore[attr-defined]
    assert found == {(2, 0): 1, (4, 0): 1, (2, 1): 4, (4, 1): 3}


def test_a_symbol_that_no_knob_explains_is_a_mistake_of_the_rule() -> None:
    A = placeholder(64)
    B = te.compute((64,), lambda i: A[i] + 1, name="B")
    sketch = Sketch([B], [A, B])
    size = Graph().leaf(0, 0, [2, 4])
    sketch.s[B].split(B.op.axis[0], factor=size * 2)
    structure = sketch.finished("twice")
    with pytest.raises(InternalError, match="is no part of a knob"):
        structure.instantiate(structure.config_space.get(0))


def test_values_of_tuples_are_numbers_for_cost_models() -> None:
    knob = _tiled().config_space.knobs["tile"]
    assert knob.parts() == [(2, 3, 2), (8, 8, 16)]
    columns = dict(knob.columns())
    np.testing.assert_array_equal(columns["tile.0"], [2, 3, 2])
    np.testing.assert_array_equal(columns["tile.1"], [8, 8, 16])
    # Equal but for one part, and next to each other in that.
    assert knob.neighbours() == [[1, 2], [0], [0]]
    assert knob.position([2, 16]) == 2
