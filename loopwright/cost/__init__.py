"""Cost of a candidate without running it: symbolic schedules, models of devices, features."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.lazy import lazy_names

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.cost.analytical import MARGINS, AnalyticalModel, Excess, cycles, predicted
    from loopwright.cost.cpu.machine import machine_of
    from loopwright.cost.features import Extractor
    from loopwright.cost.features.extract import FeatureRows, StateFeatures
    from loopwright.cost.gpu.device import device_of
    from loopwright.cost.symbolic.evaluation import reachable
    from loopwright.cost.symbolic.symbols import (
        DataDependent,
        Graph,
        Sym,
        ceil_div,
        least,
        most,
        with_leaves,
    )

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
