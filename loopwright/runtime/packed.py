"""Packed functions: values that carry their type, functions of them, and the registry by name.

Python's own containers serve: a tuple is an array and a shape, a dict a map, a str a string, None a
missing value. They pass by reference, as any other object does. Generated code looks up its callees
in the registry, which is one for the whole process.
"""

from __future__ import annotations

import ctypes
import inspect
import re
import threading
import types
import typing
from abc import ABC
from collections.abc import Callable
from typing import Literal, TypeVar, overload

import numpy as np

from loopwright import dtypes
from loopwright.errors import ArgumentError, TensorError, UsageError, did_you_mean, shown
from loopwright.runtime.arrays.host import NDArray
from loopwright.runtime.devices.device import Device, cpu
from loopwright.runtime.ndarray import from_dlpack

#: Every kind, and the Python value that a function gets.
KINDS = {
    "none": "None",
    "bool": "a bool",
    "int": "an int of 64 bits",
    "float": "a float",
    "str": "a str",
    "bytes": "bytes",
    "handle": "an address, as ctypes.c_void_p",
    "dtype": "a numpy.dtype",
    "device": "a Device",
    "array": "an NDArray",
    "module": "a Module",
    "function": "a PackedFunc",
    "object": "any other object, by reference",
}
#: Classes by kind; subclasses are of the kind of their nearest base.
_CLASSES: dict[type, str] = {
    np.bool_: "bool",
    np.integer: "int",
    np.floating: "float",
    bytearray: "bytes",
    memoryview: "bytes",
    type(None): "none",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    ctypes.c_void_p: "handle",
    np.dtype: "dtype",
    Device: "device",
    NDArray: "array",
    object: "object",
}

_F = TypeVar("_F", bound=Callable[..., object])
#: Names are ASCII words with dots between them, so that they are texts of C, too.
_NAME = re.compile(r"[A-Za-z_][\w]*([.][A-Za-z_][\w]*)*", re.ASCII)
_LONGEST = 200
_lock = threading.Lock()
_functions: dict[str, PackedFunc] = {}
#: A class that an annotation names, or None for Any; several are the members of a union.
_Classes = tuple[type, ...] | None


def enter_kind(cls: type, kind: str) -> None:
    """Let values of a class, and of classes derived from it, be of a kind."""
    _CLASSES[cls] = kind


def kind_of(value: object) -> str:
    """The kind of a value, one of `KINDS`, after conversion by `packed`.

    Example:
        >>> kind = lw.runtime.kind_of
        >>> print(kind(3), kind(2.5), kind("x"), kind(np.zeros(2)), kind(print), kind([1]))
        int float str array function object
    """
    kind = next(filter(None, map(_CLASSES.get, type(value).__mro__)))
    if kind != "object" or isinstance(value, type):
        return kind
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return "array"
    return "function" if callable(value) else "object"


#: Conversions that cannot fail.
_PLAIN: dict[str, type] = {"bool": bool, "float": float, "str": str, "bytes": bytes}


def packed(value: object, who: str) -> object:
    """A value as functions get it; functions are left to the caller.

    Numbers of NumPy become Python's, arrays an `NDArray` over the same memory. ArgumentError, with
    `who` as in ``"f: argument 0"``, for an integer of more than 64 bits (unsigned ones too), or an
    array that is not row-major or cannot be shared.
    """
    kind = kind_of(value)
    if kind in _PLAIN:
        return _PLAIN[kind](value)
    if kind == "array":
        return _array(value, who)
    if kind != "int":
        return value
    number = int(value)  # type: ignore[call-overload]
    if -(1 << 63) <= number < 1 << 64:
        return number
    raise ArgumentError(
        f"{who}: {number} does not fit into 64 bits; pass it as a str, or as a float"
    )


def _array(value: object, who: str) -> NDArray:
    if isinstance(value, NDArray):
        return value
    try:
        return view_of(value) if isinstance(value, np.ndarray) else from_dlpack(value)
    except (ArgumentError, TensorError) as error:
        raise ArgumentError(f"{who}: {error}") from None


