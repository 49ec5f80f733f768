"""Runs `DeviceCode` for OpenCL through plain pyopencl, so that tests of code need no runtime."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from loopwright.runtime.artifacts.device_code import DeviceCode
from loopwright.runtime.artifacts.manifest import evaluate

Array = np.ndarray[Any, Any]


@lru_cache(maxsize=1)
def why_not() -> str:
    """Why no OpenCL device can be used here; empty where one can."""
    try:
        import pyopencl as cl
    except ImportError:
        return "needs pyopencl: pip install pyopencl"
    try:
        found = any(p.get_devices() for p in cl.get_platforms())
    except cl.Error as error:
        return f"no OpenCL platform ({error}): apt-get install pocl-opencl-icd ocl-icd-libopencl1"
    return "" if found else "no OpenCL device"


@lru_cache(maxsize=1)
def _queue() -> Any:
    import pyopencl as cl

    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    devices = [d for p in cl.get_platforms() for d in p.get_devices()]
    context = cl.Context(devices[:1])
    return cl.CommandQueue(context)


def run_opencl(
    objects: bytes, arrays: Sequence[Array], sizes: Mapping[str, int] | None = None
) -> list[Array]:
    """Run a function on copies of arrays, and return them as it leaves them.

    Args:
        objects: the code as an artifact holds it.
        arrays: one for each parameter.
        sizes: values of size variables by name, in the function's order.
    """
    import pyopencl as cl

    values = dict(sizes or {})
    code = DeviceCode.from_bytes(objects, len(arrays), tuple(values))
    queue = _queue()
    flags = cl.mem_flags.READ_WRITE
    given = [np.array(a, order="C") for a in arrays]
    parameters = [
        cl.Buffer(queue.context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=a) for a in given
    ]
    temporaries = [cl.Buffer(queue.context, flags, size=evaluate(n, values)) for n in code.buffers]
    numbers = [np.int64(v) for v in values.values()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = cl.Program(queue.context, code.image.decode()).build(cache_dir=False)
    sources = {"parameter": parameters, "buffer": temporaries, "size": numbers}
    for launch in code.launches:
        block = tuple(evaluate(n, values) for n in launch.block)
        grid = tuple(evaluate(n, values) for n in launch.grid)
        kernel = cl.Kernel(program, launch.kernel)
        kernel.set_args(*(sources[kind][k] for kind, k in launch.arguments))
        work_items = tuple(b * g for b, g in zip(block, grid, strict=True))
        cl.enqueue_nd_range_kernel(queue, kernel, work_items, block)
    out = []
    for a, memory in zip(given, parameters, strict=True):
        back = np.empty_like(a)
        cl.enqueue_copy(queue, back, memory)
        out.append(back)
    queue.finish()
    return out
