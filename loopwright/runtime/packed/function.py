"""`PackedFunc`: a function of dynamically typed arguments, in Python or in compiled code."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable

from loopwright.errors import ArgumentError
from loopwright.runtime.packed.value import enter_kind, kind_of, packed


class PackedFunc(ABC):  # noqa: B024  (an ABC so that functions of modules are entered as subclasses)
    """A function of values that carry their type: a Python function, or one of a compiled module.

    Arguments and the result are of the kinds of `loopwright.runtime.kind_of`: None, bool, int
    (64 bits), float, str, bytes, an address (``ctypes.c_void_p``), ``numpy.dtype``, `Device`,
    `NDArray`, `Module`, a function, or any other object by reference. A function gets the same
    values from Python and from generated code: NumPy's numbers are Python's, arrays of other
    libraries are an `NDArray` over the same memory, callables are a `PackedFunc`. Functions of
    modules (`Function`) are instances, too.

    Args:
        function: the function; a `PackedFunc` is wrapped again.
        name: for messages; default the function's own.

    Raises:
        ArgumentError: it cannot be called.

    Example:
        >>> def total(a, scale):
        ...     return type(a).__name__, a.numpy().sum() * scale
        ...
        >>> f = lw.runtime.PackedFunc(total)
        >>> print(f(np.ones(4, "float32"), 2), f.name)
        ('NDArray', np.float32(8.0)) total
    """

    def __init__(self, function: Callable[..., object], name: str = "") -> None:
        if not callable(function):
            raise ArgumentError(
                f"PackedFunc: expected a function, got {function!r} (a {type(function).__name__})"
            )
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self._function = function

    def __call__(self, *args: object) -> object:
        """Call the function; its own exceptions pass through.

        Raises:
            ArgumentError: an argument or the result cannot be passed; names the function, the
                position and the reason.
        """
        given = [_passed(arg, f"{self.name}: argument {k}") for k, arg in enumerate(args)]
        return _passed(self._function(*given), f"{self.name}: the result")

    def __repr__(self) -> str:
        return f"<PackedFunc {self.name}>"


def as_packed_func(function: Callable[..., object], name: str = "") -> PackedFunc:
    """A callable as a PackedFunc; itself where it is one."""
    return function if isinstance(function, PackedFunc) else PackedFunc(function, name)


def _passed(value: object, who: str) -> object:
    if kind_of(value) == "function":
        assert callable(value)
        return as_packed_func(value)
    return packed(value, who)


enter_kind(PackedFunc, "function")
