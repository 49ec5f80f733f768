"""Expected gain of the trials to come, by which the best may still become faster.

The latest ``w`` trials are taken as a sample of what the tuner proposes now. Had only a quarter of
them been measured, any quarter alike, the logarithm of the best speed would have been lower by

    B = sum_i (x_i - x_{i+1}) * P(none of the i fastest is in the quarter)

on average, where ``x_1 >= x_2 >= ...`` are the logarithms of their speeds. This is exact whatever
their distribution. The gain of ``m`` further trials follows from it on a logarithmic scale:

    E = B * log(1 + m / w) / log(4),

which is exact where the upper tail of speeds is that of a Pareto law, and too much where speeds are
bounded, as they are by the peak: a run goes on for too long rather than too short. Failures, and
candidates that racing dropped, count among the ``w``, which reaches back to the best at least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

#: Least number of latest trials that are looked at, and of valid ones among them.
WINDOW, VALID = 64, 16
#: Trials whose gain is estimated: those of one round.
AHEAD = 16


def expected_gain(speeds: Sequence[float | None], trials: int = AHEAD) -> float | None:
    """Share by which the best is expected to become faster by further trials, 0.02 for two percent.

    ``speeds``, in any unit, are those of the latest trials, `WINDOW` or more, the best of all among
    them; None for a failure. With fewer than `WINDOW` trials, or fewer than `VALID` valid ones,
    nothing can be said.
    """
    logs = sorted((math.log(s) for s in speeds if s is not None), reverse=True)
    if len(speeds) < WINDOW or len(logs) < VALID:
        return None
    quarter = len(speeds) // 4
    brought, missed = 0.0, 1.0
    for i in range(len(logs) - 1):
        missed *= (len(speeds) - quarter - i) / (len(speeds) - i)
        brought += missed * (logs[i] - logs[i + 1])
        if missed < 1e-6:
            break
    return math.expm1(brought * math.log1p(trials / len(speeds)) / math.log(4.0))
