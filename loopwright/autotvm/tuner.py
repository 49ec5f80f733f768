"""``autotvm.tuner``: the tuners."""

from __future__ import annotations

from loopwright.tuner import GATuner, GridSearchTuner, RandomTuner, Tuner, XGBTuner
from loopwright.tuner.run import callbacks as callback

__all__ = ["GATuner", "GridSearchTuner", "RandomTuner", "Tuner", "XGBTuner", "callback"]
