"""The exceptions that loopwright raises on purpose, and its warnings.

A message says what was asked, what the state is, and what to do instead, in one line.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlist = _SHORT.maxtuple = 12


class LoopwrightError(RuntimeError):
    """Base class of all errors raised on purpose; a RuntimeError, as TVM's ``TVMError`` is."""


class UsageError(LoopwrightError):
    """The caller asked for something that does not exist or cannot be combined (exit code 2)."""


class TensorError(LoopwrightError):
    """A tensor expression is malformed: shape, dtype, axis or reducer."""


class ScheduleError(LoopwrightError):
    """A schedule primitive is illegal in the present state."""


class LowerError(LoopwrightError):
    """A schedule could not be turned into a loop nest."""


class TooMuchCodeError(LowerError):
    """A program would be written out to more code than the limit of the context allows."""


class CodegenError(LoopwrightError):
    """A loop nest could not be turned into code for the target."""


class TargetError(UsageError):
    """A target string or dictionary is not understood, or the target is not available."""


class BuildError(LoopwrightError):
    """Compiling a candidate failed."""


class ArgumentError(LoopwrightError):
    """A kernel was called with arguments that it does not accept."""


class RunError(LoopwrightError):
    """A kernel failed while it ran."""


class OutOfMemoryError(RunError):
    """A kernel needs more memory than there is, or than its limit."""


class DeviceLostError(RunError):
    """A device failed so that this process cannot use it any more; another process may."""


class RecordError(LoopwrightError):
    """A log of records is missing, unreadable, or of a version that is not understood."""


class SpaceError(LoopwrightError):
    """A search space is malformed, or a point of it is not valid."""


class InstantiationError(SpaceError):
    """A template refused a configuration (`cfg.raise_error`)."""


class TaskError(UsageError):
    """A task or template is unknown, or was given arguments that it does not accept."""


class TuneError(LoopwrightError):
    """A tuning run could not start or continue."""


class TimeLimitError(LoopwrightError):
    """A function of the user (template, filter, reference, inputs) took longer than it may."""


class GraphError(LoopwrightError):
    """A graph of operators is malformed: a type, an attribute or a name does not fit."""


class FallbackWarning(UserWarning):
    """Another library computes much of a model, since operators have no kernel."""


class InternalError(LoopwrightError):
    """A fault of loopwright itself; please report it with the text."""


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """Let Ctrl-C while a library is imported be one: pybind11 raises an ImportError from it."""
    try:
        yield
    except ImportError as error:
        cause = error.__cause__
        while isinstance(cause, ImportError):
            cause = cause.__cause__
        if isinstance(cause, KeyboardInterrupt):
            raise cause from None
        raise


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``" (did you mean 'x'?)"`` for the nearest known name, or an empty string."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def no_such_name(module: str, name: str, instead: Mapping[str, str]) -> AttributeError:
    """The error of a module that lacks a name; ``instead`` has replacements for names of TVM."""
    why = f": {instead[name]}" if name in instead else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{why}")


def shown(value: object) -> str:
    """A value from a file for messages: short and on one line."""
    return _SHORT.repr(value)
