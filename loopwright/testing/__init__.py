"""Tools for tests of loopwright and of extensions: contracts, test classes to subclass (of tuners,
targets, measurers and stores); a device that exists in this process only and checks every call
(`simulated_device`); the results of an expression by NumPy alone (`numpy_eval`).
"""

from __future__ import annotations

from typing import Any


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Compare arrays (NumPy or NDArray) elementwise, as ``tvm.testing.assert_allclose``;
    AssertionError where shapes differ, or an element is off by more than ``atol + rtol *
    abs(desired)``.

    Args:
        actual: an array.
        desired: the expected array, of the same shape.
        rtol, atol: relative and absolute tolerance.
    """
    import numpy as np

    actual, desired = np.asanyarray(actual), np.asanyarray(desired)
    np.testing.assert_allclose(actual.shape, desired.shape)
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol, verbose=True)


__all__ = ["assert_allclose"]
