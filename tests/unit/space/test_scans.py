"""Scans are computed in blocks: right for all shapes, in linear work, in parallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.space import Structure
from tests.unit.space.expressions import placeholder

TARGET = "llvm -mcpu=x86-64-v3 -num-threads=2"
Compared = Callable[[Any, Any], Any]


def scan(
    shape: tuple[int, ...],
    axis: int,
    compared: Compared = lambda k, j: k <= j,
    reducer: Any = te.sum,
    none: float = 0.0,
) -> list[te.Tensor]:
    """Along an axis, each place over all elements that are compared with it."""
    X, k = placeholder(*shape, name="X"), te.reduce_axis((0, shape[axis]), name="k")

    def element(*i: Any) -> Any:
        at = (*i[:axis], k, *i[axis + 1 :])
        return reducer(te.select(compared(k, i[axis]), X[at], none), axis=k)

    return [X, te.compute(shape, element, name="Y")]


def derived(args: list[te.Tensor]) -> list[Structure]:
    with lw.Target(TARGET):
        return lw.space.structures(args[-1], args)


def answers(args: list[te.Tensor], x: Any, structures: list[Structure] | None = None) -> list[Any]:
    """What every structure gives at its default and at another point."""
    found = []
    structures = structures or derived(args)
    assert structures
    for structure in structures:
        space = structure.config_space
        for index in {space.default_index, *space.sample_ints(1, 1)}:
            y = np.full(args[-1].static_shape, np.nan, "float32")
            lw.build(*structure.instantiate(space.get(index)), TARGET)(x, y)
            found.append(y)
    return found


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        # Vectors along the scan, of one row, and across it.
        ((40, 100), 1),
        ((5000,), 0),
        ((3, 37, 5), 1),
        # The same in other shapes.
        pytest.param((3, 100), 1, marks=pytest.mark.slow),
        pytest.param((100, 40), 0, marks=pytest.mark.slow),
        pytest.param((9, 40, 33), 0, marks=pytest.mark.slow),
    ],
)
def test_running_sums_of_any_axis(shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).integers(-3, 4, shape).astype("float32")
    args = scan(shape, axis)
    structures = derived(args)
    assert all(s.name.startswith("running along") for s in structures)
    for y in answers(args, x, structures):
        np.testing.assert_array_equal(y, np.cumsum(x, axis))


def test_other_comparisons_and_reducers() -> None:
    x = np.random.default_rng(0).integers(-3, 4, (20, 61)).astype("float32")
    below = np.cumsum(x, 1) - x
    behind = np.cumsum(x[:, ::-1], 1)[:, ::-1]
    lowest = float(np.finfo("float32").min)
    for compared, right in ((lambda k, j: k < j, below), (lambda k, j: k >= j, behind)):
        for y in answers(scan(x.shape, 1, compared), x):
            np.testing.assert_array_equal(y, right)
    for y in answers(scan(x.shape, 1, reducer=te.max, none=te.min_value("float32")), x):
        np.testing.assert_array_equal(y, np.maximum(np.maximum.accumulate(x, 1), lowest))


def test_work_grows_with_the_length_alone() -> None:
    """Points of all loops, counted in the nests of two sizes."""

    def points(n: int) -> int:
        structure = derived(scan((n,), 0))[0]
        s, _ = structure.instantiate(structure.config_space.get(0))
        stages = s.bounds().stages.values()
        return sum(
            int(np.prod([*b.shape, *(x.extent for x in b.stage.op.reduce_axes)])) for b in stages
        )

    assert points(1 << 16) < 40 * (1 << 16)
    assert points(1 << 18) < 4.2 * points(1 << 16)


def test_one_long_row_is_shared_out_in_every_pass() -> None:
    structure = derived(scan((1 << 16,), 0))[0]
    text = str(lw.lower(*structure.instantiate(structure.config_space.get(0))))
    assert text.count("parallel(") >= 3


def test_little_work_is_left_to_one_thread() -> None:
    small, large = derived(scan((20, 40), 1)), derived(scan((1024, 1024), 1))
    assert small[0].name.endswith("one thread")
    assert "parallel" not in str(lw.lower(*small[0].instantiate(small[0].config_space.get(0))))
    assert not any(s.name.endswith("one thread") for s in large)


def test_a_scan_between_other_stages() -> None:
    """What is read is computed where it is, what follows goes along, and a row is normalised."""
    X, k, q = (
        placeholder(12, 70, name="X"),
        te.reduce_axis((0, 70), "k"),
        te.reduce_axis((0, 70), "q"),
    )
    A = te.compute((12, 70), lambda i, j: X[i, j] * 2.0, name="A")
    S = te.compute((12, 70), lambda i, j: te.sum(te.select(k <= j, A[i, k], 0.0), axis=k), name="S")
    M = te.compute((12,), lambda i: te.max(S[i, q], axis=q), name="M")
    Y = te.compute((12, 70), lambda i, j: S[i, j] - M[i], name="Y")
    x = np.random.default_rng(0).integers(-3, 4, (12, 70)).astype("float32")
    right = np.cumsum(2 * x, 1)
    found = answers([X, Y], x)
    assert found
    for y in found:
        np.testing.assert_array_equal(y, right - right.max(1, keepdims=True))


def test_a_default_that_is_a_scan_is_explained() -> None:
    task = lw.create_task(scan((64, 256), 1), target=TARGET)
    structure, _ = task.part(task.config(task.config_space.default_index))
    assert structure.name.startswith("running along i1 in blocks of")
    assert "whole blocks are combined once" in structure.why[0]


def test_analysis_names_a_scan_and_counts_its_places() -> None:
    (stage,) = lw.space.analyze(scan((4, 100), 1)[-1])
    assert "sum over k 100, a scan along i1" in str(stage)
    assert stage.work == 400
    k = te.reduce_axis((0, 100), name="k")
    X = placeholder(4, 100, name="X")
    (other,) = lw.space.analyze(te.compute((4,), lambda i: te.sum(X[i, k], axis=k), name="S"))
    assert other.scan is None
    assert other.work == 400
