"""The benchmark of PyTorch models compares them, and says where they differ."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from benchmarks import torch_models


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_model_is_compared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["mlp", "--seconds", "0", "--others", "backend", "--threads", "1"]
    row = torch_models.measured("mlp", 1, 1, 0.0, ["backend"], None)
    monkeypatch.setattr(torch_models, "measured", lambda *_: row)
    torch_models.main([*words, "--tolerance", "1e-4"])
    said = capsys.readouterr().out
    assert said.startswith("model mlp, ")
    assert "kernels 3, fallbacks 0, " in said
    assert "worst_difference " in said
    assert "backend_s " in said
    with pytest.raises(SystemExit, match="mlp differs by "):
        torch_models.main([*words, "--tolerance", "0"])
