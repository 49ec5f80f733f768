"""Deduplication of arrays: weights, and their packed forms, of programs of one model."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class SharedArrays:
    """Arrays by their content. Nobody writes into shared ones."""

    def __init__(self) -> None:
        # Arrays that no model uses any more are not held.
        self._arrays = weakref.WeakValueDictionary[tuple[object, ...], Array]()

    def one_of(self, array: Array, copy: Callable[[Array], Array] | None = None) -> Array:
        """The first array that is equal to this one, bit by bit.

        Where there is none, this one is kept, or its `copy`.
        """
        if not array.flags.c_contiguous:
            return array
        digest = hashlib.blake2b(array.reshape(-1).view(np.uint8).data, digest_size=16).digest()
        key = array.dtype.name, array.shape, digest
        found = self._arrays.get(key)
        if found is None:
            found = self._arrays.setdefault(key, array if copy is None else copy(array))
        return found
