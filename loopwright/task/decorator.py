"""``@template``: registers a function as a template, which is called through the dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import overload

from loopwright.errors import TaskError
from loopwright.task.dispatch import schedule_for
from loopwright.task.template import TASKS, UNNAMED, Defaults, Function, Template


@overload
def template(name: Function) -> Template: ...


@overload
def template(
    name: str | None = None,
    *,
    reference: Function | None = None,
    make_inputs: Function | None = None,
    default: Defaults | None = None,
    make_reference: Callable[..., Function] | None = None,
) -> Callable[[Function], Template]: ...


def template(
    name: str | Function | None = None,
    *,
    reference: Function | None = None,
    make_inputs: Function | None = None,
    default: Defaults | None = None,
    make_reference: Callable[..., Function] | None = None,
) -> Template | Callable[[Function], Template]:
    """Decorate a function of plain arguments that returns ``(schedule, [tensors])``.

    Args:
        name: Unique name; ``user/`` and the function's own when left out, so that no function of a
            script takes the name of an operator of loopwright.
        reference: NumPy function of the inputs that returns the outputs.
        make_inputs: Function of the template's arguments that makes inputs for tests and timing,
            one array per input. Random ones will do for most; an operand that is used as an index
            gets values in range where the expression tells them.
        default: Knob values of the default configuration, or a function of the template's arguments
            that returns them.
        make_reference: Function of the template's arguments that returns ``reference``, for
            operators whose meaning depends on arguments (a stride, a transposed operand).

    Raises:
        TaskError: another function has the name already.

    Example:
        >>> @lw.template("example/add_one")
        ... def add_one(n):
        ...     A = te.placeholder((n,), name="A")
        ...     B = te.compute((n,), lambda i: A[i] + 1, name="B")
        ...     s = te.create_schedule(B.op)
        ...     cfg = lw.get_config()
        ...     cfg.define_split("tile", B.op.axis[0], num_outputs=2)
        ...     io, ii = cfg["tile"].apply(s, B, B.op.axis[0])
        ...     return s, [A, B]
        ...
        >>> task = lw.create_task("example/add_one", (64,), "llvm")
        >>> print(len(task.config_space))
        7
    """

    def register(function: Function) -> Template:
        label = name if isinstance(name, str) else f"{UNNAMED}{function.__name__}"
        made = Template(
            label, function, schedule_for, reference, make_inputs, default, make_reference
        )
        enter(made)
        return made

    return register(name) if callable(name) else register


def enter(template: Template) -> None:
    """Register a template by its name; a definition that is run again replaces itself."""
    before = TASKS.get(template.name)
    if before is not None and not _same_origin(before.function, template.function):
        raise TaskError(
            f"template {template.name!r} is defined at {before.where} already; rename one"
        )
    TASKS[template.name] = template


def _same_origin(one: Function, other: Function) -> bool:
    """True when a definition was run again: a notebook's cell, or a file loaded twice."""
    if one.__qualname__ != other.__qualname__:
        return False
    return one.__module__ == other.__module__ or (
        one.__code__.co_filename == other.__code__.co_filename
    )
