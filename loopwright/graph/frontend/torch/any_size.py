"""Programs of symbolic size for a graph of PyTorch that is called with ever new sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from loopwright.errors import GraphError
from loopwright.executors import GraphExecutor, Model, SharedArrays, SizedModel
from loopwright.graph.building import ModelBuilder, records_of
from loopwright.graph.frontend.torch.options import Options
from loopwright.graph.frontend.torch.weights import Weights
from loopwright.graph.ir.module import IRModule
from loopwright.graph.plan import plan_sized
from loopwright.graph.sized import Generalised, generalised, sized_kernels
from loopwright.graph.transform.pipeline import pipeline
from loopwright.runtime import device_of_target


class Served(NamedTuple):
    """A model with its executor, for one size of a graph."""

    model: Model
    executor: GraphExecutor
    weights: Weights
    moved: list[int]  # indices of weights that are its last inputs


class AnySize:
    """The program that takes every size of a graph, where there can be one."""

    def __init__(self, options: Options, packed: SharedArrays) -> None:
        # packed: shared arrays that kernels compute from weights
        self._options, self._packed = options, packed
        self._known: list[IRModule] = []
        self._pattern: tuple[object, ...] = ()
        self._whole: tuple[SizedModel, Weights, list[int], frozenset[str]] | None = None
        self._possible = device_of_target(options.resolved.kind) == "cpu"

    def serve(
        self, module: IRModule, weights: Weights, args: Sequence[Any], many: bool
    ) -> Served | None:
        """Serve a module by the program of any size; None: it needs its own.

        ``many`` says that so many sizes came that no more programs are to be built.
        """
        if self._whole is not None and self._whole[1].changed(args):
            self._known, self._whole = [], None
        pair = self._paired(module) if many and self._possible else None
        if self._whole is None:
            self._known = [*self._known, module] if pair else [module]
        if pair is None:
            return None
        if self._whole is None:
            self._pattern = pair.pattern
            try:
                self._whole = self._built(pair, weights)
            except GraphError:  # an operator or a kernel needs to know the size
                self._possible = False
        if self._whole is None or pair.pattern != self._pattern:
            return None
        sized, weights, moved, live = self._whole
        model = sized.at(pair.numbers[1])
        return Served(model, sized.executor(model.program, live), weights, moved)

    def _paired(self, module: IRModule) -> Generalised | None:
        """Merge this module with a known one of another size; None where they differ more."""
        for known in self._known:
            try:
                return generalised(known, module)
            except GraphError:  # the same size, another graph, or other weights
                continue
        return None

    def _built(
        self, pair: Generalised, weights: Weights
    ) -> tuple[SizedModel, Weights, list[int], frozenset[str]]:
        """The program, its weights, which of them are inputs, and which are read in place."""
        module, moved = weights.with_inputs(pair.module)
        order, target = sorted(pair.numbers, reverse=True), self._options.resolved
        planned = plan_sized(pipeline(module, target=target), pair.size)
        builder = ModelBuilder(target, records_of(self._options.records))
        kernels = sized_kernels(planned, pair.size, order, builder)
        constants = {n: np.asarray(a) for n, a in planned.constants.items()}
        sized = SizedModel(planned.program, kernels.modules, constants, shared=self._packed)
        weights.leave(moved)
        return sized, weights, moved, weights.in_place(module, sized.at(order[0]))
