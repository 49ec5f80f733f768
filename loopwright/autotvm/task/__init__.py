"""``autotvm.task``: ``create(name, args, target)`` and the parts of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from loopwright.autotvm.task import dispatcher, space
from loopwright.autotvm.task.relay_integration import (
    extract_from_multiple_program,
    extract_from_program,
)
from loopwright.errors import no_such_name
from loopwright.history import ApplyConfig, ApplyFixedConfig, ApplyGraphBest, ApplyHistoryBest
from loopwright.ops import create_task
from loopwright.records import Json
from loopwright.target import Target
from loopwright.task import TASKS as TASK_TABLE
from loopwright.task import (
    ConfigEntity,
    ConfigSpace,
    DispatchContext,
    FallbackContext,
    Task,
    Template,
    clear_fallback_cache,
    get_config,
    template,
)
from loopwright.task.task import TargetLike, resolve_target
from loopwright.task.template import UNNAMED
from loopwright.tuner import ApplyHistoryBestOrSample

__all__ = [
    "TASK_TABLE",
    "ApplyConfig",
    "ApplyFixedConfig",
    "ApplyGraphBest",
    "ApplyHistoryBest",
    "ApplyHistoryBestOrSample",
    "ConfigEntity",
    "ConfigSpace",
    "DispatchContext",
    "FallbackContext",
    "Task",
    "clear_fallback_cache",
    "create",
    "dispatcher",
    "extract_from_multiple_program",
    "extract_from_program",
    "get_config",
    "space",
    "template",
]

_NETWORK = "extract_from_program gives the tasks of a network"
_OPERATOR = "decorate a function that returns (schedule, [tensors]) with @autotvm.template(name)"
_ARGUMENTS = "arguments of templates are numbers, texts and tuples of these: task.args, as they are"
_INSTEAD = {
    "TaskExtractEnv": _NETWORK,
    "args_to_workload": _ARGUMENTS,
    "compute_flop": "task.flop counts the operations",
    "deserialize_args": _ARGUMENTS,
    "get_workload": "task.workload is the name with the arguments",
    "register_topi_compute": _OPERATOR,
    "register_topi_schedule": _OPERATOR,
    "serialize_args": _ARGUMENTS,
}


def create(
    task_name: str | Template | Callable[..., Any],
    args: Iterable[Json] = (),
    target: TargetLike = None,
    target_host: TargetLike = None,
) -> Task:
    """Make a task, as AutoTVM's scripts do.

    Args:
        task_name: the decorated function or its name; a template without a given name takes
            precedence over an operator of loopwright.
        args: the template's arguments.
        target: such as ``"llvm"`` or a ``Target``; None for the current or the default one.
        target_host: None, or the target of the code that calls the kernel, a CPU.

    Raises:
        TaskError: the template is unknown, does not accept the arguments, or raised.
        TargetError: a target is not understood, or the host is no CPU.

    Example:
        >>> from loopwright import autotvm
        >>> task = autotvm.task.create("matmul", args=(16, 16, 16), target="llvm")
        >>> len(task.config_space) > 1
        True
    """
    own = f"{UNNAMED}{task_name}" if isinstance(task_name, str) else ""
    name = own if own in TASK_TABLE else task_name
    if target_host is not None:
        target = Target(resolve_target(target), target_host)
    return create_task(name, args, target)


def __getattr__(name: str) -> NoReturn:
    raise no_such_name("loopwright.autotvm.task", name, _INSTEAD)
