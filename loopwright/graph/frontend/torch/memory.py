"""Memory of PyTorch's tensors: arrays that share it, strides, offsets, and shared storages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.errors import GraphError, TensorError
from loopwright.extras import install

Array = npt.NDArray[Any]


def torch_package() -> Any:
    try:
        import torch
    except ImportError as exc:
        raise GraphError(f"models of PyTorch need the package torch: {install('torch')}") from exc
    return torch


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch_package().Tensor)


def dtype_of(tensor: Any) -> str | None:
    """The name of a tensor's dtype; None where programs do not have it."""
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        return dtypes.check(name)
    except TensorError:
        return None


def as_array(tensor: Any) -> Array:
    """A host tensor as an array that shares its memory; a copy if not contiguous and aligned.
    Raises GraphError for tensors on a device, and for dtypes that programs do not have.
    """
    torch = torch_package()
    dtype = dtype_of(tensor)
    if dtype is None or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise GraphError(
            f"a tensor is {tensor.dtype} {tensor.layout} on {tensor.device}; kernels take dense "
            f"ones of the host, of {', '.join(dtypes.SUPPORTED)}"
        )
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if plain.data_ptr() % plain.itemsize:
        plain = plain.clone()
    if dtype == "bfloat16":
        return np.asarray(plain.view(torch.int16).numpy()).view(np.dtype(dtype))
    return np.asarray(plain.numpy())


def as_bytes(tensor: Any) -> Array:
    """The element bytes of a host tensor of any dtype, in order; shared where it is contiguous."""
    torch = torch_package()
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return np.asarray(plain.view(-1).view(torch.uint8).numpy())


def as_tensor(array: Array) -> Any:
    """An array as a tensor that shares its memory, and must not be written. PyTorch has no
    read-only tensors, and warns of read-only arrays: the operators called here do not write into
    their inputs.
    """
    torch = torch_package()
    shared = np.asarray(_Writable(array)) if not array.flags.writeable else array
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(shared.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(shared)


class _Writable:
    """A read-only array whose interface does not declare it read-only."""

    def __init__(self, array: Array) -> None:
        self._owner = np.ascontiguousarray(array)
        if array.dtype.name == "bfloat16":
            self._owner = self._owner.view("int16")
        interface = self._owner.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


@dataclass(frozen=True)
class TensorLayout:
    """The layout of a tensor in its storage, in the terms of `torch.as_strided`."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    offset: int  # elements of the storage before the first one
    dtype: Any  # of PyTorch
    storage_bytes: int | None  # None where that is not known
    conjugate: bool = False  # elements represent their conjugates
    negative: bool = False  # elements represent their negatives

    @staticmethod
    def of(tensor: Any, numbers: Mapping[Any, int] | None = None) -> TensorLayout | None:
        """The layout of a (fake) tensor; None where it is not dense, or a symbol has no number."""
        if not is_tensor(tensor) or tensor.layout is not torch_package().strided:
            return None
        sizes = (tensor.untyped_storage().nbytes(), tensor.storage_offset(), *tensor.shape)
        values = [_number(n, numbers) for n in (*sizes, *tensor.stride())]
        if None in values[1:]:
            return None
        whole, offset, *extents = values
        rank = tensor.dim()
        shape, strides = tuple(extents[:rank]), tuple(extents[rank:])
        turned = tensor.is_conj(), tensor.is_neg()
        return TensorLayout(shape, strides, offset, tensor.dtype, whole, *turned)

    @cached_property
    def contiguous(self) -> bool:
        return self.strides == _packed(self.shape)

    @cached_property
    def plain(self) -> bool:
        """Whether the tensor is contiguous and fills its storage."""
        turned = self.conjugate or self.negative
        return self.contiguous and not turned and self.order is not None

    @cached_property
    def permutation(self) -> tuple[int, ...] | None:
        """Dimensions from the outermost in memory; None where elements overlap or leave gaps."""
        rank = len(self.shape)
        wide = [d for d in range(rank) if self.shape[d] != 1]
        sorted_dims = iter(sorted(wide, key=lambda d: -self.strides[d]))
        order = tuple(next(sorted_dims) if self.shape[d] != 1 else d for d in range(rank))
        pairs = zip(order, _packed([self.shape[d] for d in order]), strict=True)
        dense = all(self.strides[d] == n for d, n in pairs if self.shape[d] != 1)
        return order if dense else None

    @cached_property
    def order(self) -> tuple[int, ...] | None:
        """As `permutation`, where the elements also fill the storage."""
        whole = prod(self.shape) * self.dtype.itemsize == self.storage_bytes
        return self.permutation if whole and not self.offset else None

    def empty(self) -> Any:
        return torch_package().empty_strided(self.shape, self.strides, dtype=self.dtype)

    def filled(self, elements: Any) -> Any:
        """A tensor with some elements in this layout, at the beginning of its storage; ``elements``
        itself where that is contiguous.
        """
        torch = torch_package()
        if self.contiguous:
            return elements
        if self.order is not None:
            return self.empty().copy_(elements)
        # Elements may share places (expanded dimensions), and places may hold none.
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        places = torch.arange(last + 1).as_strided(self.shape, self.strides)
        flat = torch.empty(last + 1, dtype=self.dtype)
        flat[places] = elements
        return flat.as_strided(self.shape, self.strides)

    def after(self, base: TensorLayout) -> TensorLayout:
        """This layout relative to that of a base whose storage it shares."""
        begin = base.offset * base.dtype.itemsize // self.dtype.itemsize
        turned = self.conjugate != base.conjugate, self.negative != base.negative
        return replace(self, offset=self.offset - begin, conjugate=turned[0], negative=turned[1])

    def of_base(self, base: Any) -> Any:
        """A tensor of this layout, relative to a base that begins its storage, which they share."""
        torch = torch_package()
        if base.dtype != self.dtype:
            size = base.untyped_storage().nbytes() // base.dtype.itemsize
            base = base.as_strided((size,), (1,)).view(self.dtype)
        view = base.as_strided(self.shape, self.strides, self.offset)
        view = torch._conj(view) if self.conjugate else view
        return torch._neg_view(view) if self.negative else view


def expression_of(value: Any) -> Any:
    return getattr(getattr(value, "node", None), "expr", None)


def _number(value: Any, numbers: Mapping[Any, int] | None) -> Any:
    """A number, with values for its symbols; None where one has none."""
    if type(value) is int:
        return value
    expr = expression_of(value)
    expr = expr.subs(numbers) if numbers and expr is not None else expr
    return int(expr) if getattr(expr, "is_Integer", False) else None


def _packed(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of contiguous elements, as PyTorch counts them."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * max(shape[d + 1], 1)
    return tuple(strides)


def storage_of(value: Any) -> int | None:
    """A number that identifies the storage of a tensor, or of a list of views; else None."""
    if isinstance(value, (list, tuple)):
        shared = set(map(storage_of, value))
        return shared.pop() if len(shared) == 1 else None
    if not is_tensor(value) or value.layout is not torch_package().strided:
        return None
    number: int = value.untyped_storage()._cdata
    return number


def shared_base(node: Any, bases: Mapping[Any, Any]) -> Any:
    """The node of a functional ``torch.fx`` graph that made the storage of a node's tensor."""
    storage = storage_of(node.meta.get("val"))
    read = [r for n in node.all_input_nodes for r in (n, *n.all_input_nodes) if r in bases]
    return next((bases[r] for r in read if storage_of(r.meta["val"]) == storage), node)
