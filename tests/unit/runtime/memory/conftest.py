"""A simulated device under its own code, which is verified after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loopwright.testing.simulated_device import SimulatedDevice


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    with SimulatedDevice(memory_limit=1 << 20) as simulated:
        yield simulated
