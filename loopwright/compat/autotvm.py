"""Adapters to AutoTVM's names; the table of all of them is `loopwright.autotvm`."""

from __future__ import annotations

import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy.typing as npt

from loopwright.compat.recorded import RecordedTask, target_text
from loopwright.errors import LoopwrightError, TensorError, UsageError
from loopwright.history import other_knobs
from loopwright.ir.expr import Const, Expr
from loopwright.measure import MeasureError
from loopwright.measure import MeasureInput as TrialInput
from loopwright.measure import MeasureResult as TrialResult
from loopwright.ops import create_task
from loopwright.records import ERRORS, Json, Log, Record, load, load_lines, read_line, split
from loopwright.target import Target
from loopwright.task import (
    TASKS,
    UNNAMED,
    AnnotateEntity,
    ConfigEntity,
    Entity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
    TargetLike,
    Task,
    Template,
    resolve_target,
    say_once,
)
from loopwright.tuner import Tuner as AskTellTuner
from loopwright.tuner import point, result_of
from loopwright.version import __version__

if TYPE_CHECKING:
    from loopwright.graph import Function, IRModule, ModelLike

#: AutoTVM's letters for the kinds of knobs.
_LETTERS: dict[type[Entity], str] = {
    SplitEntity: "sp", ReorderEntity: "re", AnnotateEntity: "an", OtherOptionEntity: "ot",
}  # fmt: skip
_FAILED = 1e9  # the cost by which AutoTVM marks a failure


def create(
    task_name: str | Template | Callable[..., Any],
    args: Iterable[Json] = (),
    target: TargetLike = None,
    target_host: TargetLike = None,
) -> Task:
    """Make a task as `loopwright.create_task` does, but prefer a template of the script to an
    operator of loopwright with its name. ``target_host``, where it is not None, is the target of
    the code that calls the kernel, a CPU. TaskError where the template is unknown, does not accept
    the arguments, or raised; TargetError where a target is not understood.
    """
    unnamed = f"{UNNAMED}{task_name}" if isinstance(task_name, str) else ""
    return create_task(
        unnamed if unnamed in TASKS else task_name, args, with_host(target, target_host)
    )


def with_host(target: TargetLike, host: TargetLike) -> TargetLike:
    """A target with the target of the code that calls its kernels, where one is given."""
    return target if host is None else Target(resolve_target(target), host)


def extract_from_program(
    mod: ModelLike | Function,
    params: Mapping[str, npt.ArrayLike] | None = None,
    target: TargetLike = None,
    target_host: TargetLike = None,
    ops: Iterable[Any] | None = None,
) -> list[Task]:
    """The tasks of a network, each once, without their number of calls, in the order of first use.

    They belong to the kernels that `loopwright.compile` builds for the same target, and have
    automatic spaces. A kernel with several implementations has a task for each. `loopwright.tune`
    shares the trials out among the tasks by their share of the time. GraphError where the model is
    invalid, there is no such operator, or a parameter has another name, shape or dtype; TargetError
    where a target is not understood.

    Args:
        params: arrays by the names of the parameters that are weights; None: none are.
        target, target_host: as of `create`.
        ops: only tasks that contain one of these operators: names such as ``"nn.conv"``, or values
            of ``loopwright.graph.get_op``; None: all that do more than move and map elements.

    Example:
        >>> x, w = lw.graph.var("x", (1, 64)), lw.graph.var("w", (16, 64))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.dense(x, w))
        >>> weights = {"w": np.ones((16, 64), "float32")}
        >>> print(*lw.autotvm.task.extract_from_program(module["main"], weights, "llvm"))
        graph/dense((1, 64), (16, 64))
    """
    return extract_from_multiple_program([mod], [params], target, target_host, ops)


