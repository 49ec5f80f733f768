"""What makes training short, where a test is of something else."""

from __future__ import annotations

import pytest


@pytest.fixture
def few_trees(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learned models of few trees, for tests of what a tuner does with one.

    Contracts have all trees: they compare runs with those of fixtures and of another process.
    """
    if request.cls is not None:
        return
    monkeypatch.setattr("loopwright.tuner.model.xgb_model._FEW_ROUNDS", 8)
    monkeypatch.setattr("loopwright.tuner.model.xgb_model.ROUNDS", 24)
