"""Lowering: from a schedule to the loop IR."""

from __future__ import annotations

from loopwright.lowering.pipeline import lower, lower_ids, too_deep

__all__ = ["lower", "lower_ids", "too_deep"]
