"""Rules that schedule operators for GPUs, over access maps alone."""

from __future__ import annotations

from loopwright.ops.gpu.rules import schedule_for_gpu, scheduled

__all__ = ["schedule_for_gpu", "scheduled"]
