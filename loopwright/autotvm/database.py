"""``autotvm.database``: stores of results by their inputs, for ``callback.log_to_database``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal, NoReturn, overload

from loopwright.autotvm.record import measure_str_key
from loopwright.errors import no_such_name
from loopwright.measure import MeasureInput, MeasureResult

__all__ = ["Database", "DummyDatabase", "filter_inputs"]


class Database(ABC):
    """The base of stores of results by their inputs; derive from it to store them elsewhere.

    Example:
        >>> from loopwright import autotvm
        >>> class Latest(autotvm.database.Database):
        ...     kept = {}
        ...     def load(self, inp, get_all=False):
        ...         return self.kept.get(autotvm.record.measure_str_key(inp))
        ...     def save(self, inp, res, extend=False):
        ...         self.kept[autotvm.record.measure_str_key(inp)] = res
        ...
        >>> store = autotvm.callback.log_to_database(Latest())
    """

    @overload
    def load(self, inp: MeasureInput, get_all: Literal[False] = False) -> MeasureResult | None: ...

    @overload
    def load(self, inp: MeasureInput, get_all: Literal[True]) -> list[MeasureResult] | None: ...

    @abstractmethod
    def load(
        self, inp: MeasureInput, get_all: bool = False
    ) -> MeasureResult | list[MeasureResult] | None:
        """The latest result of an input, or a list of all in the order of saving; None
        without one.
        """

    @abstractmethod
    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        """Keep a result; with ``extend`` beside the earlier ones, else in their place."""


class DummyDatabase(Database):
    """A database in memory.

    Example:
        >>> from loopwright import autotvm
        >>> task = autotvm.task.create("matmul", args=(16, 16, 16), target="llvm")
        >>> inp = autotvm.MeasureInput(task.target, task, task.config_space.get(3))
        >>> db = autotvm.database.DummyDatabase()
        >>> db.save(inp, autotvm.MeasureResult(times=(0.5,)))
        >>> db.load(inp).costs
        (0.5,)
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[MeasureInput, list[MeasureResult]]] = {}

    @overload
    def load(self, inp: MeasureInput, get_all: Literal[False] = False) -> MeasureResult | None: ...

    @overload
    def load(self, inp: MeasureInput, get_all: Literal[True]) -> list[MeasureResult] | None: ...

    def load(
        self, inp: MeasureInput, get_all: bool = False
    ) -> MeasureResult | list[MeasureResult] | None:
        """The latest result of an input, or all of them; None where there is none."""
        kept = self._kept.get(measure_str_key(inp))
        if kept is None:
            return None
        return list(kept[1]) if get_all else _latest(kept[1])

    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        """Keep a result; with ``extend`` beside the earlier ones."""
        _, before = self._kept.get(measure_str_key(inp), (inp, []))
        self._kept[measure_str_key(inp)] = (inp, [*(before if extend else []), res])

    def filter(
        self, func: Callable[[MeasureInput, Sequence[MeasureResult]], bool]
    ) -> list[tuple[MeasureInput, MeasureResult]]:
        """Inputs for which ``func(input, results)`` is true, each with its latest result."""
        return [(i, _latest(results)) for i, results in self._kept.values() if func(i, results)]

    def flush(self) -> None:
        """Remove all results."""
        self._kept.clear()


def _latest(results: Sequence[MeasureResult]) -> MeasureResult:
    """The latest; of those of one time the one that was saved last."""
    return max(reversed(results), key=lambda result: result.timestamp)


def filter_inputs(
    db: Database, measure_inputs: Sequence[MeasureInput], retry: bool = False
) -> tuple[list[MeasureResult | None], list[MeasureInput]]:
    """Separate inputs with known results from those to be measured.

    Args:
        db: the store of results.
        measure_inputs: the inputs.
        retry: treat failures as unknown.

    Returns:
        For each input its result or None, and the inputs without a result.

    Example:
        >>> from loopwright import autotvm
        >>> task = autotvm.task.create("matmul", args=(16, 16, 16), target="llvm")
        >>> configs = map(task.config_space.get, (3, 4))
        >>> inputs = [autotvm.MeasureInput(task.target, task, config) for config in configs]
        >>> db = autotvm.database.DummyDatabase()
        >>> db.save(inputs[0], autotvm.MeasureResult(times=(0.5,)))
        >>> partial, unsaved = autotvm.database.filter_inputs(db, inputs)
        >>> print(partial[0].costs, [inp.config.index for inp in unsaved])
        (0.5,) [4]
    """
    known = [db.load(inp) for inp in measure_inputs]
    partial = [r if r is not None and not (retry and r.error_no) else None for r in known]
    unsaved = [i for i, r in zip(measure_inputs, partial, strict=True) if r is None]
    return partial, unsaved


_INSTEAD = {
    "RedisDatabase": "write a log by callback.log_to_file, or derive a class from Database",
}


def __getattr__(name: str) -> NoReturn:
    raise no_such_name("loopwright.autotvm.database", name, _INSTEAD)
