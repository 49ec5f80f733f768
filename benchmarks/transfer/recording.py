"""Measure points of the automatic spaces of all workloads, good and bad ones, into one log.

    python -m benchmarks.transfer.recording LOG.jsonl [--seconds 12] [--seed 0]

Every second point is random, of every structure alike. The others are the best of a few random
points of a random structure by the analytical model, so that fast ones are among them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

import loopwright as lw
from benchmarks.transfer.workloads import WORKLOADS
from loopwright.cost.analytical import AnalyticalModel
from loopwright.task.sampling import indices_of, random_digits
from loopwright.task.space import Scheduler
from loopwright.task.union import SpaceUnion
from loopwright.tuner import Tuner

#: Random points of which the analytical model chooses one.
_CHOICE = 16


class Mixture(Tuner):
    """Proposes random points, and in turn with them points that the analytical model likes."""

    searches_unions = True
    name = "mixture"

    def propose(self, n: int) -> Iterator[int]:
        """Yield points, every second of them random."""
        space = self.task.config_space
        assert isinstance(space, SpaceUnion)
        for index in space.sample_ints(4 * n, self.rng):
            yield int(index)
            number = int(self.rng.integers(len(space.parts)))
            part = space.parts[number]
            digits = random_digits(part.config_space, _CHOICE, self.rng)
            best = digits[[np.argmax(_model(part).predict(digits))]]
            yield space.offsets[number] + indices_of(part.config_space, best)[0]


@lru_cache(maxsize=256)
def _model(part: Scheduler) -> AnalyticalModel:
    return AnalyticalModel(part)


def main() -> None:
    """Measure every workload for some seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name, make in WORKLOADS.items():
        task = lw.create_task(make(), target="llvm")
        tuner = Mixture(task, seed=options.seed)
        callbacks = [lw.callback.log_to_file(options.log)]
        summary = tuner.tune(timeout=options.seconds, callbacks=callbacks)
        print(f"{name}: {summary.measured} measured, best {summary.best_seconds:.3g} s", flush=True)


if __name__ == "__main__":
    main()
