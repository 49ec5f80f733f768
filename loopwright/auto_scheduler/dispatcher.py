"""``auto_scheduler.dispatcher``: contexts in which the best records are applied."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from loopwright import records as logs
from loopwright.auto_scheduler.loop_state import State
from loopwright.auto_scheduler.search_task import SearchTask
from loopwright.errors import UsageError
from loopwright.history import ApplyHistoryBest as _History
from loopwright.records import Record
from loopwright.task import DispatchContext
from loopwright.task.task import TargetLike
from loopwright.tuner import ApplyHistoryBestOrSample as _HistoryOrSample

if TYPE_CHECKING:
    from loopwright.auto_scheduler.compute_dag import ComputeDAG
    from loopwright.task.template import Scheduled

__all__ = ["ApplyHistoryBest", "ApplyHistoryBestOrSample", "DispatchContext"]


def _first(records: Any, n_lines: int | None) -> Any:
    """The first records of a log, or of pairs."""
    if isinstance(records, (str, bytes)) or hasattr(records, "__fspath__"):
        return records if n_lines is None else list(islice(logs.load(records), n_lines))
    if records is None:
        return None
    return [_record(item) for item in islice(records, n_lines)]


def _record(item: Any) -> Record:
    """The record of an item of `load_records`, or the record itself."""
    found = item if isinstance(item, Record) else getattr(item[0], "record", None)
    if not isinstance(found, Record):
        raise UsageError(
            "records are those of a log: give its path, or what load_records yields; got "
            f"{item!r:.60}"
        )
    return found


class ApplyHistoryBest(_History):
    """Build with the best records of a log: ``loopwright.apply_history_best`` with Ansor's
    arguments.

    Inside the context ``loopwright.build(tensors)``, and calls of functions that
    `loopwright.workload` decorates, get the schedule of the best record of their expression.

    Args:
        records: the path of a log, or pairs as `load_records` yields them.
        n_lines: number of records from the beginning; None: all.
        include_compatible: also records of other hardware. (Ansor: of other sizes.)

    Raises:
        RecordError: the log is missing or cannot be read.
        UsageError: ``records`` is of another kind.

    Example:
        >>> from loopwright import auto_scheduler
        >>> A, B = (te.placeholder((64, 64), name=name) for name in "AB")
        >>> k = te.reduce_axis((0, 64), name="k")
        >>> C = te.compute((64, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
        >>> with auto_scheduler.ApplyHistoryBest("matmul.jsonl") as history:
        ...     f = lw.build([A, B, C], "llvm")
        ...
        >>> print(history.report()[0].record is not None)
        True
    """

    def __init__(
        self,
        records: Any,
        n_lines: int | None = None,
        include_compatible: bool = False,
    ) -> None:
        super().__init__(_first(records, n_lines), any_hardware=include_compatible)

    def load(self, records: Any, n_lines: int | None = None) -> None:
        """Add more records; arguments and errors as of the class."""
        super().load(_first(records, n_lines))

    def query(  # type: ignore[override]  # Ansor's arguments, and a state
        self,
        target: TargetLike,
        workload_key: str,
        has_complex_op: bool = True,
        dag: ComputeDAG | None = None,
    ) -> State | None:
        """The state of the best record of a workload; None where no record fits.

        Args:
            workload_key: the key of the workload.
            has_complex_op: accepted.
            dag: the expression, in place of the key.
        """
        key = None if dag is not None else workload_key
        task = SearchTask(compute_dag=dag, workload_key=key, target=target)

        def best() -> Scheduled | None:
            return self.choose(task.automatic_task)[1]

        return None if best() is None else State(cast("Any", best), task.compute_dag.places)


class ApplyHistoryBestOrSample(_HistoryOrSample):
    """`ApplyHistoryBest` that samples a configuration for an expression without a record.

    Args:
        records: as of `ApplyHistoryBest`; None for no log.
        sample_simple_workloads: accepted: every workload is sampled.
        cost_model_file: accepted only as None: the analytical model needs no file.
        num_measure: trials of a short search for each such expression; no search below 1.

    Raises:
        UsageError: a file of a model is given.
        RecordError: as of `ApplyHistoryBest`.

    Example:
        >>> from loopwright import auto_scheduler
        >>> X = te.placeholder((256,), name="X")
        >>> Y = te.compute((256,), lambda i: X[i] * 2, name="Y")
        >>> with auto_scheduler.ApplyHistoryBestOrSample(None):
        ...     f = lw.build([X, Y], "llvm")
        ...
        >>> y = np.empty(256, "float32")
        >>> f(np.ones(256, "float32"), y)
        >>> print(y[0])
        2.0
    """

    def __init__(
        self,
        records: str | Iterable[Any] | None,
        sample_simple_workloads: bool = False,
        cost_model_file: str | None = None,
        num_measure: int = -1,
    ) -> None:
        if cost_model_file is not None:
            raise UsageError(
                "ApplyHistoryBestOrSample: models are trained from records and kept in no file; "
                "leave cost_model_file out"
            )
        super().__init__(_first(records, None), num_measure=max(0, num_measure))
