"""The benchmark of whole models ends with an error where outputs differ."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import onnx_models


@pytest.mark.parametrize("difference", [0.5, float("nan")])
def test_outputs_that_differ_are_an_error(
    difference: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"model": "small", "worst_difference": difference}

    def measured(*_: Any) -> dict[str, Any]:
        return row

    monkeypatch.setattr(onnx_models, "measured", measured)
    onnx_models.main(["small"])
    with pytest.raises(SystemExit, match="small differs by"):
        onnx_models.main(["small", "--tolerance", "1e-4"])
    row["worst_difference"] = 1e-6
    onnx_models.main(["small", "--tolerance", "1e-4"])


def test_what_a_last_softmax_reads_is_compared() -> None:
    """Behind it nearly all numbers are 0, whatever a model computes."""
    onnx = pytest.importorskip("onnx", reason='needs onnx: pip install "loopwright[onnx]"')
    model = onnx_models.light("squeezenet")
    assert "Softmax" not in {n.op_type for n in model.graph.node}
    assert model.graph.output[0].name == model.graph.node[-1].output[0]
    onnx.checker.check_model(model)
