"""`compile`: builds an executable model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

from loopwright.errors import UsageError
from loopwright.graph.batches.compiled import CompiledBatches, compile_batches
from loopwright.graph.batches.source import BatchSource, checked_batches, one_batch, source_of
from loopwright.graph.building import CompiledModel, compile_module
from loopwright.graph.finalists import check_count
from loopwright.graph.frontend.source import ModelLike, module_of
from loopwright.graph.layout.choice import MEASURED, LayoutChoice, chosen_layouts
from loopwright.graph.layout.tuning import tune_layouts
from loopwright.history import ApplyHistoryBest, apply_history_best
from loopwright.history.contexts import Source
from loopwright.runtime.artifacts.kinds import device_of_target
from loopwright.target import Target
from loopwright.task.task import TargetLike, resolve_target


@overload
def compile(
    model: ModelLike | BatchSource,
    target: TargetLike = None,
    history: Source | Any = None,
    *,
    finalists: int | None = None,
    layouts: LayoutChoice | str | os.PathLike[str] | None = None,
    example_inputs: Sequence[Any] | None = None,
    fallback: bool = True,
    batches: None = None,
) -> CompiledModel: ...


@overload
def compile(
    model: ModelLike | BatchSource,
    target: TargetLike = None,
    history: Source | Any = None,
    *,
    finalists: int | None = None,
    example_inputs: Sequence[Any] | None = None,
    fallback: bool = True,
    batches: Iterable[int],
) -> CompiledBatches: ...


def compile(
    model: ModelLike | BatchSource,
    target: TargetLike = None,
    history: Source | Any = None,
    *,
    finalists: int | None = None,
    layouts: LayoutChoice | str | os.PathLike[str] | None = None,
    example_inputs: Sequence[Any] | None = None,
    fallback: bool = True,
    batches: Iterable[int] | None = None,
) -> CompiledModel | CompiledBatches:
    """Build a model: simplify its graph, fuse, plan memory, and build each kernel once.

    Args:
        model: a module, whose ``main`` is built; an ONNX model as `from_onnx` takes it; or a model
            of PyTorch as `from_torch` does.
        target: None is the current target, or the default one. Of ``"cuda"`` or ``"opencl"`` the
            model runs on such a device, see `CompiledModel.executor`.
        history: a log, or whatever else `loopwright.apply_history_best` takes. A kernel is built
            from the best record of its expression, if a playoff found that faster than the default,
            else as without a history; `CompiledModel.report` says which. Of several implementations
            of an operator the one with the fastest record is built, without records the one of the
            highest priority; `CompiledModel.implementations` says which. None: as the
            ``apply_history_best`` around the call says, if there is one.
        finalists: number of the fastest records of each kernel that, with its default, take turns
            inside runs of the model on random inputs: a kernel that wins by itself may lose there.
            Records that no playoff compared with the default take part, too. A kernel that is
            measurably faster than the one the records choose is built in its place;
            `CompiledModel.inside` tells. None: the choice of the records is built.
        layouts: what `tune_layouts` chose for the same model, or the file that this was saved to;
            ``"measured"`` calls it with this history, and measures what that does not hold. None:
            as `ConvertLayout` has it.
        example_inputs: what a ``torch.nn.Module`` is called with.
        fallback: whether unsupported nodes of an ONNX model are computed by ``onnx.reference``,
            those of a PyTorch model by PyTorch. `CompiledModel.report` lists them. False refuses
            them, all in one message.
        batches: for a model one of whose extents is a size variable, such as the first of each
            input: the values for which a program with kernels of its own is built. Inputs of any
            other value are taken by a program whose kernels have a size variable, scheduled as for
            the largest of these; where an operator needs to know the size, by a program that is
            built on its first use. None: all extents are numbers.

    Returns:
        A `CompiledModel`; with ``batches`` a `CompiledBatches`.

    Raises:
        GraphError: this is no model, nodes are not supported, a type does not fit, ``main`` has
            branches, or the layouts are of another model; with ``batches``, the inputs have no size
            variable, or several.
        RecordError: a log is missing or cannot be read.
        UsageError: ``finalists`` is no whole number above zero, or with it, there is no device of
            the target here; or ``batches`` is empty, or given with ``layouts``; or either is given
            for a target that is no CPU.

    Example:
        >>> x = lw.graph.var("x", (4,))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(lw.graph.op.negative(x)))
        >>> model = lw.graph.compile(module, "llvm")
        >>> print(model(np.array([1, -2, 3, -4], "float32"))[0])
        [0. 2. 0. 4.]
    """
    if finalists is not None:
        check_count(finalists)
    declared = None if batches is None else checked_batches(batches)
    resolved = resolve_target(target)
    _check_device(resolved, {"finalists": finalists, "batches": declared})
    measured = isinstance(layouts, str) and layouts == MEASURED
    choice = None if measured else chosen_layouts(layouts)
    if layouts is not None and declared is not None:
        raise UsageError(
            "layouts are chosen for known sizes, and batches are declared; give one of the two, or "
            "compile the model of each batch by itself"
        )
    if history is not None and not isinstance(history, ApplyHistoryBest):
        history = apply_history_best(history)
    if declared is not None:
        source = source_of(model, example_inputs=example_inputs, fallback=fallback)
        return compile_batches(source, declared, resolved, history, finalists)
    module = module_of(one_batch(model), example_inputs=example_inputs, fallback=fallback)
    if measured:
        choice = tune_layouts(module, resolved, history)
    return compile_module(module, resolved, history, finalists, layouts=choice)


def _check_device(target: Target, options: Mapping[str, object]) -> None:
    if device_of_target(target.kind) in (None, "cpu"):
        return
    given = next((name for name, value in options.items() if value is not None), None)
    if given is not None:
        raise UsageError(
            f"{given}: models for {target.kind} are built without, since it is for CPUs; leave it "
            "out"
        )
