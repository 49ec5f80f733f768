"""Tuners of the layouts of a whole network, under AutoTVM's names: `loopwright.graph.tune_layouts`.

Both use exact dynamic programming if the data flow between calls allows it, else a heuristic for
partitioned Boolean quadratic problems.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loopwright.compat.autotvm import MeasureInput, Pair
from loopwright.errors import UsageError
from loopwright.graph import (
    MAIN,
    Function,
    IRModule,
    LayoutChoice,
    LayoutCosts,
    Measured,
    ModelLike,
    TensorType,
    extract_tasks,
    from_onnx,
    get_op,
)
from loopwright.history import apply_history_best
from loopwright.measure import LocalBuilder, LocalRunner, MeasureOption, measure_option
from loopwright.task import TargetLike, resolve_target

#: The operator whose layouts are chosen; pools, and what joins several images, go with it.
_CONVOLUTION = "nn.conv"


class BaseGraphTuner:
    """The base of `DPTuner` and `PBQPTuner`; `run` sets its ``choice`` of layouts, None before.

    Args:
        graph: the network: a module, a function, or an ONNX model.
        input_shapes: the shape of each input by its name.
        records: a log of tuned kernels, or pairs of ``autotvm.record.load_from_file``. A kernel
            without a record costs the time of its default, which `run` measures.
        target_ops: operators whose layouts are chosen, as names or ``loopwright.graph.Op``;
            ``nn.conv`` must be among them.
        log_file: the log that measurements are appended to, and from which known ones are taken;
            None: they are forgotten.
        max_sch_num, dtype, verbose, log_level, name: accepted: the best record of each kernel and
            the types of the graph count.

    Raises:
        GraphError: there is no such operator, or the network is invalid.
        RecordError: a log is missing or cannot be read.
        UsageError: a shape differs from the input's, or no convolution is to be tuned.
    """

    def __init__(
        self,
        graph: ModelLike | Function,
        input_shapes: Mapping[str, Sequence[int]],
        records: Any,
        target_ops: Iterable[Any],
        target: TargetLike,
        max_sch_num: int = 20,
        dtype: str = "float32",
        verbose: bool = True,
        log_file: str | os.PathLike[str] | None = "graph_tuner.log",
        log_level: object = None,
        name: str = "graph_tuner",
    ) -> None:
        names = [one if isinstance(one, str) else getattr(one, "name", one) for one in target_ops]
        for operator in names:
            get_op(operator)
        if _CONVOLUTION not in names:
            raise UsageError(
                f"target_ops has {', '.join(map(str, names)) or 'nothing'}: layouts are chosen for "
                f'convolutions, and for pools with them; give ["{_CONVOLUTION}"]'
            )
        self._module = _module(graph, input_shapes)
        self._target = resolve_target(target)
        self._history = apply_history_best(records)
        self._log = log_file
        self._costs = LayoutCosts.of(self._module, self._target)
        self._price: Measured | None = None
        self.choice: LayoutChoice | None = None

    def benchmark_layout_transform(
        self,
        min_exec_num: int = 100,
        timeout: float = 10,
        use_rpc: bool = False,
        device_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 9190,
        n_parallel: int | None = 1,
        build_func: str = "default",
        layout_records: Any = None,
        target_host: TargetLike = None,
        infer_layout: bool = False,
        runner: LocalRunner | None = None,
    ) -> None:
        """Measure the cost of moving images from one layout to another; errors as of `run`.

        For each pair of layouts the largest value is measured; the cost of smaller ones is in
        proportion to their bytes, as with AutoTVM's ``infer_layout``.

        Args:
            min_exec_num, timeout: runs of each transform, and seconds for it.
            n_parallel, build_func: as of ``LocalBuilder``.
            layout_records: a log of earlier measurements of transforms.
            runner: the runner, in place of one made from the arguments above.
            use_rpc: refused by a UsageError.
            device_key, host, port, target_host, infer_layout: accepted.
        """
        if use_rpc:
            raise UsageError(
                "benchmark_layout_transform: there is no RPC; leave use_rpc out, and measure on "
                "the machine itself"
            )
        builder = LocalBuilder(n_parallel=n_parallel, build_func=build_func)
        runner = runner or LocalRunner(number=min_exec_num, repeat=1, timeout=timeout)
        self._price = self._prices(measure_option(builder, runner), layout_records)
        self._price.measure(self._costs.transforms)

    def run(self, **kwargs: Any) -> None:
        """Choose the layouts, after measuring everything that was not measured yet; errors as of
        `loopwright.tune_tasks`.
        """
        price = self._price or self._prices(None, None)
        price.measure([*self._costs.kernels.values(), *self._costs.transforms])
        self.choice = self._costs.choice(price)

    def get_optimal_record(self) -> list[Pair]:
        """The best records of the kernels that the network has in the chosen layouts, in the order
        of first use; kernels without a record, which are built as their default, are left out.
        UsageError where nothing was chosen yet.
        """
        tasks = extract_tasks(self._module, self._target, layouts=self._chosen())
        pairs = []
        for one in tasks:
            record = self._history.choose(one.task)[0].record
            config = None if record is None else self._history.config_for(one.task)
            if record is not None and config is not None:
                item = MeasureInput(one.task.target, one.task, config, record.trial)
                pairs.append(Pair(record, item))
        return pairs

    def write_opt_sch2record_file(
        self, record_file: str | os.PathLike[str] = "graph_opt_schedule.log"
    ) -> None:
        """Write the layouts to a file, which ``layouts=`` of `loopwright.compile` reads; schedules
        stay in the log of the kernels, which is given there as ``history=``. UsageError where
        nothing was chosen yet; GraphError where the file cannot be written.
        """
        self._chosen().save(record_file)

    def _chosen(self) -> LayoutChoice:
        if self.choice is None:
            raise UsageError("no layouts are chosen yet; call run() first")
        return self.choice

    def _prices(self, option: MeasureOption | None, more: Any) -> Measured:
        prices = Measured(self._history, self._log, measure_option=option)
        prices.know(more)
        return prices


class DPTuner(BaseGraphTuner):
    """Tuner of layouts by dynamic programming, where the network allows it; see the module.

    Example:
        >>> x = lw.graph.var("x", (1, 8, 6, 6))
        >>> y = lw.graph.op.nn.conv(x, np.ones((8, 8, 3, 3), "float32"))
        >>> module = lw.graph.IRModule.from_expr(y)
        >>> make = lw.autotvm.graph_tuner.DPTuner
        >>> print(make(module, {"x": (1, 8, 6, 6)}, [], ["nn.conv"], "llvm").choice)
        None
    """


class PBQPTuner(BaseGraphTuner):
    """Tuner of layouts by a partitioned Boolean quadratic problem; see the module.

    Example:
        >>> issubclass(lw.autotvm.graph_tuner.PBQPTuner, lw.autotvm.graph_tuner.BaseGraphTuner)
        True
    """


def _module(graph: ModelLike | Function, shapes: Mapping[str, Sequence[int]]) -> IRModule:
    if isinstance(graph, Function):
        graph = IRModule({MAIN: graph})
    if not isinstance(graph, IRModule):
        return from_onnx(graph, shape=dict(shapes))
    types = {p.name: p.type for p in graph[MAIN].params}
    for name, shape in shapes.items():
        t = types.get(name)
        if not isinstance(t, TensorType):
            raise UsageError(
                f"input_shapes: the graph has no input {name!r}; it has {', '.join(types)}"
            )
        if tuple(t.shape) != tuple(shape):
            raise UsageError(
                f"input_shapes: input {name!r} of the graph is {t}, not of shape {tuple(shape)}"
            )
    return graph