def extract_from_multiple_program(
    mods: Sequence[ModelLike | Function],
    params: Sequence[Mapping[str, npt.ArrayLike] | None],
    target: TargetLike = None,
    target_host: TargetLike = None,
    ops: Iterable[Any] | None = None,
) -> list[Task]:
    """The tasks of several networks, each once: `extract_from_program` of ``mods``, the weights of
    each in ``params``; UsageError where their numbers differ.
    """
    from loopwright.graph import extract_tasks

    if len(mods) != len(params):
        raise UsageError(
            f"extract_from_multiple_program: params of {len(params)} networks for {len(mods)}; "
            "give them for each, {} where it has none"
        )
    resolved = resolve_target(with_host(target, target_host))
    names = None if ops is None else [getattr(one, "name", one) for one in ops]
    tasks: dict[str, Task] = {}
    for mod, weights in zip(mods, params, strict=True):
        for one in extract_tasks(bound_module(mod, weights), resolved, ops=names):
            tasks.setdefault(one.task.key, one.task)
    return list(tasks.values())


def bound_module(mod: ModelLike | Function, params: Mapping[str, npt.ArrayLike] | None) -> IRModule:
    """A network as a module whose parameters have their values."""
    from loopwright.graph import Function, IRModule, bind_params_by_name, module_of

    module = IRModule.from_expr(mod) if isinstance(mod, Function) else module_of(mod)
    return bind_params_by_name(module, params or {})


class _ByPosition(type):
    """The type of classes that add only an order of arguments: instances of the base are theirs."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__bases__)


class MeasureInput(TrialInput, metaclass=_ByPosition):
    """One trial to be measured: ``loopwright.MeasureInput`` with AutoTVM's order of arguments.

    A ``target`` other than the task's replaces it. UsageError where the order is another one.

    Example:
        >>> task = lw.autotvm.task.create("matmul", args=(16, 16, 16), target="llvm")
        >>> lw.autotvm.MeasureInput(task.target, task, task.config_space.get(3)).config.index
        3
    """

    def __init__(
        self, target: TargetLike, task: Task, config: ConfigEntity, trial: int = 0
    ) -> None:
        if not isinstance(task, Task) or not isinstance(config, ConfigEntity):
            raise UsageError("MeasureInput takes a target, a task and a configuration of its space")
        wanted = resolve_target(target)
        if wanted != task.target:
            task = Task(task.name, task.args, wanted)
            config = task.config(config)
        super().__init__(task, config, trial)


class MeasureResult(TrialResult, metaclass=_ByPosition):
    """The result of a trial: ``loopwright.MeasureResult`` with AutoTVM's order of arguments;
    UsageError where there is no error of the number.

    Args:
        costs: seconds of each sample; of a failure the exception, or another object.
        error_no: `MeasureErrorNo`, or its number; 0: no failure.
        all_cost, timestamp: seconds that the trial took, and Unix time of its end.
        fields: those of ``loopwright.MeasureResult`` by name, which take precedence.

    Example:
        >>> costs, error_no, all_cost, timestamp = lw.autotvm.MeasureResult((0.5, 0.7), 0, 3.0, 1.6)
        >>> print(costs, error_no.name, all_cost)
        (0.5, 0.7) NO_ERROR 3.0
        >>> print(lw.autotvm.MeasureResult((RuntimeError("no such device"),), 4, 3.0, 1.6e9).error)
        RUN_ERROR: no such device
    """

    def __init__(
        self,
        costs: Sequence[float | BaseException] = (),
        error_no: int = 0,
        all_cost: float = 0.0,
        timestamp: float = 0.0,
        **fields: Any,
    ) -> None:
        text = next((str(cost) for cost in costs if isinstance(cost, BaseException)), "")
        super().__init__(**(result_fields(costs, error_no, text, all_cost, timestamp) | fields))


def result_fields(
    costs: Sequence[Any], error_no: int, text: str, all_cost: float, timestamp: float
) -> dict[str, Any]:
    """The fields of a result, from what TVM's results have by position."""
    if error_no != 0 and error_no not in ERRORS:
        raise UsageError(f"MeasureResult: error_no is a MeasureErrorNo, 0 to 8, got {error_no!r}")
    error = None
    if error_no:
        kind, usual = ERRORS[error_no]
        error = MeasureError(kind, text or usual)
    times = () if error_no else tuple(costs)
    return {"times": times, "error": error, "run_s": all_cost, "ts": timestamp}


