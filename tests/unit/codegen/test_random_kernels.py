"""Random kernels: on an OpenCL device they compute what NumPy does, and NVRTC compiles them.

`random_case` with other seeds is the way to look for more (`COUNT` of them take about a second
each on PoCL).
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator

import pytest

from loopwright.codegen.gpu import nvrtc
from loopwright.driver.backends import LoweredProgram, compile_program
from loopwright.errors import LowerError, ScheduleError
from loopwright.runtime.artifacts.device_code import DeviceCode
from loopwright.target import Target
from loopwright.te.dag import arg_id, read_arg_id
from loopwright.testing.differential import Checker, Prepared, case_of, difference
from loopwright.testing.random.kernel import random_kernel
from loopwright.testing.random.program import random_program
from loopwright.testing.random.values import Draw
from tests.opencl_runner import run_opencl, why_not

#: What random schedules may exceed, since nothing is said of how fast they are.
WIDE = "-max_vthread=1000 -max_vector_bytes=512 -max_threads_per_block=1024"
OPENCL = f"opencl {WIDE} -max_shared_memory_per_block=262144"
COUNT = 12


def random_case(checker: Checker, seed: int) -> Prepared | None:
    """A random program with a random kernel schedule; None where that is refused."""
    d = Draw.random(random.Random(seed))
    program = random_program(d)
    try:
        return checker.prepare(case_of(program, random_kernel(d, program.dag).trace))
    except ScheduleError:
        return None
    except LowerError as error:
        if "threads" in str(error):  # a rule that needs the lowered program
            return None
        raise


def compiled(p: Prepared, target: str) -> bytes | None:
    """Its code; None where a block would have too many threads."""
    try:
        return compile_program(LoweredProgram(p.f, p.s, p.case.arg_ids), Target(target)).objects
    except LowerError as error:
        if "gpu limits" in str(error):
            return None
        raise


def check_on_device(p: Prepared, objects: bytes) -> None:
    """Run it, and compare with NumPy."""
    case = p.case
    got = run_opencl(objects, case.arrays)
    for k, i in enumerate(case.arg_ids):
        if not p.f.outputs[k]:
            assert case.arrays[k].tobytes() == got[k].tobytes(), f"{p.f.params[k].name} changed"
            continue
        want = p.want[arg_id(*read_arg_id(i))]
        text = difference(want, got[k], case.infos[k], case.rtol)
        assert not text, f"{text}\n{p.f}\n{case.report()}"


def cases(first: int) -> Iterator[Prepared]:
    """Random kernels from a seed on."""
    checker = Checker()
    try:
        for seed in range(first, first + COUNT):
            p = random_case(checker, seed)
            if p is not None:
                yield p
    finally:
        checker.close()


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "an OpenCL device is here")
def test_kernels_compute_on_a_device_what_numpy_does() -> None:
    ran = 0
    for p in cases(8):
        objects = compiled(p, OPENCL)
        if objects is not None:
            check_on_device(p, objects)
            ran += 1
    assert ran >= COUNT // 2


@pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason=f"NVRTC is not here: {nvrtc.INSTALL}"
)
def test_kernels_become_machine_code() -> None:
    made = 0
    for p in cases(100):
        objects = compiled(p, f"cuda {WIDE}")
        if objects is not None:
            code = DeviceCode.from_bytes(objects, len(p.f.params))
            assert set(code.resources) == set(code.kernels)
            made += 1
    assert made >= COUNT // 2
