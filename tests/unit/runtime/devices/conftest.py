"""A GPU that is none, registered as CUDA's devices for a test."""

from __future__ import annotations

import pytest

from loopwright.runtime.devices import interface as registry
from loopwright.runtime.devices.cuda import CUDA, CudaAPI
from tests.unit.runtime.devices.fake_cuda import FakeDriver


@pytest.fixture
def fake_gpus(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    driver = FakeDriver(devices=2)
    made = CudaAPI(driver, devices=2)
    monkeypatch.setattr(registry, "_makers", {**registry._makers, CUDA: lambda: made})
    monkeypatch.setattr(registry, "_made", {k: v for k, v in registry._made.items() if k != CUDA})
    return driver