def view_of(data: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> NDArray:
    """An NDArray over a row-major NumPy array, which may be read-only, without a copy."""
    dtypes.check(data.dtype)
    if isinstance(data, np.ma.MaskedArray):
        raise ArgumentError("a masked array, and functions know no masks; pass a.filled(value)")
    if not data.flags.c_contiguous or not data.flags.aligned:
        raise ArgumentError(
            f"an array of shape {data.shape} and strides {data.strides} is not row-major without "
            "gaps; pass np.ascontiguousarray of it"
        )
    return NDArray(data, cpu(0))


class PackedFunc(ABC):  # noqa: B024  (an ABC so that functions of modules are entered as subclasses)
    """A function of values that carry their type: a Python function, or one of a compiled module.

    Arguments and the result are of the kinds of `loopwright.runtime.kind_of`: None, bool, int
    (64 bits), float, str, bytes, an address (``ctypes.c_void_p``), ``numpy.dtype``, `Device`,
    `NDArray`, `Module`, a function, or any other object by reference. A function gets the same
    values from Python and from generated code: NumPy's numbers are Python's, arrays of other
    libraries are an `NDArray` over the same memory, callables are a `PackedFunc`. Functions of
    modules (`Function`) are instances, too.

    ``name``, for messages, defaults to the function's own. ArgumentError where it cannot be called.

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

        ArgumentError, with function, position and reason, where an argument or the result cannot
        be passed.
        """
        values = [_passed(arg, f"{self.name}: argument {k}") for k, arg in enumerate(args)]
        return _passed(self._function(*values), f"{self.name}: the result")

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


def check_name(name: object) -> str:
    if isinstance(name, str) and len(name) <= _LONGEST and _NAME.fullmatch(name):
        return name
    raise UsageError(
        f"{shown(name)} is no name of a global function; take words of letters, digits and "
        "underscores with dots between them, such as 'my_project.log'"
    )


@overload
def register_func(name: str, f: None = None, override: bool = False) -> Callable[[_F], _F]: ...
@overload
def register_func(name: str, f: _F, override: bool = False) -> _F: ...
@overload
def register_func(name: _F, f: None = None, override: bool = False) -> _F: ...


def register_func(
    name: str | _F, f: _F | None = None, override: bool = False
) -> _F | Callable[[_F], _F]:
    """Enter a function under a global name and return it; also a decorator, with a name or without.

    Args:
        name: words with dots between them; or the function, which then gives its own name.
        f: the function: Python's, a `PackedFunc`, or one of a module. None: a decorator is
            returned.
        override: replace a function that has this name.

    Raises:
        UsageError: the name is malformed, or another function has it.
        ArgumentError: it cannot be called.

    Example:
        >>> @lw.register_func("docs.scale", override=True)
        ... def scale(a, factor):
        ...     a[:] = a.numpy() * factor
        ...
        >>> a = np.ones(3, "float32")
        >>> lw.get_global_func("docs.scale")(a, 2)
        >>> print(a)
        [2. 2. 2.]
        >>> lw.runtime.remove_global_func("docs.scale")
    """
    if callable(name):
        own_name = getattr(name, "__name__", getattr(name, "name", None))
        return register_func(check_name(own_name), name, override)
    if f is None:
        return lambda function: register_func(name, function, override)
    entered = as_packed_func(f, check_name(name))
    with _lock:
        if name in _functions and not override:
            raise UsageError(
                f"register_func: there is a function {name!r} already; take another name, or "
                "override=True"
            )
        _functions[name] = entered
    return f


@overload
def get_global_func(name: str, allow_missing: Literal[False] = False) -> PackedFunc: ...
@overload
def get_global_func(name: str, allow_missing: bool) -> PackedFunc | None: ...


def get_global_func(name: str, allow_missing: bool = False) -> PackedFunc | None:
    """The function that was registered under a name.

    Where there is none, None if that is allowed, else UsageError with the nearest name.
    """
    with _lock:
        function = _functions.get(name)
        if function is not None or allow_missing:
            return function
        near = did_you_mean(str(name), _functions)
    raise UsageError(
        f"no global function {shown(name)}{near}; enter it with loopwright.register_func in this "
        "process"
    )


def list_global_func_names() -> list[str]:
    """Names of all global functions, sorted."""
    with _lock:
        return sorted(_functions)


def remove_global_func(name: str) -> None:
    """Remove a name; functions that were looked up before still work.

    UsageError where there is none of that name.
    """
    with _lock:
        if _functions.pop(name, None) is not None:
            return
        near = did_you_mean(str(name), _functions)
    raise UsageError(f"remove_global_func: no global function {shown(name)}{near}")


class TypedPackedFunc(PackedFunc):
    """A packed function whose arguments and result have the types of its annotations.

    Annotations may be classes (int, float, str, bytes, bool, None, ``numpy.dtype``, `Device`,
    `NDArray`, `Module`, `PackedFunc`, a class of one's own), unions of them, Callable and Any; an
    argument without one takes anything. An int is accepted as a float, a bool is not accepted
    as an int.

    Raises:
        UsageError: its signature cannot be read, it takes keyword-only arguments without defaults,
            or an annotation is no class.

    Example:
        >>> def fill(a: lw.runtime.NDArray, value: float) -> int:
        ...     a[:] = value
        ...     return a.size
        ...
        >>> print(lw.runtime.TypedPackedFunc(fill)(np.empty(3, "float32"), 1))
        3
    """

    def __init__(self, function: Callable[..., object], name: str = "") -> None:
        super().__init__(function, name)
        try:
            self.signature = inspect.signature(function)
            hints = typing.get_type_hints(function)
        except (TypeError, ValueError, NameError) as error:
            raise UsageError(f"TypedPackedFunc: {self.name} has no annotations: {error}") from None
        for p in self.signature.parameters.values():
            if p.kind is p.KEYWORD_ONLY and p.default is p.empty:
                raise UsageError(
                    f"TypedPackedFunc: {self.name} must be given {p.name!r} by name, and packed "
                    "functions are called by position; give it a default"
                )
        self._expected = {n: _classes(hint, self.name, n) for n, hint in hints.items()}

    def __call__(self, *args: object) -> object:
        """Check the arguments, call the function (its exceptions pass through), check the result.

        ArgumentError, with function, position and name, for a wrong number of arguments or type.
        """
        try:
            bound = self.signature.bind(*args)
        except TypeError as error:
            raise ArgumentError(f"{self.name}{self.signature}: {error}") from None
        checked: list[object] = []
        for name in bound.arguments:
            values = bound.arguments[name]
            several = self.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            for value in values if several else (values,):
                who = f"{self.name}: argument {len(checked)} ({name!r})"
                checked.append(self._checked(value, name, who))
        return self._checked(self._function(*checked), "return", f"{self.name}: the result")

    def _checked(self, value: object, name: str, who: str) -> object:
        """The value to pass, which is of the annotated type."""
        if kind_of(value) == "function":
            assert callable(value)
            value = as_packed_func(value)
        passed = packed(value, who)
        expected = self._expected.get(name)
        if expected is None or (isinstance(passed, expected) and type(passed) is not bool):
            return passed
        # Python's bool is an int, and a mistake where a number is meant.
        if type(passed) is bool and (bool in expected or object in expected):
            return passed
        if float in expected and type(passed) is int:
            return float(passed)
        wanted = " or ".join(_class_text(c) for c in expected)
        raise ArgumentError(f"{who} is {wanted}, got {shown(value)} (a {type(value).__name__})")


def _class_text(cls: type) -> str:
    if cls is type(None):
        return "None"
    return f"{'an' if cls.__name__[0] in 'aeiouN' else 'a'} {cls.__name__}"


def _classes(hint: object, function: str, name: str) -> _Classes:
    """The classes that an annotation allows; None: anything."""
    if hint is typing.Any or isinstance(hint, typing.TypeVar):
        return None
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        parts = [_classes(h, function, name) for h in typing.get_args(hint)]
        members = [p for p in parts if p is not None]
        return tuple(c for p in members for c in p) if len(members) == len(parts) else None
    if hint is None:
        return (type(None),)
    cls = typing.get_origin(hint) or hint
    if not isinstance(cls, type):
        raise UsageError(
            f"TypedPackedFunc: the annotation {hint!r} of {name!r} of {function} is no class; "
            "annotate with a class, a union of classes, or Any"
        )
    if cls in (np.ndarray, np.generic):
        raise UsageError(
            f"TypedPackedFunc: {function} is given arrays as NDArray, and {name!r} is annotated "
            f"as {cls.__name__}; annotate it as loopwright.runtime.NDArray"
        )
    return (PackedFunc,) if cls.__name__ == "Callable" else (cls,)
