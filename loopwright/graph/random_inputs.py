"""Data on which a model is timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright import dtypes

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopwright.runtime.executors import Program


def random_inputs(program: Program) -> Mapping[str, npt.NDArray[Any]]:
    """Arrays for the inputs of a model: normal numbers for floats; zeros for all else, which are
    right where a number is an index."""
    rng = np.random.default_rng(0)
    found = {}
    for n in program.inputs:
        v = program.values[n]
        if dtypes.is_float(v.dtype):
            found[v.name] = rng.standard_normal(v.shape, np.float32).astype(v.dtype)
        else:
            found[v.name] = np.zeros(v.shape, v.dtype)
    return found
