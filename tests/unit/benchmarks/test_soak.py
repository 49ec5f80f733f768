"""The short form of `benchmarks.soak`: what disturbs a run costs nothing that was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import soak, soak_models, soak_side


@pytest.mark.slow
def test_a_short_soak_loses_nothing(tmp_path: Path) -> None:
    found = soak.run(tmp_path, trials=12, seed=1, every=0.8, beside=0)
    assert found["valid"] >= 12
    assert sum(found["disturbances"].values()) > 0
    assert (found["lost"], found["doubled"]) == (0, 0), found
    assert found["processes left"] == 0
    assert found["files left"] == []
    assert set(found["MB per 1000 trials"]) >= {"run", "builder", "runner"}


def test_every_fault_is_among_the_candidates() -> None:
    faults = {soak_side.fault_of(k) for k in range(soak_side.SPACE)}
    assert faults == {"", *soak_side.SHARES}
    assert soak_side.fault_of(0) == ""


def test_what_is_lost_or_left_is_noticed(tmp_path: Path) -> None:
    one = soak.Soak(tmp_path, seed=0)
    one.log.write_bytes(b"")
    one.announced = {0, 1}
    one.spoiled = {1}
    (one.scratch / "left.tmp").touch()
    found = one.account()
    assert found["lost"] == 1
    assert found["files left"] == [str(one.scratch / "left.tmp")]


@pytest.mark.parametrize(
    ("sizes", "slope"),
    [([7, 7, 7, 7], 0.0), ([0, 0, 0, 1_000_000, 2_000_000, 90_000_000], 10.0), ([5], 0.0)],
)
def test_growth_is_that_of_the_second_half_before_the_playoff(
    sizes: list[int], slope: float
) -> None:
    assert soak.growth([(100 * k, size) for k, size in enumerate(sizes)]) == slope


@pytest.mark.slow  # models are compiled
def test_models_leave_nothing() -> None:
    found = soak_models.run(6, seed=1)
    assert max(found["largest distance"].values()) < 1e-4
    assert found["threads and files more than at half time"] == [0, 0]
