"""``WORKLOAD [key=value ...]``: from the words of a command line to a task. A workload is an
operator of ``loopwright.ops``, or ``path/to/file.py:name``: a template or a workload that the file
defines, or a plain function that returns tensors.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import command_line
from loopwright.cli.options import TargetOptions
from loopwright.errors import LoopwrightError, TaskError, UsageError, did_you_mean
from loopwright.records import Json

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from loopwright.ops import Operator
    from loopwright.target import Target
    from loopwright.task import Task, Template

#: More elements than any memory holds; beyond it, finding the factors of a size may take hours.
_TOO_LARGE = 1 << 40
_NUMBER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class WorkloadSubject:
    """An operator, a template or a function with its parameters, as a task."""

    words: tuple[str, ...]  # the workload and its parameters as they were written
    task: Task
    operator: Operator | None  # of ``loopwright.ops``; None for a workload in a file
    threads: int | None  # the value of ``--threads``
    target: str  # the value of ``--target``

    def command(self, verb: str, *options: str) -> str:
        """A command line for this workload that can be pasted into a shell."""
        target = TargetOptions(self.target, self.threads).words()
        return command_line([verb, *self.words, *target, *options])

    @property
    def default_log(self) -> str:
        """The log's name when none is given, such as ``matmul_1024x1024x1024.jsonl``. Workloads of
        one name share a log, which keeps them apart.
        """
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", self.task.name)
        sizes = [str(arg) for arg in self.task.args if type(arg) is int]
        return f"{'_'.join([name, 'x'.join(sizes)]).rstrip('_')}.jsonl"


def completed_workloads(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completions for a workload: the operators; files where none of them fits."""
    from click.shell_completion import CompletionItem

    from loopwright import ops

    names = [name for name in ops.WORKLOADS if name.startswith(incomplete)]
    items = [CompletionItem(name, help=ops.WORKLOADS[name].summary) for name in names]
    return items or [CompletionItem(incomplete, type="file")]


def find_workload(
    workload: str, params: Sequence[str], target: str = "llvm", threads: int | None = None
) -> WorkloadSubject:
    from loopwright.task import create_task

    values = _parameters(params)
    resolved = target_of(target, threads)
    stem, separator, template = workload.partition(".py:")
    operator = None
    if separator:
        task = _task_in_file(Path(f"{stem}.py"), template, values, resolved)
    else:
        operator = find_operator(workload)
        _check_names(workload, values, list(operator.params))
        for key, value in values.items():
            _check_value(workload, key, value, operator.params[key])
        with _usage(workload):
            task = create_task(operator.template, operator.args(dict(values)), resolved)
    return WorkloadSubject((workload, *params), task, operator, threads, target)


def target_of(target: str, threads: int | None) -> Target:
    from loopwright.target import Target

    return Target(target if threads is None else f"{target} -num-threads={threads}")


def find_operator(name: str) -> Operator:
    """The operator of a name; an unknown one is refused with a list of the known ones."""
    from loopwright import ops

    if name.endswith(".py"):
        listed = command_line(["workloads", name])
        raise UsageError(
            f"{name} is a file; name a template or function in it, {name}:NAME (see '{listed}')"
        )
    if name not in ops.WORKLOADS:
        shown = name if len(name) <= 60 else f"{name[:57]}..."
        raise UsageError(
            f"unknown workload {shown!r}{did_you_mean(name, ops.WORKLOADS)}; "
            f"there are {', '.join(sorted(ops.WORKLOADS))}, or path/to/file.py:name of a "
            "template or of a function that returns tensors"
        )
    return ops.WORKLOADS[name]


def templates_in(path: Path) -> dict[str, Template]:
    from loopwright.task import Template

    return {n: t for n, t in vars(_load(path)).items() if isinstance(t, Template)}


def workloads_in(path: Path) -> dict[str, Callable[..., object]]:
    """Templates, workloads and plain functions of a Python file, by name."""
    return _functions(_load(path)) | {n: t.function for n, t in templates_in(path).items()}


def no_workload(path: Path | str, name: str, names: Sequence[str]) -> UsageError:
    return UsageError(
        f"{path} has no template or function {name!r}{did_you_mean(name, names)}; "
        f"it has {', '.join(names) or 'none'}"
    )


