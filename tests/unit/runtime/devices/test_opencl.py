"""OpenCL devices: memory, streams, events and programs, wherever a platform is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from loopwright.errors import ArgumentError, OutOfMemoryError, RunError, TargetError
from loopwright.extras import install
from loopwright.runtime import opencl
from loopwright.runtime.caches import ProgramCache
from loopwright.runtime.devices import opencl as opencl_driver
from loopwright.runtime.devices import opencl as opencl_program
from loopwright.runtime.devices.interface import HOST, DeviceAPI, Memory

TWICE = b"""
__kernel void twice(__global const float *a, __global float *b, long n) {
  int i = get_global_id(0);
  if (i < n) b[i] = 2 * a[i];
}
"""


def host(a: npt.NDArray[np.float32]) -> Memory:
    return Memory(HOST, 0, int(a.ctypes.data), a.nbytes, owner=a)


@pytest.fixture(scope="module")
def api() -> DeviceAPI:
    if not opencl().exist:
        pytest.skip(opencl().why_absent())
    return opencl().api


def test_attributes(api: DeviceAPI) -> None:
    device = opencl()
    assert device.device_name
    assert (device.max_threads_per_block or 0) >= 64
    assert (device.max_shared_memory_per_block or 0) >= 16384
    assert device.max_thread_dimensions is not None
    assert len(device.max_thread_dimensions) == 3
    assert device.total_memory > 1 << 20
    assert str(device.compute_version)[0].isdigit()
    assert device.attribute("preferred_vector_width_float")
    assert device.attribute("no_such_thing") is None


def test_a_kernel_runs_on_copies_and_parts(api: DeviceAPI) -> None:
    a, b = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
    there, result = api.allocate(0, a.nbytes), api.allocate(0, 2 * a.nbytes)
    program = api.load(0, TWICE, ["twice"])
    api.copy(host(a), 0, there, 0, a.nbytes)
    api.fill(result, 0)
    part = result.part(4096, 4096)
    first = api.record_event(0)
    program.launch("twice", (8, 1, 1), (128, 1, 1), [there, part, 1000])
    then = api.record_event(0)
    assert api.elapsed(first, then) > 0
    api.copy(result, 4096, host(b), 0, b.nbytes)
    api.synchronize(0)
    np.testing.assert_array_equal(b[:1000], 2 * a[:1000])
    assert not b[1000:].any()
    api.copy(result, 4000, host(b), 0, 400)
    api.synchronize(0)
    assert b[:24].tolist() == [0] * 24
    assert b[24:100].tolist() == [2.0 * k for k in range(76)]
    with pytest.raises(RunError, match=r"twice has blocks of \d+ threads, and the device takes"):
        program.launch("twice", (1, 1, 1), (1 << 20, 1, 1), [there, result, 4])


def test_one_stream_waits_for_another(api: DeviceAPI) -> None:
    a, b = np.ones(1 << 16, np.float32), np.zeros(1 << 16, np.float32)
    memory = api.allocate(0, a.nbytes)
    first, then = api.create_stream(0), api.create_stream(0)
    api.copy(host(a), 0, memory, 0, a.nbytes, first)
    api.sync_stream_from_to(0, first, then)
    api.copy(memory, 0, host(b), 0, b.nbytes, then)
    api.synchronize(0, then)
    assert b.all()
    api.set_stream(0, first)
    assert api.current_stream(0) is first
    api.free_stream(first)
    assert api.current_stream(0).handle == 0
    api.free_stream(then)


def test_what_is_refused(api: DeviceAPI) -> None:
    with pytest.raises(OutOfMemoryError, match="one buffer has at most"):
        api.allocate(0, 1 << 60)
    with pytest.raises(ArgumentError, match="the number is negative"):
        api.allocate(0, -1)
    with pytest.raises(ArgumentError, match="no memory of scope 'texture'"):
        api.allocate(0, 16, scope="texture")
    with pytest.raises(RunError, match=r"its compiler refused the code: .*error"):
        api.load(0, b"__kernel void f(", ["f"])
    with pytest.raises(TargetError, match="takes source text"):
        api.load(0, b"\xff\xfe\x00", ["f"])
    memory = api.allocate(0, 16)
    with pytest.raises(ArgumentError, match="a part of other memory"):
        api.free(memory.part(4, 4))
    with pytest.raises(ArgumentError, match="bytes 8 to 24 are outside the source"):
        api.copy(memory, 8, memory, 0, 16)
    api.free(memory)


def test_binaries_are_kept_by_content(api: DeviceAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ProgramCache()
    monkeypatch.setattr(opencl_program, "program_cache", lambda: cache)
    context = opencl_program.OpenCLContext(opencl_driver.found_devices()[0][0], 0)
    compiled: list[str] = []
    compile_now = context._compile

    def counted(source: str) -> object:
        compiled.append(source)
        return compile_now(source)

    monkeypatch.setattr(context, "_compile", counted)
    for _ in range(2):
        context.build(TWICE.decode())
    assert len(compiled) == 1
    context.build(TWICE.decode().replace("2 *", "3 *"))
    assert len(compiled) == 2
    keys: list[str] = []
    monkeypatch.setattr(cache, "get", lambda key: keys.append(key) or b"what no driver takes")
    context.build(TWICE.decode())
    assert len(compiled) == 3
    monkeypatch.undo()
    assert len(cache.get(keys[0]) or b"") > 100


def test_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ImportError("No module named 'pyopencl'")

    monkeypatch.setattr(opencl_driver, "package", missing)
    devices, why = opencl_driver.found_devices.__wrapped__()
    assert not devices
    assert f"install it: {install('opencl')}" in why
