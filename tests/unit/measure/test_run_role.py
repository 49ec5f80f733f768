"""What a runner says of its processor after an error: it goes on, or it is to be replaced."""

from __future__ import annotations

import pytest

from loopwright.errors import DeviceLostError, OutOfMemoryError, RunError
from loopwright.measure.workers.protocol import DataRequest, Done, Failed, RaceRequest
from loopwright.measure.workers.run_role import RunRole
from loopwright.records import ErrorKind
from tests.unit.measure import kernels


class Ailing:
    """A processor that refuses to load what it is given, and may fail when it is probed."""

    def __init__(self, role: RunRole, error: Exception, probe: Exception | None) -> None:
        self._host, self._error, self._probe = role._host, error, probe
        self.device_type = "cpu"
        self.probes = 0

    def load(self, artifact: object, memory: object) -> None:
        raise self._error

    def probe(self) -> None:
        self.probes += 1
        if self._probe is not None:
            raise self._probe


def loaded(error: Exception, probe: Exception | None = None) -> tuple[object, Ailing]:
    """What a role answers to a candidate that its processor refuses."""
    role = RunRole()
    artifact = kernels.built(kernels.GOOD)
    assert isinstance(role.answer(DataRequest(manifest=artifact.manifest, seed=0)), Done)
    ailing = Ailing(role, error, probe)
    role._host = ailing  # type: ignore[assignment]
    request = RaceRequest(
        slot=0, manifest=artifact.manifest, drop=None, flush=False, payload=artifact.objects
    )
    return role.answer(request), ailing


def test_after_an_error_the_processor_is_probed_and_the_process_stays_where_it_is_well() -> None:
    error = RunError("opencl(0): too many threads")
    with pytest.raises(RunError, match="too many threads") as found:
        loaded(error)
    assert found.value is error


def test_a_processor_that_fails_its_probe_has_its_process_replaced() -> None:
    reply, ailing = loaded(RunError("launching main failed"), RunError("opencl(0) is gone"))
    assert ailing.probes == 1
    assert reply == Failed(
        kind=ErrorKind.RUN_ERROR,
        text="launching main failed; after it opencl(0) is gone; the runner is started again",
        tainted=True,
    )


def test_a_lost_device_is_not_asked_again() -> None:
    reply, ailing = loaded(DeviceLostError("cuda(0): ILLEGAL_ADDRESS"))
    assert ailing.probes == 0
    assert isinstance(reply, Failed)
    assert reply.tainted
    assert reply.text == "cuda(0): ILLEGAL_ADDRESS; the runner is started again"


def test_a_device_without_memory_is_well() -> None:
    with pytest.raises(OutOfMemoryError, match="no room"):
        loaded(OutOfMemoryError("no room"))
