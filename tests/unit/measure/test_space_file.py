from __future__ import annotations

import io
import json

import numpy as np
import pytest

from loopwright.errors import RecordError
from loopwright.measure import ErrorKind, MeasuredSpace, MeasureError, load_space
from loopwright.measure.space_file import FORMAT, Point

SPACE = MeasuredSpace(
    task="key",
    op="demo",
    args=[8, [1, 2], "float32"],
    target={"kind": "llvm"},
    space="abc",
    points={
        7: Point((0.5, 0.25, 0.375)),
        2: Point((8.0,), dropped=True),
        1 << 40: Point(error=MeasureError(ErrorKind.COMPILE, "no: ünicode")),
        3: Point(error=MeasureError(ErrorKind.COMPILE, "another")),
        5: Point((0.3125, 0.4375)),
    },
    finals={5: (0.75, 0.5, 0.625)},
    provenance={"date": "2026-01-02", "samples": 6},
)


def test_a_space_comes_back_as_it_was(tmp_path):
    SPACE.save(tmp_path / "space.npz")
    assert load_space(tmp_path / "space.npz") == SPACE


def test_seconds_are_medians_and_finals_count_more_than_samples():
    assert SPACE.seconds(7) == 0.375
    assert SPACE.seconds(5) == 0.625
    assert SPACE.seconds(3) is None
    assert SPACE.ranking() == [(0.375, 7), (0.625, 5), (8.0, 2)]


def test_single_precision_is_enough_for_times(tmp_path):
    times = tuple(np.random.default_rng(0).uniform(1e-7, 10, 50).tolist())
    space = MeasuredSpace("k", "o", [], {}, "s", {0: Point(times)})
    space.save(tmp_path / "space.npz")
    assert load_space(tmp_path / "space.npz").points[0].times == pytest.approx(times, rel=1e-7)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"there is no measured space .*gone\.npz"):
        load_space(tmp_path / "gone.npz")


def damaged(path, **changed):
    SPACE.save(path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(path, **(arrays | changed))


def header(**changed):
    text = json.dumps({"format": FORMAT, "v": 1, **changed}).encode()
    return np.frombuffer(text, np.uint8)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"header": np.zeros(3, np.uint8)}, "no measured space"),
        ({"header": header(format="other")}, "'other' version 1"),
        ({"header": header(v=2)}, "version 2, this loopwright reads .* version 1"),
        ({"header": header()}, "errors"),
        ({"times": np.zeros(2, np.float32)}, "2 samples are there, 6 are announced"),
        ({"index": np.zeros(2, np.int64)}, "shorter|longer"),
    ],
)
def test_damage_is_an_error(tmp_path, changed, why):
    damaged(tmp_path / "space.npz", **changed)
    with pytest.raises(RecordError, match=why):
        load_space(tmp_path / "space.npz")


@pytest.mark.parametrize("data", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_other_files_are_refused(tmp_path, data):
    (tmp_path / "space.npz").write_bytes(data)
    with pytest.raises(RecordError, match="damaged"):
        load_space(tmp_path / "space.npz")


class Bomb:
    def __reduce__(self):
        return (io.open, ("/nonexistent/unpickled", "w"))


def test_nothing_is_unpickled(tmp_path):
    damaged(tmp_path / "space.npz", index=np.array([Bomb()], object))
    with pytest.raises(RecordError, match="allow_pickle=False"):
        load_space(tmp_path / "space.npz")
