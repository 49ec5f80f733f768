"""Weights of a compiled model of PyTorch, which may be changed at any time.

They are constants of the model. Kernels read most of them in place, so that every change takes
effect at once. From others something is computed when the model is built, such as a packed copy:
each call compares fingerprints of their memory, which takes as long as reading it. A packed copy
pays for that where many rows are multiplied by it; for few rows the weight is an input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.executors import Model
from loopwright.graph.frontend.torch.arrays import as_array, dtype_of, torch_package
from loopwright.graph.frontend.torch.fingerprints import Fingerprints
from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import Constant, Expr, Function, Var
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.visitor import called, post_order, rewrite, users
from loopwright.target import Target

#: Rows up to which a product with a packed matrix takes as long as one with the matrix itself.
_FEW_ROWS = 64


class Weights:
    """Tensors that are constants of a model; keeps their memory alive."""

    def __init__(
        self, tensors: Mapping[int, Any], target: Target, constant: bool, frozen: bool = False
    ) -> None:
        # by index among the inputs of the graph
        self._tensors = {n: t.detach() for n, t in tensors.items()}
        # constant: all are constants, as they are in records; so they are if frozen
        self._target, self._constant, self._frozen = target, constant or frozen, frozen
        self._addresses = {n: t.data_ptr() for n, t in tensors.items()}
        self._constants = {n: _shown(t) for n, t in self._tensors.items()}
        self._watched: Fingerprints | None = None

    def __contains__(self, place: int) -> bool:
        return place in self._tensors

    def constant(self, place: int, name: str) -> Constant:
        """A weight as a constant that shares its memory where it is contiguous."""
        return Constant(self._constants[place], name)

    def with_inputs(self, module: IRModule) -> tuple[IRModule, list[int]]:
        """Make inputs of the weights by which few rows are multiplied.

        Returns the module and the indices of the weights that became its last parameters; pass
        these to `leave` once the module is used.
        """
        if self._constant:
            return module, []
        main, types = module[MAIN], infer_types(module)
        order = post_order(main)
        readers = users(order)
        places = {id(array): n for n, array in self._constants.items()}
        inputs: dict[Expr, Var] = {}
        moved: list[int] = []
        for e in order:
            if not isinstance(e, Constant) or id(e.data) not in places:
                continue
            place = places[id(e.data)]
            if all(_few_rows(r, e, types) for r in readers[e]):
                inputs[e] = Var(e.name, e.type)
                moved.append(place)
        body = rewrite(main.body, lambda e: inputs.get(e, e))
        params = (*main.params, *inputs.values())
        return IRModule({**module.functions, MAIN: Function(params, body)}), moved

    def leave(self, places: Iterable[int]) -> None:
        """Stop watching weights that are inputs."""
        for place in places:
            del self._addresses[place], self._constants[place]

    def in_place(self, module: IRModule, model: Model) -> frozenset[str]:
        """The names of the constants that kernels can read in place; others are watched.

        ``module`` is as imported, ``model`` what was built from it.
        """
        values, constants = model.program.values, model.constants
        before = Counter(
            id(child.data)
            for function in module.functions.values()
            for e in post_order(function)
            for child in e.children
            if isinstance(child, Constant)
        )
        after, prepared = _reads(model)
        names = [(n, v.name) for n, v in enumerate(values) if v.kind == "constant"]
        if model.device_type != "cpu":  # a device has copies
            names = []
        # A use that is gone shows that passes have computed something from the weight.
        live = {
            id(constants[name]): name
            for n, name in names
            if n not in prepared and after[n] == before[id(constants[name])]
        }
        watched = []
        for place, array in self._constants.items():
            own = np.shares_memory(array, _memory(self._tensors[place])) and array.flags.aligned
            if not own:
                live.pop(id(array), None)
            if before[id(array)] and id(array) not in live:
                watched.append(_memory(self._tensors[place]))
        if watched and not self._frozen:
            self._watched = Fingerprints(watched, self._target)
        ours = {id(array) for array in self._constants.values()}
        return frozenset(name for array, name in live.items() if array in ours)

    def changed(self, args: Sequence[Any]) -> bool:
        """Whether a weight moved, or differs from what something was computed from."""
        if any(args[n].data_ptr() != address for n, address in self._addresses.items()):
            return True
        return self._watched is not None and self._watched.changed()


def is_weight(tensor: Any) -> bool:
    """Whether a tensor can be a constant of a model."""
    torch = torch_package()
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.numel() > 0
        and dtype_of(tensor) is not None
    )


def _few_rows(e: Expr, weight: Expr, types: Mapping[Expr, Any]) -> bool:
    """Whether an expression multiplies few rows by a weight."""
    if called(e) != "nn.dense" or e.children[0] is weight:
        return False
    (rows, *_) = types[e.children[0]].shape
    return not isinstance(rows, int) or rows <= _FEW_ROWS


def _shown(tensor: Any) -> npt.NDArray[Any]:
    array = as_array(tensor).view()
    array.flags.writeable = False
    return array


def _memory(tensor: Any) -> npt.NDArray[np.uint8]:
    """The bytes from a tensor's first element to its last, gaps of strided ones included."""
    torch = torch_package()
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    flat = torch.as_strided(tensor, (span,), (1,), tensor.storage_offset())
    found: npt.NDArray[np.uint8] = flat.view(torch.uint8).numpy()
    return found


def _reads(model: Model) -> tuple[Counter[int], set[int]]:
    """Count the reads of each value; find those that a kernel packs beforehand."""
    reads, prepared = Counter(model.program.outputs), set[int]()
    for step in model.program.steps:
        reads.update(step.args[: len(step.args) - step.outputs])
        module = model.kernels.get(step.kernel)
        parts = None if module is None else module.parts()
        prepared |= set() if parts is None else {step.args[n] for n in parts.read_first}
    return reads, prepared
