"""The benchmark of PyTorch models compares them, and says where they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from benchmarks import torch_models


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_model_is_compared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ["mlp", "--seconds", "0", "--others", "backend", "--threads", "1", "--batch", "2"]
    asked = ("mlp", 1, 2, 0.0, ["backend"], tmp_path)
    row = torch_models.measured(*asked)

    def measured(*arguments: Any) -> dict[str, Any]:
        assert arguments == asked
        return row

    monkeypatch.setattr(torch_models, "measured", measured)
    words += ["--saved", str(tmp_path)]
    torch_models.main([*words, "--tolerance", "1e-4"])
    said = capsys.readouterr().out
    assert said.startswith("model mlp, ")
    assert "kernels 3, fallbacks 0, " in said
    assert "worst_difference " in said
    assert "backend_s " in said
    with pytest.raises(SystemExit, match="mlp differs by "):
        torch_models.main([*words, "--tolerance", "0"])
