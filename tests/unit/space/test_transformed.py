"""Products between transforms: their structures, and that all of these compute the same."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.graph import get_op, implementations
from loopwright.space import Structure, structures

TARGET = "llvm -num-threads=1"


def expression(
    shape: tuple[int, ...], outputs: int, padding: int, *, last: bool = True, step: int = 2
) -> list[te.Tensor]:
    """A convolution by Winograd's algorithm with a bias and a residual."""
    n, height, width, channels = shape
    order = shape if last else (n, channels, height, width)
    window = (3, 3, channels, outputs) if last else (outputs, channels, 3, 3)
    name = "nn.conv_channels_last" if last else "nn.conv"
    data, weight = te.placeholder(order, name="data"), te.placeholder(window, name="weight")
    (found,) = (i for i in implementations(name) if i.name == f"winograd_{step}x{step}")
    (conv,) = found.tensors([data, weight], get_op(name).complete({"padding": padding}))
    bias, other = te.placeholder((outputs,), name="bias"), te.placeholder(conv.shape, name="other")
    at = 3 if last else 1
    summed = te.compute(conv.shape, lambda *i: conv(*i) + bias(i[at]) + other(*i), name="sum")
    out = te.compute(conv.shape, lambda *i: te.max(summed(*i), 0.0), name="out")
    return [data, weight, bias, other, out]


def derived(args: list[te.Tensor]) -> list[Structure]:
    with lw.Target(TARGET):
        return structures(args[-1], args)


@pytest.mark.parametrize(
    ("shape", "outputs", "padding"),
    [
        ((1, 7, 9, 20), 40, 1),  # tiles and vectors that overrun, of a padded image
        pytest.param((1, 18, 6, 16), 32, 1, marks=pytest.mark.slow),
        pytest.param((2, 7, 9, 20), 40, 0, marks=pytest.mark.slow),
    ],
)
def test_structures_compute_what_the_unscheduled_expression_does(
    shape: tuple[int, ...], outputs: int, padding: int
) -> None:
    args = expression(shape, outputs, padding)
    rng = np.random.default_rng(0)
    # Small integers: halves of them, and their sums, are exact.
    given = [rng.integers(-4, 5, t.static_shape).astype("float32") for t in args[:-1]]
    right = np.empty(args[-1].static_shape, "float32")
    lw.build(te.create_schedule(args[-1].op), args, TARGET)(*given, right)
    found = derived(args)
    assert {s.name for s in found} == {"transforms at tasks", "image transformed before"}
    for structure in found:
        space = structure.config_space
        for index in (space.default_index, *space.sample_ints(1, 1)):
            s, tensors = structure.instantiate(space.get(index))
            out = np.full_like(right, np.nan)
            lw.build(s, tensors, TARGET)(*given, out)
            assert (out == right).all(), space.get(index)


def test_the_order_follows_from_the_number_of_tiles() -> None:
    large, small = expression((1, 56, 56, 64), 64, 1), expression((1, 14, 14, 64), 64, 1)
    assert derived(large)[0].name == "transforms at tasks"
    assert derived(small)[0].name == "image transformed before"


def test_other_layouts_are_left_to_other_rules() -> None:
    names = [s.name for s in derived(expression((1, 8, 8, 16), 16, 1, last=False))]
    assert names
    assert not any("transform" in name for name in names)
