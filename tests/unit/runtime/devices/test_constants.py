"""Constants of functions of kernels: both parts are launched, or one with constants given."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import ArgumentError, UsageError
from loopwright.runtime import DeviceFunction, Module, PreparedCall
from loopwright.runtime.artifacts.device_code import CallPlan, DeviceCode
from tests.pocl_kernels import needs_pocl

N = 64
NVRTC = importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings")


def scaled(target: str) -> Module:
    """``B = A + 2 W``, both stages in 16 threads a block."""
    a, w = te.placeholder((N,), name="A"), te.placeholder((N,), name="W", constant=True)
    v = te.compute((N,), lambda i: w[i] * 2, name="V")
    b = te.compute((N,), lambda i: a[i] + v[i], name="B")
    s = lw.create_schedule(b.op)
    for t in (v, b):
        block, thread = s[t].split(s[t].op.axis[0], factor=16)
        s[t].bind(block, te.thread_axis("blockIdx.x"))
        s[t].bind(thread, te.thread_axis("threadIdx.x"))
    return lw.build(s, [a, w, b], target)


@needs_pocl
def test_kernels_run_whole_and_in_two_parts() -> None:
    f = scaled("opencl")
    a, w = np.arange(N, dtype="float32"), np.full(N, 3, "float32")
    on = {k: lw.nd.array(x, device="opencl") for k, x in {"a": a, "w": w, "b": a * 0}.items()}
    f(on["a"], on["w"], on["b"])
    np.testing.assert_array_equal(on["b"].numpy(), a + 6)
    for given in (w, on["w"]):  # of the host, and of the device
        g = f.with_constants(given)
        on["b"].copyfrom(np.zeros(N, "float32"))
        g(on["a"], on["b"])
        np.testing.assert_array_equal(on["b"].numpy(), a + 6)
        assert g.nbytes == 4 * N
    on["w"].copyfrom(np.zeros(N, "float32"))
    g(on["a"], on["b"])
    np.testing.assert_array_equal(on["b"].numpy(), a + 6)
    parts = f.parts()
    assert parts is not None
    whole = f["main"]
    assert isinstance(whole, DeviceFunction)
    api, device = lw.opencl(0).api, lw.opencl(0)
    buffers = [api.allocate(device.device_id, n) for n in whole.buffer_bytes]
    for memory in (None, buffers):
        on["b"].copyfrom(np.zeros(N, "float32"))
        call = parts.bind([on["a"], on["w"], on["b"]], buffers=memory)
        assert isinstance(call, PreparedCall)
        call.run()
        np.testing.assert_array_equal(on["b"].numpy(), a)
        assert lw.runtime.time_call(call, 2) > 0
    with pytest.raises(ArgumentError, match=r"argument 1 \('W'\)"):
        f.with_constants(w[:3])


@pytest.mark.skipif(not NVRTC, reason="needs NVRTC")
def test_cubins_hold_the_plans_of_both_parts() -> None:
    artifact = scaled("cuda").artifact
    code = DeviceCode.of(artifact.contents, artifact.objects)
    assert code.kernels == ["main_prepare_kernel0", "main_prepared_kernel0"]
    assert set(code.parts) == {"main_prepare", "main_prepared"}
    assert [x.kernel for x in code.plan("main_prepare").launches] == ["main_prepare_kernel0"]
    assert code.plan("main") == CallPlan(code.launches, code.buffers)
    assert code.buffers == (4 * N,)
    again = DeviceCode.from_bytes(code.to_bytes(), 3, (), {"main_prepare": 2, "main_prepared": 3})
    assert again.parts == code.parts
    with pytest.raises(UsageError, match="parts"):
        DeviceCode.from_bytes(code.to_bytes(), 3)
    with pytest.raises(UsageError, match="an argument of main_prepared_kernel0"):
        DeviceCode.from_bytes(code.to_bytes(), 3, (), {"main_prepare": 2, "main_prepared": 2})