class Tuner(AskTellTuner):
    """The base of a custom tuner, which overrides ``next_batch`` and ``update``.

    The loop measures the default configuration first, asks for no configuration twice, and passes
    each round to ``update``, as for every tuner. When a run continues, ``update`` gets the trials
    of the log again. For runs that continue exactly where they stopped, derive from
    `loopwright.tuner.Tuner`. Its ``name`` in logs is that of the class, unless it has one.

    Example:
        >>> class LastFirst(lw.autotvm.tuner.Tuner):
        ...     def next_batch(self, batch_size):
        ...         left = [i for i in range(len(self.task.config_space)) if i not in self.visited]
        ...         return [self.task.config_space.get(i) for i in left[: -batch_size - 1 : -1]]
        >>> tuner = LastFirst(lw.create_task("matmul", (16, 16, 16), "llvm -mcpu=x86-64-v4"))
        >>> print([config.index for config in tuner.ask(2)], tuner.name)
        [815, 814] LastFirst
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = cls.__name__

    @abstractmethod
    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """Up to so many configurations of the space; an exhausted one gives none, or known ones."""

    def update(self, inputs: Sequence[TrialInput], results: Sequence[TrialResult]) -> None:
        """Learn from the results of one round, in the order of their trials."""

    def propose(self, n: int) -> Iterator[int]:
        return map(point, self.next_batch(n))

    def learn(self, results: Sequence[tuple[ConfigEntity, TrialResult]]) -> None:
        inputs = [TrialInput(self.task, config) for config, _ in results]
        self.update(inputs, [result for _, result in results])


class Pair(tuple[MeasureInput, TrialResult]):
    """``(input, result)`` of one record, which is its attribute ``record``.

    Example:
        >>> for measure_input, result in lw.autotvm.record.load_from_file("matmul.jsonl"):
        ...     assert result.error_no == 0 and measure_input.config.index is not None
    """

    record: Record

    def __new__(cls, record: Record, item: MeasureInput) -> Pair:
        pair = super().__new__(cls, (item, result_of(record)))
        pair.record = record
        return pair


def load_from_file(filename: str | os.PathLike[str]) -> Iterator[Pair]:
    """Yield ``(MeasureInput, MeasureResult)`` of each record of a log of loopwright or AutoTVM.

    ``tuner.load_history`` and ``apply_history_best`` take them. Where no task can be made of a
    record here, since its template is not registered, refuses its arguments or has other knobs, or
    its target is of another machine, the input has the names and numbers of the line and an empty
    space; ``inp.task.instantiate`` says why. Malformed lines are skipped with one warning.
    RecordError where the file does not exist or cannot be read.
    """
    return _pairs(load(filename))


def load_from_buffer(file: Iterable[str | bytes]) -> Iterator[Pair]:
    """As `load_from_file`, from an open file or from lines in memory."""
    return _pairs(load_lines(file, str(getattr(file, "name", "the buffer"))))


def _pairs(log: Log) -> Iterator[Pair]:
    """The pairs of a log's records; one warning for all lines that are skipped."""
    if complaint := log.complaint():
        say_once(complaint)
    tasks: dict[tuple[str, str], Task] = {}
    for record in log:
        key = (record.task, target_text(record))
        if key not in tasks:
            tasks[key] = _task(record)
        yield _pair(record, tasks[key])


def _pair(record: Record, task: Task) -> Pair:
    if not isinstance(task, RecordedTask):
        try:
            config = task.config(record.config)
            why = other_knobs(task, record.config)
        except LoopwrightError as error:
            why = str(error)
        if not why:
            return Pair(record, MeasureInput(task.target, task, config, record.trial))
        task = RecordedTask(record, f"this configuration does not fit the template: {why}")
    return Pair(record, MeasureInput(task.target, task, task.recorded(record), record.trial))


def _task(record: Record) -> Task:
    if record.op not in TASKS:
        why = f"the template {record.op!r} is not registered; import the file that defines it"
        return RecordedTask(record, why)
    try:
        return Task(record.op, record.args, record.target)
    except LoopwrightError as error:
        return RecordedTask(record, str(error))


