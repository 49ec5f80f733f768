"""The model that needs no measurements: what it must know, and that it ranks what was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright import ops
from loopwright.cost.analytical import AnalyticalModel
from loopwright.space.tasks import create_task as create_automatic
from loopwright.task import Task, create_task
from tests.unit.cost import workloads


def _scores(task: Task, *configs: dict[str, Any]) -> list[float]:
    space = task.config_space
    digits = [space.point2knob(space.index_of(c)) for c in configs]
    return AnalyticalModel(task).predict(np.array(digits)).tolist()


def _matmul(**changes: Any) -> dict[str, Any]:
    base = {
        "tile_i": [-1, 16, 8],
        "tile_j": [-1, 1, 32],
        "unroll_k": 1,
        "order": "ji",
        "pack": "panel",
    }
    return base | changes


@pytest.fixture(scope="module")
def task() -> Task:
    return create_task(ops.matmul, args=(512, 512, 512), target="llvm -mcpu=skylake-avx512")


def test_spilled_accumulators_are_slow(task: Task) -> None:
    good, spilled = _scores(task, _matmul(), _matmul(tile_i=[-1, 16, 24], tile_j=[-1, 1, 64]))
    assert good > spilled + 0.5


def test_one_accumulator_waits_for_itself(task: Task) -> None:
    good, chain = _scores(task, _matmul(), _matmul(tile_i=[-1, 16, 1], tile_j=[-1, 1, 16]))
    assert good > chain + 1


def test_one_task_leaves_threads_idle() -> None:
    pair = create_task(ops.matmul, args=(512, 512, 512), target="llvm -num_threads=2")
    one = _matmul(tile_i=[-1, 64, 8], tile_j=[-1, 16, 32])
    even, alone = _scores(pair, _matmul(), one)
    assert even > alone + 0.7


@pytest.mark.parametrize("name", workloads.by_kind())
def test_every_candidate_gets_a_finite_value_below_about_the_peak(name: str) -> None:
    made = workloads.task_of(name)
    digits = workloads.digits_of(made, 40)
    found = AnalyticalModel(made).predict(digits)
    assert found.dtype == np.float64
    assert np.isfinite(found).all()
    assert (found < 1).all()


def test_failed_candidates_get_the_lowest_value() -> None:
    made = create_task(workloads.branching, args=(32, 48), target="llvm")
    digits = workloads.digits_of(made, 60)
    found = AnalyticalModel(made).predict(digits)
    sizes = [made.config_space.knobs["x"].entities[d].size for d in digits[:, 0]]
    refused = np.array([a * b > 16 for _, a, b in sizes])
    assert (found[refused] == found[~refused].min()).all()
    assert (AnalyticalModel(made).predict(digits[refused]) == 0).all()


def _window(
    layout: str, stride: int, structure: str, *points: tuple[tuple[int, int], int]
) -> list[float]:
    """What is predicted of tiles and rows of a depthwise convolution 5x5 of 64 channels 56x56."""
    sizes = {"N": 1, "C": 64, "H": 56, "W": 56, "KH": 5, "KW": 5, "stride": stride, "pad": 2}
    args = (*sizes.values(), "float32", 1, layout)
    made = create_automatic("depthwise_conv2d", args, "llvm -mcpu=znver5 -num-threads=1")
    (part,) = (p for p in made.config_space.given if p.name == structure)
    space = part.config_space
    digits = [
        space.point2knob(space.index_of({"structure": structure, "tile": tile, "rows": rows}))
        for tile, rows in points
    ]
    return AnalyticalModel(part).predict(np.array(digits)).tolist()


def test_masks_of_lanes_are_made_again_unless_the_tail_tells_where_a_tile_is() -> None:
    # Measured: 2.9 times as long. Four tiles of 16 lanes have masks; two of 32 are told apart.
    told, masked = _window("NCHW", 1, "tiles along x", ((4, 32), 32), ((2, 16), 1))
    assert told > masked + 0.8


def test_vectors_beyond_the_result_are_gone_where_tiles_are_told_apart() -> None:
    # Measured: 0.93 of the time. Of the second 48 lanes one vector of three is left.
    written = "tiles along x, taps written out"
    whole, cut = _window("NCHW", 1, written, ((4, 64), 1), ((4, 48), 16))
    assert cut > whole - 0.4


def test_guarded_vectors_need_no_registers_of_their_own() -> None:
    # Measured: 0.52 of the time. One mask serves all lanes of channels, and nothing is spilled.
    written = "tiles along ch, taps written out"
    tall, narrow = _window("NHWC", 1, written, ((3, 64), 32), ((1, 64), 1))
    assert tall > narrow + 0.3


def test_rows_that_are_tested_one_by_one_are_slow() -> None:
    # Measured: 2.7 times as long. Both 6 and 32 do not divide 56, 4 does, 64 is all of it.
    root = "tiles along x, taps written out, producers at root"
    even, cut = _window("NCHW", 1, root, ((4, 64), 8), ((6, 32), 4))
    assert even > cut + 0.8
