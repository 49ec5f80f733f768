from __future__ import annotations

from types import SimpleNamespace

import pytest

from loopwright.errors import RecordError, UsageError
from loopwright.measure import (
    ErrorKind,
    MeasuredSpace,
    MeasureError,
    MeasureInput,
    PlayoffPlan,
    Replay,
)
from loopwright.measure.space_file import Point

TASK = SimpleNamespace(key="key", alias="name")
SPACE = MeasuredSpace(
    task="key",
    op="demo",
    args=[],
    target={},
    space="abc",
    points={
        0: Point((4.0, 4.5, 4.25)),
        1: Point((1.0, 1.5, 1.25)),
        2: Point((30.0,), dropped=True),
        3: Point(error=MeasureError(ErrorKind.COMPILE, "no")),
        4: Point((2.0, 2.5)),
        5: Point((2.25, 3.0)),
    },
    finals={4: (1.75, 1.5, 1.0), 1: (1.125, 1.25, 1.0)},
)


def config(index, space="abc"):
    return SimpleNamespace(index=index, space=SimpleNamespace(space_hash=space))


def measure(replay, indices, incumbent=None):
    inputs = [MeasureInput(TASK, config(i), i) for i in indices]
    return list(replay.measure(inputs, incumbent))


def test_recorded_samples_come_back_in_order():
    results = measure(Replay(SPACE), [4, 1])
    assert [r.times for r in results] == [(2.0, 2.5), (1.0, 1.5, 1.25)]
    assert all(r.usable for r in results)


def test_a_recorded_failure_is_one():
    (result,) = measure(Replay(SPACE), [3])
    assert result.error == MeasureError(ErrorKind.COMPILE, "no")
    assert result.times == ()


def test_racing_drops_what_its_first_sample_puts_beyond_twice_the_incumbent():
    results = measure(Replay(SPACE), [5, 0], incumbent=1.125)
    assert [(r.times, r.dropped) for r in results] == [((2.25, 3.0), False), ((4.0,), True)]


def test_the_incumbent_falls_within_a_batch():
    first, second, third = measure(Replay(SPACE), [0, 1, 0])
    assert (first.dropped, second.dropped, third.dropped) == (False, False, True)


def test_a_slow_one_is_no_better_than_its_one_sample():
    results = measure(Replay(SPACE), [2, 0])
    assert [(r.times, r.dropped) for r in results] == [((30.0,), False), ((4.0, 4.5, 4.25), False)]


def test_without_racing_all_samples_are_given():
    (result,) = measure(Replay(SPACE, racing=False), [0], incumbent=0.125)
    assert (result.times, result.dropped) == ((4.0, 4.5, 4.25), False)


def test_a_playoff_gives_the_interleaved_rounds_and_ranks_by_them():
    order = [config(i) for i in (0, 4, 1, 3)]
    found = Replay(SPACE).playoff(order, PlayoffPlan(config(0)))
    assert [(f.config.index, f.times[:2]) for f in found.finalists] == [
        (1, (1.125, 1.25)),
        (4, (1.75, 1.5)),
        (0, (4.0, 4.5)),
        (3, ()),
    ]
    assert found.winner.config.index == 1
    assert len(found.best) == len(found.default)


def test_a_file_is_played_back(tmp_path):
    SPACE.save(tmp_path / "space.npz")
    with Replay(tmp_path / "space.npz") as replay:
        assert measure(replay, [1])[0].times == (1.0, 1.5, 1.25)
    with pytest.raises(RecordError, match="no measured space"):
        Replay(tmp_path / "missing.npz")


def test_what_was_not_measured_is_refused():
    replay = Replay(SPACE)
    with pytest.raises(UsageError, match="point 9 of demo was never measured"):
        measure(replay, [9])
    with pytest.raises(UsageError, match="point 9"):
        replay.playoff([config(9)], PlayoffPlan())
    with pytest.raises(UsageError, match=r"holds the space abc .* point of xyz"):
        list(replay.measure([MeasureInput(TASK, config(1, "xyz"))]))
    with pytest.raises(UsageError, match="holds key; it was asked for other"):
        list(replay.measure([MeasureInput(SimpleNamespace(key="other", alias="name"), config(1))]))
