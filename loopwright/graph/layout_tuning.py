"""The graph tuner: layouts of a whole model by the cost of kernels and of layout transforms."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright.cost import cycles
from loopwright.errors import UsageError
from loopwright.graph.building import records_of
from loopwright.graph.frontend.source import ModelLike, module_of
from loopwright.graph.fuse_ops import calls_beside
from loopwright.graph.infer import Types
from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.visitor import called, free_vars
from loopwright.graph.kernels import KernelTask, fastest, kernel_tasks
from loopwright.graph.layout.choice import LayoutChoice, Places, identity
from loopwright.graph.layout.layouts import FIRST, LAST, Layout, blocked
from loopwright.graph.layout.pbqp import solve
from loopwright.graph.layout.rewriting import Rewriting, has_few
from loopwright.graph.plan import plan
from loopwright.graph.transform.pipeline import AFTER_LAYOUTS, before_layouts
from loopwright.history import ApplyHistoryBest, Source, apply_history_best
from loopwright.task import TargetLike, fallback, resolve_target
from loopwright.tuner import log_to_file, tune_tasks

if TYPE_CHECKING:
    from loopwright.target import Target


#: Kernels, each by the tasks of the ways to compute it, with how often it is called.
Kernels = Sequence[tuple[Sequence[KernelTask], int]]


def kernels_of_calls(
    calls: Sequence[ir.Call], types: Types, layout: Layout, target: Target
) -> Kernels | None:
    """The kernels of fused calls in a layout of their inputs; None where it cannot be so."""
    f, anchor = _alone(calls, types)
    own_types = Types(IRModule({MAIN: f}))
    r = Rewriting(own_types, lambda _: layout)
    rank = r.rank(anchor)
    few = anchor.args[0] if called(anchor) == "nn.conv" else None
    for p in f.params:
        t = own_types.tensor(p)
        shape = t.shape
        as_is = len(shape) != rank or not layout.fits(shape) or (p is few and has_few(shape))
        lies = FIRST if as_is else layout
        r.forms[p] = {lies: ir.Var(p.name, ir.TensorType(lies.shape(shape), t.dtype))}
    r.walk(f.body)
    if r.home(f.body) != layout:
        return None
    return _kernels(r.form(f.body, layout), target)


def kernels_of_transform(t: ir.TensorType, source: Layout, to: Layout, target: Target) -> Kernels:
    x = ir.Var("x", ir.TensorType(source.shape(t.shape), t.dtype))
    return _kernels(source.moved(x, t.shape, to), target)


def _kernels(body: ir.Expr, target: Target) -> Kernels:
    module = IRModule({MAIN: ir.Function(tuple(free_vars(body)), body)})
    planned = plan(AFTER_LAYOUTS(module))
    tasks = kernel_tasks(planned, target)
    return [(candidates, planned.calls[name]) for name, candidates in tasks.items()]


def _alone(calls: Sequence[ir.Call], types: Types) -> tuple[ir.Function, ir.Call]:
    """Some calls as a function of what they read, and the first convolution or pool among them."""
    params: dict[ir.Expr, ir.Var] = {}
    inner: dict[ir.Expr, ir.Expr] = {}

    def operand(e: ir.Expr) -> ir.Expr:
        if e in inner or isinstance(e, (ir.OpRef, ir.Constant)):
            return inner.get(e, e)
        return params.setdefault(e, ir.Var(f"x{len(params)}", types[e]))

    anchors = []
    for call in calls:
        new = call.with_children(tuple(map(operand, call.children)))
        inner[call] = new
        if called(call) in ("nn.conv", "nn.max_pool", "nn.avg_pool"):
            anchors.append(new)
    body = inner[calls[-1]]
    (anchor,) = anchors
    assert isinstance(anchor, ir.Call)
    return ir.Function(tuple(params.values()), body), anchor


#: Total cost of some kernels; infinite where one of them cannot be built.
Price = Callable[["Kernels"], float]


def modelled(kernels: Kernels) -> float:
    """The cycles of the defaults of some kernels by the analytical model."""
    tasks = [(candidates[0].task, count) for candidates, count in kernels]
    return sum(n * cycles(fallback(task)[0].state, task.target) for task, n in tasks)


class Measured:
    """Prices in seconds, by records."""

    def __init__(
        self, history: Source | Any, log: str | os.PathLike[str] | None, **options: Any
    ) -> None:
        # measurements are appended to the log (None: forgotten), which is a history, too
        self._log, self._options = log, options
        self._sources: list[ApplyHistoryBest] = []
        self.know(history)
        if log is not None and Path(log).exists():
            self.know(os.fspath(log))

    def know(self, history: Source | Any) -> None:
        if (history := records_of(history)) is not None:
            self._sources.append(history)

    def measure(self, every: Iterable[Kernels]) -> None:
        """Measure the defaults of kernels without a record, each once."""
        missing = {
            candidates[0].task.key: candidates[0].task
            for kernels in every
            for candidates, _ in kernels
            if self._seconds(candidates) is None
        }
        if not missing:
            return
        if self._log is not None:
            self._run(list(missing.values()), os.fspath(self._log))
            return
        with tempfile.TemporaryDirectory() as folder:
            self._run(list(missing.values()), str(Path(folder, "layouts.jsonl")))

    def _run(self, tasks: Sequence[Any], log: str) -> None:
        options = {"tuner": "grid", "n_trial": len(tasks), **self._options}
        callbacks = [log_to_file(log), *options.pop("callbacks", ())]
        tune_tasks(tasks, callbacks=callbacks, **options)
        self._sources.append(apply_history_best(log))

    def __call__(self, kernels: Kernels) -> float:
        seconds = [(self._seconds(candidates), count) for candidates, count in kernels]
        return sum(math.inf if s is None else s * count for s, count in seconds)

    def _seconds(self, candidates: Sequence[KernelTask]) -> float | None:
        """The seconds of the fastest measured implementation of a kernel; None without any."""
        times = [
            source.choose(fastest(candidates, source).task)[0].expected for source in self._sources
        ]
        return min((t for t in times if t is not None), default=None)


#: Sizes of blocks of channels that are candidates.
BLOCKS = (8, 16)
#: The part of its cost by which a choice has to be cheaper than what `ConvertLayout` gives, which
#: is kept else: prices differ by as much from one measurement to the next.
LEAST_GAIN = 0.03


def tune_layouts(
    model: ModelLike,
    target: TargetLike = None,
    history: Source | Any = None,
    *,
    log: str | os.PathLike[str] | None = None,
    blocks: Sequence[int] = BLOCKS,
    measure: bool = True,
    example_inputs: Sequence[Any] | None = None,
    **options: Any,
) -> LayoutChoice:
    """Choose a layout for each convolution and pool of a model, by their costs.

    Candidates are NCHW, NHWC, and NCHWc for each block that divides the channels. The cost of a
    kernel is that of its best record; one without a record is built as its default, and measured
    once. Between calls of different layouts there is a transform, whose cost is measured as well:
    for each pair of layouts that of the largest value, and of smaller ones in proportion to their
    bytes. The sum is minimised by `loopwright.graph.layout.pbqp`, exactly where the calls and their
    reads form a tree or nearly one. Where the result is less than 3 % below the cost of the layouts
    of `ConvertLayout`, these are kept.

    The prices ignore that a value is moved once for several readers in the same layout, and that a
    kernel finds its inputs in caches inside the model. After Liu et al., *Optimizing CNN Model
    Inference on CPUs*, USENIX ATC 2019, and TVM's graph tuner.

    Args:
        model, target, history, example_inputs: as of `compile`.
        log: the file that measurements are appended to, which is used as a history, too; None:
            they are forgotten.
        blocks: channels in a block, such as the lanes of a vector and twice as many.
        measure: False prices all kernels by the analytical model, in cycles: nothing is built, and
            records are ignored.
        options: of `loopwright.tune_tasks`, such as ``measure_option``.

    Raises:
        GraphError: this is no model.
        UsageError: a block is no number above one.
        TuneError, NothingRan, TuningInterrupted: as of `loopwright.tune_tasks`.

    Example:
        >>> x = lw.graph.var("x", (1, 16, 8, 8))
        >>> y = lw.graph.op.nn.conv(x, np.ones((16, 16, 3, 3), "float32"))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(y))
        >>> choice = lw.graph.tune_layouts(module, "llvm", measure=False)
        >>> print(len(choice.layouts), choice.unit, choice.cost <= choice.converted)
        1 cycles True
    """
    module = module_of(model, example_inputs=example_inputs)
    costs = LayoutCosts.of(module, resolve_target(target), blocks)
    if not measure:
        return costs.choice(modelled, "cycles")
    price = Measured(history, log, **options)
    price.measure([*costs.kernels.values(), *costs.transforms])
    return costs.choice(price)


@dataclass
class LayoutCosts:
    """The kernels to be priced, and the choice that follows from the prices."""

    places: Places  # of ``main``
    module: str  # its `identity`
    target: Target
    candidates: list[list[Layout]] = field(default_factory=list)  # the layouts of each place
    #: of a place in a layout, for places with kernels
    kernels: dict[tuple[int, Layout], Kernels] = field(default_factory=dict)
    #: for each two layouts and dtype, the transform of the largest value, with its elements
    moves: dict[tuple[Layout, Layout, str], tuple[Kernels, int]] = field(default_factory=dict)

    @staticmethod
    def of(module: IRModule, target: Target, blocks: Sequence[int] = BLOCKS) -> LayoutCosts:
        """All candidates of a model with their kernels; nothing is built yet."""
        for block in blocks:
            if isinstance(block, bool) or not isinstance(block, int) or block < 2:
                raise UsageError(f"blocks has {block!r}; give numbers of channels, such as 8, 16")
        module = before_layouts(module, target)
        f = module[MAIN]
        costs = LayoutCosts(Places.of(f, Types(module)), identity(module), target)
        layouts = [FIRST, LAST, *(blocked(b) for b in dict.fromkeys(blocks))]
        beside = calls_beside(f)
        for n, anchor in enumerate(costs.places.anchors):
            fitting = costs.places.candidates(n, layouts)
            if costs.places.is_kernel(n):
                every = {
                    one: kernels_of_calls(beside[anchor], costs.places.types, one, target)
                    for one in fitting
                }
                fitting = [one for one in fitting if every[one] is not None]
                costs.kernels |= {(n, one): k for one, k in every.items() if k is not None}
            costs.candidates.append(fitting)
        largest: dict[tuple[Layout, Layout, str], ir.TensorType] = {}
        for t, source, to in costs._transforms():
            key = (source, to, t.dtype)
            if key not in largest or ir.elements(t) > ir.elements(largest[key]):
                largest[key] = t
        for (source, to, dtype), t in largest.items():
            kernels = kernels_of_transform(t, source, to, target)
            costs.moves[source, to, dtype] = (kernels, ir.elements(t))
        return costs

    @property
    def transforms(self) -> list[Kernels]:
        return [kernels for kernels, _ in self.moves.values()]

    def choice(self, price: Price, unit: str = "seconds") -> LayoutChoice:
        """The layouts that cost least; ``unit`` is ``"seconds"`` or ``"cycles"``."""
        chosen, cost, converted, exact = self._solved(price)
        prices = cost, converted, unit, exact
        operators = self.places.operators
        return LayoutChoice(tuple(chosen), operators, self.module, *prices, str(self.target))

    def _transforms(self) -> list[tuple[ir.TensorType, Layout, Layout]]:
        """Each value that may be moved, with the layouts from and to."""
        return [
            (t, source, to)
            for a, b, t in self.places.edges
            for source in ([FIRST] if a is None else self.candidates[a])
            for to in ([FIRST] if b is None else self.candidates[b])
            if source != to and source.fits(t.shape) and to.fits(t.shape)
        ]

    def _solved(self, price: Price) -> tuple[list[Layout], float, float, bool]:
        """The layouts of the places, their cost, that of `ConvertLayout`, whether it is exact."""
        kernels = {key: price(choices) for key, choices in self.kernels.items()}
        # Unmeasurable layouts are no candidates; the original one is kept if none is left.
        candidates = [
            [one for one in choices if math.isfinite(kernels.get((n, one), 0.0))] or [FIRST]
            for n, choices in enumerate(self.candidates)
        ]
        moved = self._mover(price)
        costs = []
        for n, layouts in enumerate(candidates):
            prices = np.array([kernels.get((n, one), 0.0) for one in layouts])
            costs.append(np.where(np.isfinite(prices), prices, 0.0))
        edges: dict[tuple[int, int], Any] = {}
        for a, b, t in self.places.edges:
            sources, goals = ([FIRST] if n is None else candidates[n] for n in (a, b))
            pairs = np.array([[moved(t, i, j) for j in goals] for i in sources])
            if a is not None and b is not None:
                edges[a, b] = edges.get((a, b), 0.0) + pairs
            elif a is not None:
                costs[a] += pairs[:, 0]
            elif b is not None:
                costs[b] += pairs[0]
        default = [
            choices.index(one) if one in choices else 0
            for one, choices in zip(self.places.converted(), candidates, strict=True)
        ]
        solution = solve(costs, edges, [default, [0] * len(costs)])
        nodes = sum(float(c[i]) for c, i in zip(costs, default, strict=True))
        converted = nodes + sum(float(m[default[a], default[b]]) for (a, b), m in edges.items())
        gains = solution.cost <= converted * (1 - LEAST_GAIN)
        choice, cost = (solution.choice, solution.cost) if gains else (default, converted)
        chosen = [choices[i] for choices, i in zip(candidates, choice, strict=True)]
        return chosen, cost, converted, solution.exact

    def _mover(self, price: Price) -> Callable[[ir.TensorType, Layout, Layout], float]:
        """The price of a value's move, by that of the largest one of its kind for its elements."""
        each = {key: price(kernels) / count for key, (kernels, count) in self.moves.items()}
        # A transform that could not be measured costs as much as the slowest that could.
        worst = max((p for p in each.values() if math.isfinite(p)), default=0.0)

        def moved(t: ir.TensorType, source: Layout, to: Layout) -> float:
            if source == to:
                return 0.0
            own = each.get((source, to, t.dtype), worst)
            return ir.elements(t) * (own if math.isfinite(own) else worst)

        return moved
