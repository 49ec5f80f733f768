"""The calls of PyTorch, CuPy and Triton that compute a case, and how they are timed.

Times are taken as ours are: by events around one call, the second-level cache swept before.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu.cases import Case, Sizes
from benchmarks.gpu.data import Array

#: Calls before the first time is taken; libraries choose their kernels in them.
_WARM_UP = 3
#: A sweep of this many times the second-level cache leaves nothing in it; on a GPU it is at least
#: so long that the host has meanwhile put the call behind it.
SWEEP, SWEEP_BYTES = 2, 512 << 20


@dataclass(frozen=True)
class Prepared:
    """A case as a library computes it.

    Attributes:
        device: name of the device.
        answer: of the first call, on the host.
        note: what else is to be said of it.
        sample: takes the seconds of one call.
    """

    device: str
    answer: Array
    note: str
    sample: Callable[[], float]


def library() -> str:
    """What runs cuBLAS and cuDNN here: "torch", "cupy", or nothing."""
    return next((x for x in ("torch", "cupy") if importlib.util.find_spec(x)), "")


def has_triton() -> bool:
    """Whether Triton, and PyTorch that it takes arrays from, can be imported."""
    return all(importlib.util.find_spec(x) is not None for x in ("triton", "torch"))


def prepare(which: str, case: Case, sizes: Sizes, given: Sequence[Array]) -> Prepared:
    """Make the call of a library.

    Args:
        which: "torch", "cupy" or "triton".
        case: what is computed.
        sizes: arguments of its template.
        given: the inputs.

    Raises:
        LookupError: the library has no call for the case.
    """
    match which:
        case "cupy":
            return _with_cupy(case, given)
        case "triton":
            from benchmarks.gpu import triton_kernels

            return _with_torch(case, given, lambda torch, a: triton_kernels.call(torch, case, a))
    return _with_torch(case, given, lambda torch, a: _torch_call(torch, case, sizes, a))


# ---------------------------------------------------------------- PyTorch


def _with_torch(
    case: Case, given: Sequence[Array], make: Callable[[Any, list[Any]], tuple[Any, str]]
) -> Prepared:
    """A call on tensors of PyTorch; TF32 is off but where the case is about it."""
    import torch

    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    torch.backends.cudnn.allow_tf32 = case.tf32
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cudnn.benchmark = True
    arrays = [torch.from_numpy(a).cuda() for a in given]
    call, note = make(torch, arrays)
    for _ in range(_WARM_UP):
        answer = call()
    torch.cuda.synchronize()
    sweep = torch.empty(SWEEP_BYTES, dtype=torch.int8, device="cuda")

    def sample() -> float:
        first, then = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        sweep.zero_()
        first.record()
        call()
        then.record()
        then.synchronize()
        return float(first.elapsed_time(then)) * 1e-3

    name = str(torch.cuda.get_device_name())
    return Prepared(name, np.asarray(answer.cpu().numpy()), note, sample)


def _torch_call(
    torch: Any, case: Case, sizes: Sizes, t: Sequence[Any]
) -> tuple[Callable[[], Any], str]:
    """The fastest of PyTorch's public functions, and what is to be said of it."""
    functions = torch.nn.functional
    match case.template:
        case "matmul_tensor_core" if case.dtype == "float16":
            return _torch_half(torch, t)
        case "matmul" | "batch_matmul" | "matmul_tensor_core":
            return lambda: torch.matmul(t[0], t[1]), ""
        case "conv2d":
            return lambda: functions.conv2d(t[0], t[1], None, sizes[7], sizes[8]), ""
        case "softmax":
            return lambda: functions.softmax(t[0], -1), ""
        case "layer_norm":
            return lambda: functions.layer_norm(t[0], t[0].shape[1:], t[1], t[2]), ""
    raise LookupError(f"no call of PyTorch is known for {case.name}")


def _torch_half(torch: Any, t: Sequence[Any]) -> tuple[Callable[[], Any], str]:
    """A product of halves whose result is float32, where this PyTorch has one."""
    try:
        torch.mm(t[0], t[1], out_dtype=torch.float32)
    except (TypeError, RuntimeError):
        return lambda: torch.matmul(t[0], t[1]), "result in fp16"
    return lambda: torch.mm(t[0], t[1], out_dtype=torch.float32), "result in fp32"


# ---------------------------------------------------------------- CuPy


def _with_cupy(case: Case, given: Sequence[Array]) -> Prepared:
    """Products by cuBLAS; CuPy has no call of cuDNN for the other cases."""
    import cupy

    if case.template not in ("matmul", "batch_matmul", "matmul_tensor_core"):
        raise LookupError(f"no call of CuPy is known for {case.name}; install PyTorch")
    arrays = [cupy.asarray(a) for a in given]
    for _ in range(_WARM_UP):
        answer = cupy.matmul(*arrays)
    sweep = cupy.empty(SWEEP_BYTES, cupy.int8)

    def sample() -> float:
        first, then = cupy.cuda.Event(), cupy.cuda.Event()
        sweep.fill(0)
        first.record()
        cupy.matmul(*arrays)
        then.record()
        then.synchronize()
        return float(cupy.cuda.get_elapsed_time(first, then)) * 1e-3

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    note = "result in fp16" if case.dtype == "float16" else ""
    return Prepared(properties["name"].decode(), cupy.asnumpy(answer), note, sample)


def environment(which: str, case: Case) -> dict[str, str | None]:
    """Variables of the process of a library: CuPy reads there whether TF32 is allowed."""
    return {"CUPY_TF32": "1" if case.tf32 else "0"} if which == "cupy" else {}
