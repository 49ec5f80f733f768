"""The tuners by the names that the command line and logs use."""

from __future__ import annotations

from loopwright.errors import UsageError, did_you_mean
from loopwright.tuner.base import Tuner
from loopwright.tuner.droplet_tuner import DropletTuner
from loopwright.tuner.ga_tuner import GATuner
from loopwright.tuner.range_tuners import GridSearchTuner, RandomTuner
from loopwright.tuner.xgb_tuner import XGBTuner

#: All tuners by name.
TUNERS: dict[str, type[Tuner]] = {
    RandomTuner.name: RandomTuner,
    GridSearchTuner.name: GridSearchTuner,
    GATuner.name: GATuner,
    XGBTuner.name: XGBTuner,
    DropletTuner.name: DropletTuner,
}
#: The tuner that the command line and `tune_tasks` take when none is named.
DEFAULT_TUNER = XGBTuner.name


def find_tuner(name: str) -> type[Tuner]:
    """The tuner class of a name; an unknown one is a `UsageError`."""
    if name not in TUNERS:
        raise UsageError(
            f"unknown tuner {name!r}{did_you_mean(name, TUNERS)}; there are {', '.join(TUNERS)}"
        )
    return TUNERS[name]
