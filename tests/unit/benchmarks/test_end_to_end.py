"""The comparison of whole models: outputs before times, files that are kept, errors in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.end_to_end import __main__, timing
from benchmarks.end_to_end.files import Subject, subjects
from benchmarks.end_to_end.sides import OTHERS, OURS, TUNED, UNTUNED, Side
from loopwright.errors import UsageError


def side(name: str, output: float) -> Side:
    return Side(name, lambda: None, lambda: np.array([1.0, output]), 0.5, {})


def run(folder: Path, outputs: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What timing sides gives that take no time, and whose outputs are these."""
    monkeypatch.setattr(timing, "side_of", lambda name, *_: side(name, outputs[name]))
    monkeypatch.setattr(timing, "_REST_S", 0)
    return timing.timed(Subject(folder, "mlp", 1), list(outputs), 2, 0)


def test_a_side_is_wrong_that_differs_from_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = {UNTUNED: 2.0, "ONNX Runtime": 2.1, TUNED: float("nan"), "eager": 2.0}
    row = run(tmp_path, outputs, monkeypatch)
    assert row["wrong"] == ["ONNX Runtime", TUNED]
    assert row["differences"][UNTUNED] == 0


def test_ratios_are_those_to_the_fastest_other_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {UNTUNED: 2.0, "ONNX Runtime": 3.0, "eager": 4.0}
    monkeypatch.setattr(timing, "_seconds", lambda side: seconds[side.name])
    row = run(tmp_path, dict.fromkeys(seconds, 2.0), monkeypatch)
    assert row["best_other"] == "ONNX Runtime"
    assert row["ratios"] == {UNTUNED: pytest.approx([1.5, 1.5, 1.5])}
    assert row["ms"]["eager"] == [4000.0] * 8


def test_what_is_tuned_is_compared_where_there_is_a_log() -> None:
    assert timing.default_sides(tuned=True) == [*OURS, *OTHERS]
    assert not any(name.startswith("tuned") for name in timing.default_sides(tuned=False))


def test_a_model_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="did you mean 'resnet18'"):
        subjects(tmp_path, ["resnet81"], 1)
    assert __main__.main(["time", str(tmp_path), "resnet81"]) == 1
    assert "did you mean 'resnet18'" in capsys.readouterr().err


def test_what_was_timed_is_kept_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = {UNTUNED: 2.0, "eager": 2.5}
    row = run(tmp_path, outputs, monkeypatch)
    row["ratios"] = {UNTUNED: [1.25, 1.1, 1.4]}
    monkeypatch.setattr(__main__, "timed", lambda *_: row)
    monkeypatch.setattr(Subject, "export", lambda self: None)
    given = ["time", str(tmp_path), "mlp", "--sides", f"{UNTUNED},eager"]
    assert __main__.main(given) == 1  # since it is wrong
    assert "WRONG: untuned" in capsys.readouterr().out
    assert json.loads((tmp_path / "mlp_1_2_threads.json").read_text()) == row
    assert __main__.main(given) == 0, "it was timed before"
    assert __main__.main(["report", str(tmp_path)]) == 0
    assert "untuned: geomean 1.25 of 1, least 1.25" in capsys.readouterr().out
