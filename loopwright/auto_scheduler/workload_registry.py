"""``auto_scheduler.workload_registry``: functions that return tensors, by their names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from loopwright.errors import TaskError
from loopwright.records import Json
from loopwright.space import Workload
from loopwright.space.expression import tensor_program
from loopwright.task import TASKS, lookup
from loopwright.task.dispatch import enter
from loopwright.task.template import UNNAMED
from loopwright.te import Tensor

__all__ = [
    "make_workload_key",
    "register_workload",
    "register_workload_tensors",
    "workload_key_to_tensors",
]

Function = Callable[..., Any]
#: Tensors of `register_workload_tensors` by their keys.
_TENSORS: dict[str, list[Tensor]] = {}


def register_workload(
    func_name: str | Function, f: Function | None = None, override: bool = False
) -> Any:
    """Register a function of plain arguments that returns ``[inputs..., outputs...]``.

    The function is unchanged: a call returns its tensors. `loopwright.workload` also registers, but
    returns a function that gives the best schedule.

    Args:
        func_name: the name, or the function itself, whose workload is then named ``user/`` and its
            name.
        f: the function, if a name was given; without it, this is a decorator.
        override: replace another function of the name.

    Returns:
        The function, or a decorator.

    Raises:
        TaskError: another function has the name.

    Example:
        >>> from loopwright import auto_scheduler
        >>> @auto_scheduler.register_workload
        ... def doubled(n):
        ...     X = te.placeholder((n,), name="X")
        ...     return [X, te.compute((n,), lambda i: X[i] * 2, name="Y")]
        ...
        >>> print([t.name for t in doubled(64)])
        ['X', 'Y']
        >>> print(auto_scheduler.make_workload_key(doubled, (64,)))
        ["user/doubled", 64]
    """
    if callable(func_name):
        return _register(f"{UNNAMED}{func_name.__name__}", func_name, override)
    if f is not None:
        return _register(func_name, f, override)
    return lambda function: _register(func_name, function, override)


def _register(name: str, function: Function, override: bool) -> Function:
    if override:
        TASKS.pop(name, None)
    enter(Workload(name, function))
    return function


def register_workload_tensors(
    workload_key: str, tensors: Sequence[Tensor], override: bool = True
) -> str:
    """Register the tensors of an expression under a key.

    Args:
        workload_key: the key, any text.
        tensors: inputs and results in calling order.
        override: replace tensors under the same key.

    Returns:
        The key.

    Raises:
        TaskError: the key is taken, and ``override`` is False.
        TensorError: they do not form an expression; see `loopwright.space.tensor_program`.

    Example:
        >>> from loopwright import auto_scheduler
        >>> X = te.placeholder((64,), name="X")
        >>> Y = te.compute((64,), lambda i: X[i] * 2, name="Y")
        >>> key = auto_scheduler.register_workload_tensors("doubled 64", [X, Y])
        >>> print(auto_scheduler.ComputeDAG(key).flop_ct)
        64.0
    """
    if workload_key in _TENSORS and not override:
        raise TaskError(f"the workload {workload_key!r} is registered already; give another key")
    _TENSORS[workload_key] = list(tensor_program(list(tensors)).args)
    return workload_key


def make_workload_key(func: str | Function, args: Iterable[Json]) -> str:
    """The key of a workload: JSON of its name and its arguments.

    Args:
        func: the registered function, or its name.
        args: its arguments; defaults are filled in.

    Raises:
        TaskError: the function is not registered, or does not accept the arguments.

    Example:
        >>> from loopwright import auto_scheduler
        >>> @auto_scheduler.register_workload("example/tripled")
        ... def tripled(n):
        ...     X = te.placeholder((n,), name="X")
        ...     return [X, te.compute((n,), lambda i: X[i] * 3, name="Y")]
        ...
        >>> print(auto_scheduler.make_workload_key("example/tripled", (64,)))
        ["example/tripled", 64]
    """
    template = lookup(func)
    return json.dumps([template.name, *template.bind(args)])


def workload_key_to_tensors(workload_key: str) -> list[Tensor]:
    """Inputs and results of a workload, in calling order.

    Args:
        workload_key: a key of `make_workload_key` or `register_workload_tensors`.

    Raises:
        TaskError: the key is malformed, or its function is not registered.

    Example:
        >>> from loopwright import auto_scheduler
        >>> X = te.placeholder((64,), name="X")
        >>> Y = te.compute((64,), lambda i: X[i] * 4, name="Y")
        >>> key = auto_scheduler.register_workload_tensors("fourfold 64", [X, Y])
        >>> print([t.name for t in auto_scheduler.workload_registry.workload_key_to_tensors(key)])
        ['X', 'Y']
    """
    if workload_key in _TENSORS:
        return list(_TENSORS[workload_key])
    name, args = named_workload(workload_key)
    return list(tensor_program(lookup(name).function(*args)).args)


def named_workload(workload_key: str) -> tuple[str, list[Json]]:
    """Name and arguments of a workload from a key of `make_workload_key`."""
    try:
        name, *args = json.loads(workload_key)
    except (TypeError, ValueError):
        raise _no_key(workload_key) from None
    if not isinstance(name, str):
        raise _no_key(workload_key)
    return name, args


def _no_key(workload_key: object) -> TaskError:
    return TaskError(
        f"{workload_key!r:.80} is the key of no workload; make one by make_workload_key(func, "
        "args), or register tensors under it by register_workload_tensors"
    )


def registered_tensors(workload_key: str) -> list[Tensor] | None:
    """The tensors of a key of `register_workload_tensors`, or None."""
    return _TENSORS.get(workload_key)
