"""Processes that the tests of this folder share: starting builders and a runner takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loopwright.measure import LocalRunner, Measurer
from loopwright.measure.runner import Runner
from loopwright.measure.workers.process import wait_any
from tests.unit.measure.programs import OPTION, MatmulTask


@pytest.fixture(scope="module", autouse=True)
def _quick_measuring() -> None:
    """Here measuring itself is tested."""


@pytest.fixture(scope="session")
def task() -> MatmulTask:
    return MatmulTask()


@pytest.fixture(scope="session")
def measurer(task: MatmulTask) -> Iterator[Measurer]:
    """A measurer of `task`; measurers of other tasks use its processes by ``beside=measurer``.

    A test may kill them: they are started again when they are needed.
    """
    with Measurer(task, OPTION) as m:
        yield m


@pytest.fixture(scope="session")
def session() -> Iterator[Runner]:
    """A runner process, without builders."""
    made = Runner(LocalRunner(timeout=5.0, memory_bytes=1 << 30), wait_any)
    yield made
    made.worker.close()
