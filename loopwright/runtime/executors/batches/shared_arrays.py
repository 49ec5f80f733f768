"""Equal arrays are kept once: weights, and what is packed of them, of programs of one model."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class SharedArrays:
    """Arrays by their content. Nobody writes into what is shared.

    Example:
        >>> from loopwright.runtime.executors.batches.shared_arrays import SharedArrays
        >>> shared = SharedArrays()
        >>> first, second = (shared.one_of(np.ones(4)) for _ in range(2))
        >>> print(first is second)
        True
    """

    def __init__(self) -> None:
        # What no model has any more is not held.
        self._arrays = weakref.WeakValueDictionary[tuple[object, ...], Array]()

    def one_of(self, array: Array, copy: Callable[[Array], Array] | None = None) -> Array:
        """The array that was given first of those that are equal to one, bit by bit.

        Args:
            array: the one; where none was equal to it, it is kept.
            copy: what is kept in its place is this copy of it; None: itself.
        """
        if not array.flags.c_contiguous:
            return array
        digest = hashlib.blake2b(array.reshape(-1).view(np.uint8).data, digest_size=16).digest()
        key = array.dtype.name, array.shape, digest
        found = self._arrays.get(key)
        if found is None:
            found = self._arrays.setdefault(key, array if copy is None else copy(array))
        return found
