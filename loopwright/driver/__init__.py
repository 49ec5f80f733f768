"""The driver: a schedule or a trace, and a target, to a module."""

from __future__ import annotations

from loopwright.driver.build import build, compile, compile_schedule

__all__ = ["build", "compile", "compile_schedule"]