def encode(inp: TrialInput, result: TrialResult, protocol: str = "json") -> str:
    """Write a measurement as one line of an AutoTVM log, version 0.2, without the newline.

    The line holds AutoTVM's fields: target, template, arguments, knob values, times or the number
    of the error. ``log_to_file`` writes all fields of loopwright. UsageError for a protocol other
    than ``"json"``: AutoTVM's ``"pickle"`` is refused.

    Example:
        >>> task = lw.create_task("matmul", (16, 16, 16), "llvm")
        >>> inp = lw.autotvm.MeasureInput(task.target, task, task.config_space.get(3))
        >>> line = lw.autotvm.record.encode(inp, lw.autotvm.MeasureResult(times=(0.5,)))
        >>> lw.autotvm.record.decode(line)[1].costs
        (0.5,)
    """
    _check_protocol("encode", protocol)
    costs: Sequence[float] = result.costs if result.error_no == 0 else (_FAILED,)
    # The knobs as AutoTVM writes them: ``["tile_x", "sp", [-1, 8]]``.
    values = inp.config.values.items()
    entity = [[name, _LETTERS[type(inp.config[name])], value] for name, value in values]
    line: dict[str, Json] = {
        "input": [str(inp.target), inp.task.name, inp.task.args, {}],
        "config": {"index": inp.config.index, "code_hash": None, "entity": entity},
        "result": [costs, int(result.error_no), result.all_cost, result.timestamp],
        "version": 0.2,
        "loopwright_version": __version__,
    }
    return json.dumps(line)


def decode(row: str | bytes, protocol: str = "json") -> Pair | None:
    """Read one line of a log of AutoTVM or of loopwright: ``(MeasureInput, MeasureResult)``.

    None for a comment, a blank line, or any other line that is not a measurement. RecordError where
    the line is malformed; inputs and UsageError as of `load_from_file` and `encode`.

    Example:
        >>> with open("matmul.jsonl") as file:
        ...     pairs = [lw.autotvm.record.decode(line) for line in file]
        >>> print(sum(pair is not None for pair in pairs) >= 6)
        True
    """
    _check_protocol("decode", protocol)
    line = read_line(row.encode() if isinstance(row, str) else row)
    if not isinstance(line, Record):
        return None
    return _pair(line, _task(line))


def _check_protocol(verb: str, protocol: str) -> None:
    if protocol != "json":
        raise UsageError(
            f"{verb}: protocol={protocol!r} is not supported; leave it out, which means "
            '"json" (reading a pickle can run any code)'
        )


def measure_str_key(inp: TrialInput, include_config: bool = True) -> str:
    """A text that is equal for inputs of equal target, template, arguments and, unless left out,
    configuration.
    """
    config = str(inp.config) if include_config else ""
    return f"{inp.target}{inp.task}{config}"


def split_workload(
    in_file: str | os.PathLike[str],
    clean: bool = True,
    out_dir: str | os.PathLike[str] | None = None,
) -> list[Path]:
    """Split a log into one file for each task, and return the files: `loopwright.records.split`;
    RecordError where the log cannot be read, or a file not be written.

    Args:
        clean: accepted: equal lines are written once, and no measurement is left out.
        out_dir: the folder of the files; None: the log's name followed by ``.tasks``.
    """
    return list(split(in_file, f"{os.fspath(in_file)}.tasks" if out_dir is None else out_dir))


class Database(ABC):
    """The base of stores of results by their inputs; derive from it to store them elsewhere.

    Example:
        >>> class Latest(lw.autotvm.database.Database):
        ...     kept = {}
        ...     def load(self, inp, get_all=False):
        ...         return self.kept.get(lw.autotvm.record.measure_str_key(inp))
        ...     def save(self, inp, res, extend=False):
        ...         self.kept[lw.autotvm.record.measure_str_key(inp)] = res
        >>> store = lw.autotvm.callback.log_to_database(Latest())
    """

    @abstractmethod
    def load(
        self, inp: TrialInput, get_all: bool = False
    ) -> TrialResult | list[TrialResult] | None:
        """The latest result of an input, or a list of all as saved; None without one."""

    @abstractmethod
    def save(self, inp: TrialInput, res: TrialResult, extend: bool = False) -> None:
        """Keep a result; with ``extend`` beside the earlier ones, else in their place."""


