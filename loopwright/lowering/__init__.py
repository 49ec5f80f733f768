"""Lowering: from a schedule to the loop IR."""

from __future__ import annotations

from loopwright.lowering.pipeline import (
    constant_stages,
    lower,
    lower_ids,
    prepared_stages,
    too_deep,
)

__all__ = ["constant_stages", "lower", "lower_ids", "prepared_stages", "too_deep"]
