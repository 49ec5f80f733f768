"""Operators: TE definition, NumPy reference, default schedule and tunable CPU template."""

from __future__ import annotations

from loopwright.ops.conv2d import conv2d, conv2d_compute
from loopwright.ops.matmul import dense, matmul, matmul_compute
from loopwright.ops.operator import WORKLOADS, Operator
from loopwright.task import create_task

__all__ = [
    "WORKLOADS",
    "Operator",
    "conv2d",
    "conv2d_compute",
    "create_task",
    "dense",
    "matmul",
    "matmul_compute",
]
