"""Weights of a compiled model of PyTorch, which may be changed at any time.

They are constants of the model. Kernels read most of them in place, so that every change takes
effect at once. From others something is computed when the model is built, such as a packed copy:
each call compares fingerprints of their memory, which takes as long as reading it. A packed copy
pays for that where many rows are multiplied by it; for few rows the weight is an input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import driver, te
from loopwright.executors import Model, sequence
from loopwright.graph.frontend.torch.memory import as_array, dtype_of, is_tensor, torch_package
from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import Constant, Expr, Function, Var
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.visitor import called, post_order, rewrite, users
from loopwright.runtime import Module
from loopwright.target import Target

#: Pairs side by side in a row, rows of a page, and pages of a block, of which threads take one at a
#: time. Pages of 4 KiB are read side by side: a processor fetches ahead within each of them alone.
_LANES, _ROWS, _PAGES = 8, 64, 16
_ROW_BYTES = 8 * _LANES


# Fingerprints of memory: detect any changed byte, at the speed of reading it. Bytes are read as
# pairs of 32-bit words. A fingerprint is, for each block and lane, the sum of ``(a + k) * (b + m)``
# over its pairs, modulo 2**64, with odd multiples of the row as ``k`` and ``m``: a change within
# one pair is always detected; others but for about one of 2**60.


class Fingerprints:
    """Fingerprints of contiguous byte arrays as they were on construction; keeps them alive."""

    def __init__(self, memory: Sequence[npt.NDArray[np.uint8]], target: Target) -> None:
        calls, blocks = [], [part for m in memory for part in _blocks(m)]
        self._now = np.empty((sum(map(len, blocks)), _LANES), np.uint64)
        at = 0
        for block in blocks:
            out, at = self._now[at : at + len(block)], at + len(block)
            kernel = _kernel(target, whole=block.shape[1] == _PAGES)
            calls.append(kernel.get_function("fingerprint").bind(block, out))
        self._read = sequence(calls)
        # Bytes that fill no row are few: a copy is kept.
        tails = [_tail(m) for m in memory]
        self._tails = [(tail, tail.tobytes()) for tail in tails if len(tail)]
        self._read()
        self._then = self._now.copy()

    def changed(self) -> bool:
        """Whether the memory holds something else now; all of it is read."""
        self._read()
        same = np.array_equal(self._now, self._then)
        return not same or any(tail.tobytes() != kept for tail, kept in self._tails)


def _blocks(memory: npt.NDArray[np.uint8]) -> list[npt.NDArray[Any]]:
    """The rows of whole blocks, and the remaining ones as a block of one page of any length."""
    rows = memory[: len(memory) - len(_tail(memory))].view(np.uint32).reshape(-1, 2, _LANES)
    whole = len(rows) // (_PAGES * _ROWS) * (_PAGES * _ROWS)
    parts = [rows[:whole].reshape(-1, _PAGES, _ROWS, 2, _LANES), rows[None, None, whole:]]
    return [part for part in parts if part.size]


def _tail(memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The bytes that fill no row; all of them where they are not aligned as words."""
    aligned = memory.ctypes.data % 4 == 0
    return memory[len(memory) // _ROW_BYTES * _ROW_BYTES :] if aligned else memory


@lru_cache(maxsize=8)
def _kernel(target: Target, whole: bool) -> Module:
    blocks = te.size_var("blocks")
    pages, rows = (_PAGES, _ROWS) if whole else (1, te.size_var("rows"))
    words = te.placeholder((blocks, pages, rows, 2, _LANES), "uint32", name="words")
    page, row = te.reduce_axis((0, pages), name="page"), te.reduce_axis((0, rows), name="row")

    def keyed(block: Any, lane: Any, n: int, factor: int) -> Any:
        place = (page * rows + row).astype("uint32")
        key = (place * np.uint32(factor) + np.uint32(factor)).astype("uint64")
        return words[block, page, row, n, lane].astype("uint64") + key

    sums = te.compute(
        (blocks, _LANES),
        lambda block, lane: te.sum(
            keyed(block, lane, 0, 0x9E3779B1) * keyed(block, lane, 1, 0x85EBCA77), axis=[page, row]
        ),
        name="sums",
    )
    schedule = te.create_schedule(sums.op)
    block, lane = sums.op.axis
    schedule[sums].reorder(block, row, page, lane)
    schedule[sums].unroll(page)
    schedule[sums].vectorize(lane)
    schedule[sums].parallel(block)
    return driver.build(schedule, [words, sums], target, name="fingerprint")


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
        self._constants = {n: as_array(t).view() for n, t in self._tensors.items()}
        for array in self._constants.values():
            array.flags.writeable = False
        self._watched: Fingerprints | None = None

    def __contains__(self, place: int) -> bool:
        return place in self._tensors

    def constant(self, place: int, name: str) -> Constant:
        """A weight as a constant that shares its memory where it is contiguous."""
        return Constant(self._constants[place], name)

    def with_inputs(self, module: IRModule) -> tuple[IRModule, list[int]]:
        """Make inputs of the weights by which few rows are multiplied. Returns the module and the
        indices of the weights that became its last parameters; pass these to `leave` once the
        module is used.
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
        """The names of a model's constants that kernels read in place; others are watched."""
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
    if not is_tensor(tensor) or tensor.layout is not torch_package().strided:
        return False
    return tensor.device.type == "cpu" and tensor.numel() > 0 and dtype_of(tensor) is not None


def _few_rows(e: Expr, weight: Expr, types: Mapping[Expr, Any]) -> bool:
    if called(e) != "nn.dense" or e.children[0] is weight:
        return False
    (rows, *_) = types[e.children[0]].shape
    return not isinstance(rows, int) or rows <= _FEW_ROWS


def _memory(tensor: Any) -> npt.NDArray[np.uint8]:
    """The bytes from a tensor's first element to its last, gaps of strided ones included."""
    torch = torch_package()
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    flat = torch.as_strided(tensor, (span,), (1,), tensor.storage_offset())
    memory: npt.NDArray[np.uint8] = flat.view(torch.uint8).numpy()
    return memory


def _reads(model: Model) -> tuple[Counter[int], set[int]]:
    """Count the reads of each value; find those that a kernel packs beforehand."""
    reads, prepared = Counter(model.program.outputs), set[int]()
    for step in model.program.steps:
        reads.update(step.args[: len(step.args) - step.outputs])
        module = model.kernels.get(step.kernel)
        parts = None if module is None else module.parts()
        prepared |= set() if parts is None else {step.args[n] for n in parts.read_first}
    return reads, prepared
