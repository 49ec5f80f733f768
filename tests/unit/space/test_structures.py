"""Every structure of an expression computes what the unscheduled one does."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import TargetError, TensorError
from loopwright.space import Structure, structures
from loopwright.te import Tensor, create_schedule, placeholder
from tests.unit.space.expressions import CONTRACTIONS, OTHERS, Make

TARGET = "llvm -num-threads=1"
#: Random points of each structure, beside its default.
_POINTS = 1


def derived(args: list[Tensor], target: str = TARGET) -> list[Structure]:
    with lw.Target(target):
        return structures(args[-1], args)


def run(schedule: lw.schedule.Schedule, args: list[Tensor], inputs: list[np.ndarray]) -> np.ndarray:
    out = np.full(args[-1].static_shape, np.nan, args[-1].dtype)
    lw.build(schedule, args, TARGET)(*inputs, out)
    return out


def check(make: Make, exact: bool) -> list[Structure]:
    args = make()
    rng = np.random.default_rng(0)
    # Sums of small integers are exact in any order.
    inputs = [rng.integers(-4, 5, t.static_shape).astype(t.dtype) for t in args[:-1]]
    right = run(create_schedule(args[-1].op), args, inputs)
    found = derived(args)
    for structure in found:
        space = structure.config_space
        for index in {space.default_index, *space.sample_ints(_POINTS, 1)}:
            answer = run(*structure.instantiate(space.get(index)), inputs)
            message = f"{structure}: {space.get(index)}"
            np.testing.assert_allclose(
                answer, right, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-6,
                err_msg=message,
            )  # fmt: skip
    return found


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contractions(name: str) -> None:
    found = check(CONTRACTIONS[name], exact=True)
    assert [s.name for s in found] != ["naive"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_expressions(name: str) -> None:
    found = check(*OTHERS[name])
    assert [s.name for s in found] != ["naive"]


def test_what_no_rule_knows_runs_as_it_is_and_says_so() -> None:
    A, ends = placeholder((8, 4), name="A"), te.reduce_axis((0, 4), name="k")
    pair = te.compute((8,), lambda i: te.sum(A[i, ends], axis=ends), name="B", tag="")
    low, high = te.compute((8,), lambda i: (pair[i], -pair[i]), name="C")
    with lw.Target(TARGET):
        (structure,) = structures([low, high], [A, low, high])
    assert structure.config_space.range_length == 1
    assert structure.why == (
        "no rule applies to this expression: every stage runs as it was written",
    )


def test_rows_on_the_way_are_kept_or_computed_again() -> None:
    names = [s.name for s in derived(OTHERS["softmax"][0]())]
    assert names == ["rows in cache", "rows in cache, E computed again"]


def test_targets_and_sizes_that_are_not_known_are_refused() -> None:
    args = OTHERS["flat"][0]()
    with pytest.raises(TargetError, match="no rule knows structures for the target interp"):
        derived(args, "interp")
    with pytest.raises(TensorError, match="nothing is computed"):
        derived([placeholder((4,), name="A")])
    n = lw.te.size_var("n")
    A = placeholder((n,), name="A")
    with pytest.raises(TensorError, match="has variables"):
        derived([A, lw.te.compute((n,), lambda i: A[i] + 1, name="B")])
