"""Convolutions of concatenated channels become sums over the parts, of the same values."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import strategies as st

from loopwright import graph
from loopwright.graph import op, transform
from tests.unit.graph.values import drawn, with_the_same_values


def _weight(*shape: int) -> graph.Constant:
    drawn = np.random.default_rng(len(shape)).standard_normal(shape)
    return graph.const(drawn.astype("float32"), name="w")


def _images(*channels: int, size: int = 6) -> list[graph.Var]:
    return [graph.var(f"x{n}", (1, c, size, size)) for n, c in enumerate(channels)]


def _split(*results: graph.Expr) -> Counter[str]:
    """The operators that are left, where the values are the same."""
    return Counter(with_the_same_values(transform.SplitConcatenation, *results, atol=1e-4))


def test_the_layers_of_squeezenet() -> None:
    x, y = _images(8, 12)
    both = op.concatenate(op.nn.relu(x), op.nn.relu(y), axis=1)
    found = _split(op.nn.relu(op.nn.conv(both, _weight(4, 20, 1, 1))))
    assert found == {"nn.relu": 3, "nn.conv": 2, "add": 1}


@pytest.mark.parametrize("name", ["nn.max_pool", "nn.avg_pool"])
def test_pools_between_are_made_of_each_part(name: str) -> None:
    both = op.concatenate(*_images(8, 12, 3), axis=-3)
    pooled = graph.get_op(name)(both, pool_size=3, strides=2, padding=1)
    found = _split(op.nn.conv(pooled, _weight(4, 23, 3, 3), padding=1))
    assert found == {name: 3, "nn.conv": 3, "add": 2}


def test_a_pool_whose_concatenation_is_kept_reads_the_parts() -> None:
    both = op.concatenate(*_images(2, 2), axis=1)
    found = _split(op.nn.relu(op.nn.max_pool(both, pool_size=2, strides=2)))
    assert found == {"nn.max_pool": 2, "concatenate": 1, "nn.relu": 1}


@drawn(
    channels=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    outputs=st.integers(1, 9),
    window=st.integers(1, 3),
    stride=st.integers(1, 2),
    padding=st.integers(0, 1),
    dilation=st.integers(1, 2),
)
def test_any_convolution_keeps_its_values(
    channels: list[int], outputs: int, window: int, stride: int, padding: int, dilation: int
) -> None:
    """Split just where what is read and written once more is less than the concatenation."""
    both = op.concatenate(*_images(*channels), axis=1)
    weight = _weight(outputs, sum(channels), window, window)
    attrs = {"strides": stride, "padding": padding, "dilation": dilation}
    conv = op.nn.conv(both, weight, **attrs)
    side = (6 + 2 * padding - (window - 1) * dilation - 1) // stride + 1
    pays = (len(channels) - 1) * outputs * side * side < sum(channels) * 36
    found = _split(conv)
    assert found["concatenate"] == (0 if pays else 1)
    assert found["nn.conv"] == (len(channels) if pays else 1)


def _kept() -> dict[str, list[graph.Expr]]:
    x, y = _images(4, 4)
    both, rows = op.concatenate(x, y, axis=1), op.concatenate(x, y, axis=2)
    variable = graph.var("w", (2, 8, 1, 1))
    whole = op.concatenate(*(op.cast(v, dtype="int32") for v in (x, y)), axis=1)
    numbers = graph.const(np.ones((2, 8, 1, 1), "int32"), name="w")
    return {
        "read twice": [op.nn.conv(both, _weight(2, 8, 1, 1)), op.nn.relu(both)],
        "a result": [op.nn.conv(both, _weight(2, 8, 1, 1)), both],
        "rows": [op.nn.conv(rows, _weight(2, 4, 1, 1))],
        "a weight that is an input": [op.nn.conv(both, variable)],
        "groups": [op.nn.conv(both, _weight(2, 4, 1, 1), groups=2)],
        "whole numbers": [op.cast(op.nn.conv(whole, numbers), dtype="float32")],
        "one part": [op.nn.conv(op.concatenate(x, axis=1), _weight(2, 4, 1, 1))],
        "no concatenation": [op.nn.conv(x, _weight(2, 4, 1, 1)), y],
    }


@pytest.mark.parametrize("name", list(_kept()))
def test_what_stays_as_it_is(name: str) -> None:
    module = graph.IRModule.from_expr(graph.Tuple(tuple(_kept()[name])))
    assert transform.SplitConcatenation(module) is module
