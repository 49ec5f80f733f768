"""Curve features: data touched within a number of iterations, whatever the loops are.

For the store and the first loads of the stage with the most arithmetic, the bytes touched by the
innermost loops that have at most 1, 4, 16, ... iterations together, and the uses of each element
then. The shape of these curves does not depend on names or numbers of loops, so they compare
programs of different structure (AutoTVM, NeurIPS 2018, context relation features). The sums of
`loopwright.cost.features.itervar` come first.
"""

from __future__ import annotations

from functools import partial

from loopwright.cost.features.feature import Feature, FeatureType, Slot
from loopwright.cost.features.figures import ScheduleFigures, WindowView
from loopwright.cost.features.itervar import ACCESSES, SUMS

#: Points of a curve: 1, 4, 16, ... iterations.
SAMPLES = 12
_WINDOW: tuple[Feature[WindowView], ...] = (
    Feature("bytes", "bytes touched", lambda w: w.elements * w.itemsize),
    Feature("reuse", "uses of each element", lambda w: w.iterations / w.elements),
)


def _window(p: ScheduleFigures, number: int, iterations: int) -> WindowView | None:
    return p.main.window(number, iterations)


FEATURES = FeatureType(
    [
        *SUMS,
        *(
            Slot(
                f"{name}.at{4**k}",
                f"{words}, within {4**k} iterations",
                _WINDOW,
                partial(_window, number=number, iterations=4**k),
            )
            for number, (name, words) in enumerate(ACCESSES)
            for k in range(SAMPLES)
        ),
    ]
)
