"""Lowering: from a schedule to the loop IR."""

from __future__ import annotations

from loopwright.lowering.constants import constant_stages, prepared_stages
from loopwright.lowering.pipeline import lower, lower_ids, too_deep

__all__ = ["constant_stages", "lower", "lower_ids", "prepared_stages", "too_deep"]
