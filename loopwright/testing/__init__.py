"""Contract suites, random programs and schedules, and the numeric comparison, for tests."""

from __future__ import annotations

from typing import Any


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Compare arrays (NumPy or NDArray) elementwise, as ``tvm.testing.assert_allclose``.

    Args:
        actual, desired: arrays of one shape.
        rtol, atol: relative and absolute tolerance.

    Raises:
        AssertionError: shapes differ, or an element is off by more than atol + rtol * |desired|.
    """
    import numpy as np

    actual, desired = np.asanyarray(actual), np.asanyarray(desired)
    np.testing.assert_allclose(actual.shape, desired.shape)
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol, verbose=True)


__all__ = ["assert_allclose"]
