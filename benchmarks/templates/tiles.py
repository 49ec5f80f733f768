"""Vector registers of the target in force."""

from __future__ import annotations

import loopwright as lw
from loopwright import dtypes


def lanes(dtype: str) -> int:
    """Lanes of a vector register."""
    return max(1, lw.Target.current().vector_bytes // dtypes.nbytes(dtype))
