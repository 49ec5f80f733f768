"""Random data on which a model is timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright import dtypes

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopwright.executors import Program


def random_inputs(program: Program) -> Mapping[str, npt.NDArray[Any]]:
    """Normal numbers for float inputs; zeros for all else, which are valid as indices."""
    rng = np.random.default_rng(0)
    found = {}
    for n in program.inputs:
        v = program.values[n]
        if dtypes.is_float(v.dtype):
            found[v.name] = rng.standard_normal(v.shape, np.float32).astype(v.dtype)
        else:
            found[v.name] = np.zeros(v.shape, v.dtype)
    return found
