"""PyTorch's time for a workload, measured like NumPy's in a process of its own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from loopwright.cli.numpy_process import NumpyProcess, serve
from loopwright.cli.workload import WorkloadSubject


class TorchSide(NumpyProcess):
    """PyTorch on one workload; a context manager. See `NumpyProcess`."""

    module = "benchmarks.torch_side"
    library = "PyTorch"


def installed() -> bool:
    """Whether PyTorch can be imported."""
    return importlib.util.find_spec("torch") is not None


def _prepare(workload: WorkloadSubject, arrays: list[Any], threads: int) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    operator = workload.operator
    given = dict(zip(operator.params, workload.task.args, strict=True))
    return _call(torch, operator.name, given, [torch.from_numpy(a) for a in arrays])


def _call(torch: Any, op: str, p: dict[str, Any], t: list[Any]) -> Callable[[], Any]:
    """The fastest call of PyTorch's public functions that computes the operator."""
    functions = torch.nn.functional
    match op:
        case "matmul" | "batch_matmul":
            a = t[0].transpose(-1, -2) if p["trans_a"] else t[0]
            b = t[1].transpose(-1, -2) if p["trans_b"] else t[1]
            return lambda: torch.matmul(a, b)
        case "dense" if p["weight"] == "NK":
            return lambda: functions.linear(t[0], t[1], t[2]).relu_()
        case "dense":
            return lambda: torch.addmm(t[2], t[0], t[1]).relu_()
        case "conv2d" | "depthwise_conv2d" if p["layout"] == "NCHW":
            groups = p["C"] if op == "depthwise_conv2d" else p["groups"]
            return lambda: functions.conv2d(
                t[0], t[1], None, p["stride"], p["pad"], p["dilation"], groups
            )
        case "pool2d" if p["layout"] == "NCHW" and p["kind"] == "max":
            return lambda: functions.max_pool2d(t[0], (p["KH"], p["KW"]), p["stride"], p["pad"])
        case "pool2d" if p["layout"] == "NCHW":
            return lambda: functions.avg_pool2d(
                t[0], (p["KH"], p["KW"]), p["stride"], p["pad"],
                count_include_pad=p["count_include_pad"],
            )  # fmt: skip
        case "softmax":
            return lambda: functions.softmax(t[0], -1)
        case "layer_norm":
            return lambda: functions.layer_norm(t[0], (p["N"],), t[1], t[2], p["eps"])
        case "reduce" if p["kind"] == "sum":
            return lambda: t[0].sum(p["axis"])
        case "transpose":
            return lambda: t[0].T.contiguous()
    raise LookupError(f"no call of PyTorch is known for {op} {p}")


if __name__ == "__main__":
    sys.exit(serve(_prepare))
