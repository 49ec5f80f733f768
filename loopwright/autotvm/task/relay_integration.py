"""``autotvm.task.relay_integration``: the tasks of networks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from loopwright.errors import UsageError
from loopwright.target import Target
from loopwright.task import Task
from loopwright.task.task import TargetLike, resolve_target

if TYPE_CHECKING:
    from loopwright.graph import Function
    from loopwright.graph.frontend.source import ModelLike

__all__ = ["extract_from_multiple_program", "extract_from_program"]


def extract_from_program(
    mod: ModelLike | Function,
    params: Mapping[str, npt.ArrayLike] | None = None,
    target: TargetLike = None,
    target_host: TargetLike = None,
    ops: Iterable[Any] | None = None,
) -> list[Task]:
    """The tasks of a network, each once, without their number of calls.

    They belong to the kernels that `loopwright.compile` builds for the same target, and have
    automatic spaces. A kernel with several implementations has a task for each. `loopwright.tune`
    shares the trials out among the tasks by their share of the time.

    Args:
        mod: a module of `loopwright.graph`, a function of it, or an ONNX model.
        params: arrays by the names of the parameters that are weights; None: none are.
        target: such as ``"llvm"`` or a ``Target``; None: the current or the default one.
        target_host: None, or the target of the code that calls the kernels, a CPU.
        ops: only tasks that contain one of these operators: names such as ``"nn.conv"``, or values
            of ``loopwright.graph.get_op``; None: all that do more than move and map elements.

    Returns:
        The tasks, in the order in which the network first needs them.

    Raises:
        GraphError: the model is invalid, there is no such operator, or a parameter has another
            name, shape or dtype.
        TargetError: a target is not understood.

    Example:
        >>> from loopwright import autotvm
        >>> x, w = lw.graph.var("x", (1, 64)), lw.graph.var("w", (16, 64))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.dense(x, w))
        >>> weights = {"w": np.ones((16, 64), "float32")}
        >>> print(*autotvm.task.extract_from_program(module["main"], weights, "llvm"))
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
    """The tasks of several networks, each once; arguments and errors as of `extract_from_program`.

    Args:
        mods: the networks.
        params: the weights of each.
        target: as there.
        target_host: as there.
        ops: as there.

    Raises:
        UsageError: the numbers of networks and of their weights differ.

    Example:
        >>> from loopwright import autotvm
        >>> x, w = lw.graph.var("x", (1, 64)), lw.graph.var("w", (16, 64))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.dense(x, w))
        >>> several = [module, module]
        >>> print(len(autotvm.task.extract_from_multiple_program(several, [{}, {}], "llvm")))
        1
    """
    from loopwright.graph import Function, IRModule, bind_params_by_name, extract_tasks
    from loopwright.graph.frontend.source import module_of

    if len(mods) != len(params):
        raise UsageError(
            f"extract_from_multiple_program: params of {len(params)} networks for {len(mods)}; "
            "give them for each, {} where it has none"
        )
    resolved = resolve_target(target)
    if target_host is not None:
        resolved = Target(resolved, target_host)
    names = None if ops is None else [getattr(one, "name", one) for one in ops]
    found: dict[str, Task] = {}
    for mod, weights in zip(mods, params, strict=True):
        module = IRModule.from_expr(mod) if isinstance(mod, Function) else module_of(mod)
        module = bind_params_by_name(module, weights or {})
        for one in extract_tasks(module, resolved, ops=names):
            found.setdefault(one.task.key, one.task)
    return list(found.values())
