"""A process in which a library computes a case, beside the one with our kernels."""

from __future__ import annotations

import sys

from benchmarks.gpu.cases import BY_NAME
from benchmarks.gpu.data import inputs, problem
from benchmarks.gpu.libraries import Prepared, prepare
from benchmarks.gpu.messages import GpuDataRequest, GpuReady, GpuTurn, GpuTurnRequest
from loopwright.errors import InternalError
from loopwright.measure.workers.protocol import Message, Reply
from loopwright.measure.workers.worker import main

#: By which share of the largest value a product of a library may differ from the exact one.
_CLOSE = 1e-3


class LibraryRole:
    """Prepares a case, then times it once a request.

    Args:
        which: "torch", "cupy" or "triton".
    """

    def __init__(self, which: str) -> None:
        self._which = which
        self._prepared: Prepared | None = None

    def answer(self, request: Message) -> Reply:
        """Do what the request says."""
        match request:
            case GpuDataRequest():
                return self._prepare(request)
            case GpuTurnRequest() if self._prepared is not None:
                sample = self._prepared.sample
                return GpuTurn(times=tuple(sample() for _ in range(request.samples)))
        raise InternalError(f"a library was sent a {type(request).__name__}")

    def _prepare(self, request: GpuDataRequest) -> GpuReady:
        case = BY_NAME[request.case]
        sizes = case.sizes(request.small)
        given = inputs(case, sizes, request.seed)
        prepared = self._prepared = prepare(self._which, case, sizes, given)
        # A half cannot hold these sums.
        comparable = prepared.answer.dtype == "float32"
        found = problem(case, given, prepared.answer, _CLOSE) if comparable else ""
        return GpuReady(device=prepared.device, problem=found, note=prepared.note)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], lambda name, which: LibraryRole(which)))
