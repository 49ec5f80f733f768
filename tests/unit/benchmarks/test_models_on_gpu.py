"""The benchmark of models on a GPU, on an OpenCL device of the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import loopwright as lw
from benchmarks import models_on_gpu


@pytest.mark.slow
@pytest.mark.skipif(not lw.opencl().exist, reason="no OpenCL device")
def test_a_small_model_is_compared_tuned_and_timed(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    found = tmp_path / "found.json"
    arguments = ["--target", "opencl", "--small", "--trials", "8", "--minutes", "4"]
    assert models_on_gpu.main([*arguments, "--rounds", "3", "--json", str(found)]) == 0
    told = json.loads(found.read_text())
    assert set(told["times"]) == {"loopwright", "loopwright, tuned"}
    assert told["trials"] >= 8
    assert told["loopwright, tuned, difference"] < 1e-4
    copied = told["loopwright, tuned, bytes copied"]
    assert copied["to the device"] == copied["to the host"] == 0
