"""Cost models that learn nothing: chance, and what an offset says."""

from __future__ import annotations

import zlib

import numpy as np

from loopwright.tuner.model.cost_model import Batch, CostModel, Floats, Samples, below_the_rest
from loopwright.tuner.model.file import read_model, write_model


class RandomModel(CostModel):
    """Scores by chance: what any model has to beat.

    Args:
        seed: of the scores. Equal features have equal scores.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, samples: Samples) -> None:
        """Nothing can be learned about chance."""

    def predict(self, batch: Batch) -> Floats:
        """A number from 0 to 1 for each candidate."""
        rows = np.ascontiguousarray(batch.features)
        drawn = [zlib.crc32(row.tobytes(), self.seed) / 2**32 for row in rows]
        return below_the_rest(np.array(drawn, np.float64), batch.failed)

    def save(self, path: str) -> None:
        """Write the seed."""
        write_model(path, {"model": "random", "seed": self.seed})

    def load(self, path: str) -> None:
        """Read the seed."""
        self.seed = int(read_model(path, "random", {"seed": int})["seed"])


class OffsetModel(CostModel):
    """Scores by the offset alone: the analytical model as a cost model."""

    def fit(self, samples: Samples) -> None:
        """The offset is computed, not learned."""

    def predict(self, batch: Batch) -> Floats:
        """The offset of each candidate."""
        return below_the_rest(batch.offset, batch.failed)

    def save(self, path: str) -> None:
        """Write that this is all."""
        write_model(path, {"model": "offset"})

    def load(self, path: str) -> None:
        """Check that the file is one of such a model."""
        read_model(path, "offset", {})