def _task_in_file(path: Path, name: str, values: Mapping[str, Json], target: Target) -> Task:
    from loopwright.space import create_task
    from loopwright.task import TASKS

    module = _load(path)
    # By its registered name, or by that of the decorated function.
    definitions: dict[str, Template | Callable[..., object]]
    definitions = {**_functions(module), **templates_in(path)}
    definitions |= {t.name: t for t in TASKS.values() if t.function.__module__ == module.__name__}
    if name not in definitions:
        raise no_workload(path, name, sorted(definitions))
    function = getattr(definitions[name], "function", definitions[name])
    with _usage(name):
        return create_task(definitions[name], _bind(name, function, values), target)


def _functions(module: ModuleType) -> dict[str, Callable[..., object]]:
    return {
        name: function
        for name, function in vars(module).items()
        if inspect.isfunction(function) and function.__module__ == module.__name__
    }


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"no file {str(path)!r}; name a Python file that defines the workload")
    # One name per file: loading it again must not define its templates twice.
    name = "loopwright_user_" + hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (LoopwrightError, KeyboardInterrupt):
        del sys.modules[name]
        raise
    except BaseException as error:  # sys.exit in the file does not end this program
        del sys.modules[name]
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise TaskError(f"{path} cannot be loaded: {text}") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _bind(
    name: str, function: Callable[..., object], values: Mapping[str, Json]
) -> tuple[Json, ...]:
    """The arguments of a template or function in order, from parameters by name."""
    signature = inspect.signature(function)
    for key, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UsageError(
                f"{name}{signature} cannot be given {parameter}: tasks have arguments by position; "
                f"define {key!r} as a plain parameter"
            )
    _check_names(name, values, list(signature.parameters))
    defaults = {key: parameter.default for key, parameter in signature.parameters.items()}
    missing = [k for k, d in defaults.items() if d is inspect.Parameter.empty and k not in values]
    if missing:
        raise UsageError(f"{name} needs {', '.join(f'{key}=...' for key in missing)}")
    return tuple(values.get(key, default) for key, default in defaults.items())


def _parameters(words: Sequence[str]) -> dict[str, Json]:
    values: dict[str, Json] = {}
    for word in words:
        key, separator, text = word.partition("=")
        if not separator or not key.isidentifier() or not text:
            raise UsageError(f"{word!r} is not a parameter; write it as key=value")
        if key in values:
            raise UsageError(f"parameter {key!r} is given twice; give it once")
        values[key] = _value(text)
    return values


def _value(text: str) -> Json:
    """``1024``, ``true``, ``1,2`` (a tuple), ``3x3`` (a tuple of integers), else a word."""
    if _NUMBER.fullmatch(text):
        return int(text)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if "," in text:
        return tuple(_value(part) for part in text.split(",") if part)
    sizes = text.split("x")
    if len(sizes) > 1 and all(_NUMBER.fullmatch(size) for size in sizes):
        return tuple(int(size) for size in sizes)
    return text


def _check_names(name: str, values: Mapping[str, Json], names: Sequence[str]) -> None:
    for key in values:
        if key not in names:
            raise UsageError(
                f"{name} has no parameter {key!r}{did_you_mean(key, names)}; "
                f"it takes {', '.join(names)}"
            )


def _check_value(name: str, key: str, value: Json, default: object) -> None:
    """Refuse values that no operator can take; the template checks the rest."""
    from loopwright import dtypes, ops

    is_size = default is ops.operator.REQUIRED
    if is_size and (type(value) is not int or value < 1):
        raise UsageError(f"{name}: {key}={value} is not a size; give an integer of at least 1")
    if isinstance(value, int) and value >= _TOO_LARGE:
        raise UsageError(
            f"{name}: {key}={value} is more than any memory holds; give less than 2^40"
        )
    if isinstance(default, bool) and not isinstance(value, bool):
        raise UsageError(f"{name}: {key}={value} is not a choice; give {key}=true or {key}=false")
    if key == "dtype":
        with _usage(name):
            dtypes.check(value)


@contextmanager
def _usage(name: str) -> Iterator[None]:
    """Turn errors of a template about its arguments into errors of the command line."""
    try:
        yield
    except UsageError:
        raise
    except LoopwrightError as error:
        raise UsageError(f"{name}: {error}") from error