class DummyDatabase(Database):
    """A database in memory.

    Example:
        >>> task = lw.create_task("matmul", (16, 16, 16), "llvm")
        >>> inp = lw.autotvm.MeasureInput(task.target, task, task.config_space.get(3))
        >>> db = lw.autotvm.database.DummyDatabase()
        >>> db.save(inp, lw.autotvm.MeasureResult(times=(0.5,)))
        >>> db.load(inp).costs
        (0.5,)
    """

    def __init__(self) -> None:
        self._saved: dict[str, tuple[TrialInput, list[TrialResult]]] = {}

    def load(
        self, inp: TrialInput, get_all: bool = False
    ) -> TrialResult | list[TrialResult] | None:
        _, results = self._saved.get(measure_str_key(inp), (inp, []))
        if not results:
            return None
        return list(results) if get_all else _latest(results)

    def save(self, inp: TrialInput, res: TrialResult, extend: bool = False) -> None:
        _, before = self._saved.get(measure_str_key(inp), (inp, []))
        self._saved[measure_str_key(inp)] = (inp, [*(before if extend else []), res])

    def filter(
        self, func: Callable[[TrialInput, Sequence[TrialResult]], bool]
    ) -> list[tuple[TrialInput, TrialResult]]:
        """Inputs for which ``func(input, results)`` is true, each with its latest result."""
        return [(i, _latest(results)) for i, results in self._saved.values() if func(i, results)]

    def flush(self) -> None:
        """Remove all results."""
        self._saved.clear()


def _latest(results: Sequence[TrialResult]) -> TrialResult:
    """The latest; of those of one time the one that was saved last."""
    return max(reversed(results), key=lambda result: result.timestamp)


def filter_inputs(
    db: Database, measure_inputs: Sequence[TrialInput], retry: bool = False
) -> tuple[list[TrialResult | None], list[TrialInput]]:
    """Separate inputs with known results from those to be measured: for each input its result or
    None, and the inputs without a result; with ``retry`` failures count as unknown.
    """
    partial: list[TrialResult | None] = []
    for inp in measure_inputs:
        result = cast("TrialResult | None", db.load(inp))
        partial.append(None if result is None or (retry and result.error_no) else result)
    unsaved = [i for i, r in zip(measure_inputs, partial, strict=True) if r is None]
    return partial, unsaved


class GlobalScope:
    """AutoTVM's state of the whole process; `GLOBAL_SCOPE` is the only instance.

    Example:
        >>> print(lw.autotvm.GLOBAL_SCOPE.in_tuning, lw.autotvm.GLOBAL_SCOPE.silent)
        False False
    """

    @property
    def in_tuning(self) -> bool:
        """False, in a tuning run too: the timed kernel is the one that is used later.

        AutoTVM's templates leave parts of a kernel out where it is True. Here the answer of such a
        kernel would differ from the right one, and its record could not be applied.
        """
        return False

    @in_tuning.setter
    def in_tuning(self, on: bool) -> None:
        if on:
            raise UsageError(
                "GLOBAL_SCOPE.in_tuning stays False: a kernel is timed as it is used later; leave "
                "the assignment out"
            )

    @property
    def silent(self) -> bool:
        """Whether warnings, such as those about default configurations, are left out."""
        return _log.level > logging.WARNING

    @silent.setter
    def silent(self, on: bool) -> None:
        _log.setLevel(logging.ERROR if on else logging.NOTSET)


_log = logging.getLogger("loopwright")
GLOBAL_SCOPE = GlobalScope()


def get_const_int(expr: int | Expr) -> int:
    """An extent as an integer: of a number, as extents of tensors are already, or of a literal.

    TensorError where it is not an integer, or depends on a variable.
    """
    value = expr.value if isinstance(expr, Const) else expr
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TensorError(f"get_const_int: {expr!r} is no number; only fixed extents are known here")


def get_const_tuple(in_tuple: Iterable[int | Expr]) -> tuple[int, ...]:
    """A shape as a tuple of integers, each by `get_const_int`."""
    return tuple(get_const_int(extent) for extent in in_tuple)
