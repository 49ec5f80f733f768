"""Products of one input become one product, of the same values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from loopwright import graph
from loopwright.graph import op, transform
from tests.unit.graph.values import drawn, with_the_same_values

COMBINING = transform.Sequential([transform.CombineParallelDense, transform.CombineParallelConv2D])


def _weight(seed: int, *shape: int) -> graph.Constant:
    drawn = np.random.default_rng(seed).standard_normal(shape)
    return graph.const(drawn.astype("float32"), name=f"w{seed}")


def _combined(*branches: graph.Expr) -> list[str]:
    """The operators that are left, where the values are the same."""
    return with_the_same_values(COMBINING, *branches)


X = graph.var("x", (2, 5, 4))
IMAGE = graph.var("x", (1, 4, 6, 6))


def _dense(n: int, channels: int) -> graph.Expr:
    return op.nn.dense(X, _weight(n, channels, 4))


def _matmul(n: int, channels: int) -> graph.Expr:
    return op.matmul(X, _weight(n, 4, channels))


def _conv(n: int, channels: int, window: int = 1, **attrs: object) -> graph.Expr:
    return op.nn.conv(IMAGE, _weight(n, channels, 4, window, window), **attrs)


def test_q_k_and_v_are_one_product() -> None:
    for make in (_dense, _matmul):
        found = _combined(
            *(op.add(make(n, 3 + n), _weight(9 + n, 3 + n)) for n in range(3)),
        )
        assert found[1:] == ["add", *["strided_slice"] * 3]
        assert len(found) == 5


def test_activations_and_biases_of_convolutions_go_along() -> None:
    def branch(n: int) -> graph.Expr:
        biased = op.add(_conv(n, 2 + n), _weight(9 + n, 2 + n, 1, 1))
        return op.nn.relu(op.multiply(_weight(20 + n), biased))

    found = _combined(*(branch(n) for n in range(3)))
    assert found == ["nn.conv", "add", "multiply", "nn.relu", *["strided_slice"] * 3]


def test_branches_that_go_different_ways_part_where_they_do() -> None:
    relu, tanh = op.nn.relu(_conv(0, 2)), op.tanh(_conv(1, 2))
    found = _combined(relu, tanh, op.nn.relu(_conv(2, 2)))
    assert sorted(found) == ["nn.conv", "nn.relu", "nn.relu", *["strided_slice"] * 3, "tanh"]


def test_what_differs_is_not_combined() -> None:
    # Windows, strides and groups differ; two branches are too few.
    assert _combined(_conv(0, 2), _conv(1, 2, 3), _conv(2, 2, strides=2)).count("nn.conv") == 3
    grouped = [op.nn.conv(IMAGE, _weight(n, 4, 1, 1, 1), groups=4) for n in range(3)]
    assert _combined(*grouped).count("nn.conv") == 3
    assert _combined(_dense(0, 2), _dense(1, 2)).count("nn.dense") == 2


def test_a_summand_that_is_not_by_channel_stays_behind_the_slice() -> None:
    wide = [op.add(_dense(n, 3), _weight(9 + n, 5, 3)) for n in range(3)]
    found = _combined(*wide)
    assert found[0] == "nn.dense"
    assert sorted(found[1:]) == [*["add"] * 3, *["strided_slice"] * 3]


def test_the_product_itself_may_be_read_by_another() -> None:
    shared = _dense(0, 3)
    found = _combined(shared, op.tanh(shared), _dense(1, 3), _dense(2, 3))
    assert found.count("nn.dense") == 1
    assert found.count("tanh") == 1


def test_what_only_one_branch_of_an_if_needs_stays_there() -> None:
    flag = graph.var("flag", (), "bool")
    e = graph.If(flag, op.add(_dense(0, 3), _dense(1, 3)), _dense(2, 3))
    module = graph.IRModule.from_expr(e)
    assert COMBINING(module) is module


_FOLLOWERS: dict[str, Callable[[graph.Expr, int, int], graph.Expr]] = {
    "relu": lambda e, n, c: op.nn.relu(e),
    "tanh": lambda e, n, c: op.tanh(e),
    "bias": lambda e, n, c: op.add(e, _weight(50 + n, c)),
    "scale": lambda e, n, c: op.multiply(_weight(70 + n, 1), e),
    "less": lambda e, n, c: op.subtract(_weight(90 + n, c), e),
}


@drawn(
    st.lists(
        st.tuples(st.integers(1, 4), st.lists(st.sampled_from(list(_FOLLOWERS)), max_size=3)),
        min_size=2,
        max_size=5,
    )
)
def test_random_branches_keep_their_values(branches: list[tuple[int, list[str]]]) -> None:
    made = []
    for n, (channels, names) in enumerate(branches):
        e = _dense(n, channels)
        for name in names:
            e = _FOLLOWERS[name](e, n, channels)
        made.append(e)
    assert _combined(*made).count("nn.dense") == (1 if len(branches) >= 3 else len(branches))
