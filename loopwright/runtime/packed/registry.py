"""Functions by name, for the whole process; generated code looks up its callees here."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Literal, TypeVar, overload

from loopwright.errors import UsageError, did_you_mean, shown
from loopwright.runtime.packed.function import PackedFunc, as_packed_func

_F = TypeVar("_F", bound=Callable[..., object])
#: Names are ASCII words with dots between them, so that they are texts of C, too.
_NAME = re.compile(r"[A-Za-z_][\w]*([.][A-Za-z_][\w]*)*", re.ASCII)
_LONGEST = 200

_lock = threading.Lock()
_functions: dict[str, PackedFunc] = {}


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
    """Enter a function under a global name; also a decorator, with a name or without.

    Args:
        name: words with dots between them; or the function, which then gives its own name.
        f: the function: Python's, a `PackedFunc`, or one of a module. None: a decorator is
            returned.
        override: replace a function that has this name.

    Returns:
        The function as it was given.

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
        own = getattr(name, "__name__", getattr(name, "name", None))
        return register_func(check_name(own), name, override)
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

    Args:
        name: the name.
        allow_missing: return None where there is none.

    Raises:
        UsageError: there is none; the nearest name is shown.

    Example:
        >>> print(lw.get_global_func("docs.no_such_function", allow_missing=True))
        None
    """
    with _lock:
        found = _functions.get(name)
        if found is not None or allow_missing:
            return found
        near = did_you_mean(str(name), _functions)
    raise UsageError(
        f"no global function {shown(name)}{near}; enter it with loopwright.register_func in this "
        "process"
    )


def list_global_func_names() -> list[str]:
    """Names of all global functions, sorted.

    Example:
        >>> _ = lw.register_func("docs.shout", str.upper, override=True)
        >>> print("docs.shout" in lw.runtime.list_global_func_names())
        True
        >>> lw.runtime.remove_global_func("docs.shout")
    """
    with _lock:
        return sorted(_functions)


def remove_global_func(name: str) -> None:
    """Remove a name; functions that were looked up before still work.

    Raises:
        UsageError: there is none of that name.

    Example:
        >>> _ = lw.register_func("docs.shout", str.upper, override=True)
        >>> lw.runtime.remove_global_func("docs.shout")
        >>> print(lw.get_global_func("docs.shout", allow_missing=True))
        None
    """
    with _lock:
        if _functions.pop(name, None) is not None:
            return
        near = did_you_mean(str(name), _functions)
    raise UsageError(f"remove_global_func: no global function {shown(name)}{near}")
