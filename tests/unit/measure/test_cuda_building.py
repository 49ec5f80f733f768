"""Builders compile for a GPU that is not here."""

from __future__ import annotations

import pytest

from loopwright.measure import LocalBuilder
from loopwright.measure.building import BuildPool
from loopwright.measure.candidate import Candidate
from loopwright.measure.result import ErrorKind, MeasureError
from loopwright.runtime import Artifact
from loopwright.runtime.artifacts.device_code import DeviceCode
from loopwright.target import Target
from tests.unit.lowering import gpu_programs

pytest.importorskip("cuda.bindings", reason='needs NVRTC: pip install "loopwright[cuda]"')


def test_a_cubin_is_built_and_what_is_too_large_is_refused_with_the_reason() -> None:
    case = gpu_programs.tiled_matmul()
    ids = case.s.arg_ids(case.args)
    fits = Candidate(case.s.dag, case.s.trace_json(), ids, "main")
    small = Target("cuda -arch=sm_90 -max-threads-per-block=1").canonical
    too_large = Candidate(case.s.dag, case.s.trace_json(), ids, "main", target=small)
    pool = BuildPool(LocalBuilder(n_parallel=1, timeout=60), Target("cuda -arch=sm_90").canonical)
    try:
        builds = [pool.add(candidate) for candidate in (fits, too_large)]
        pool.wait(builds)
    finally:
        pool.close()
    built, refused = (build.compiled for build in builds)
    assert isinstance(built, Artifact), built
    code = DeviceCode.from_bytes(built.objects, len(case.args))
    assert (built.kind, code.arch) == ("cuda-cubin", "sm_90")
    assert code.image[:4] == b"\x7fELF"
    assert all(r.registers for r in code.resources.values())
    assert isinstance(refused, MeasureError)
    assert refused.kind == ErrorKind.COMPILE
    assert "max_threads_per_block is 1; bind smaller loops" in refused.text
