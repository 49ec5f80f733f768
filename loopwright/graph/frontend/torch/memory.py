"""Memory layout of PyTorch's tensors: strides, offsets, and shared storages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from loopwright.graph.frontend.torch.arrays import torch_package


@dataclass(frozen=True)
class Memory:
    """The layout of a tensor in its storage, as `torch.as_strided` names it.

    Attributes:
        shape: extents.
        strides: elements between neighbours of each dimension.
        offset: elements of the storage before the first one.
        dtype: of the elements, PyTorch's.
        storage_bytes: bytes of the storage; None where that is not known.
        conjugate, negative: whether the elements stand for their conjugates, or negatives.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: Any
    storage_bytes: int | None
    conjugate: bool = False
    negative: bool = False

    @staticmethod
    def of(tensor: Any, numbers: Mapping[Any, int] | None = None) -> Memory | None:
        """The layout of a tensor; None where it is not dense, or has unknown symbols.

        Args:
            tensor: it, or a fake one.
            numbers: of symbols.
        """
        torch = torch_package()
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
            return None
        sizes = (tensor.untyped_storage().nbytes(), tensor.storage_offset(), *tensor.shape)
        found = [_number(n, numbers) for n in (*sizes, *tensor.stride())]
        if None in found[1:]:
            return None
        whole, offset, *extents = found
        rank = tensor.dim()
        shape, strides = tuple(extents[:rank]), tuple(extents[rank:])
        turned = tensor.is_conj(), tensor.is_neg()
        return Memory(shape, strides, offset, tensor.dtype, whole, *turned)

    @cached_property
    def contiguous(self) -> bool:
        """Whether the elements follow each other in order."""
        return self.strides == _packed(self.shape)

    @cached_property
    def plain(self) -> bool:
        """Whether the tensor is contiguous and all of its storage."""
        turned = self.conjugate or self.negative
        return self.contiguous and not turned and self.order is not None

    @cached_property
    def permutation(self) -> tuple[int, ...] | None:
        """The dimensions from the outermost in memory on; None where elements share places, or
        leave some free between them."""
        rank = len(self.shape)
        wide = [d for d in range(rank) if self.shape[d] != 1]
        sorted_dims = iter(sorted(wide, key=lambda d: -self.strides[d]))
        order = tuple(next(sorted_dims) if self.shape[d] != 1 else d for d in range(rank))
        pairs = zip(order, _packed([self.shape[d] for d in order]), strict=True)
        dense = all(self.strides[d] == n for d, n in pairs if self.shape[d] != 1)
        return order if dense else None

    @cached_property
    def order(self) -> tuple[int, ...] | None:
        """As `permutation`, where the elements are all of the storage, too."""
        whole = prod(self.shape) * self.dtype.itemsize == self.storage_bytes
        return self.permutation if whole and not self.offset else None

    def empty(self) -> Any:
        """A tensor of this layout whose elements are not set."""
        return torch_package().empty_strided(self.shape, self.strides, dtype=self.dtype)

    def filled(self, elements: Any) -> Any:
        """A tensor with some elements in this layout, at the beginning of its storage; the
        elements themselves where they are contiguous and may stay."""
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

    def after(self, base: Memory) -> Memory:
        """This layout as one of a tensor that shares the storage of a base, seen from there."""
        begin = base.offset * base.dtype.itemsize // self.dtype.itemsize
        turned = self.conjugate != base.conjugate, self.negative != base.negative
        return replace(self, offset=self.offset - begin, conjugate=turned[0], negative=turned[1])

    def of_base(self, base: Any) -> Any:
        """A tensor of this layout, as seen from a base, that shares the base's storage.

        Args:
            base: a tensor at the beginning of its storage.
        """
        torch = torch_package()
        if base.dtype != self.dtype:
            size = base.untyped_storage().nbytes() // base.dtype.itemsize
            base = base.as_strided((size,), (1,)).view(self.dtype)
        found = base.as_strided(self.shape, self.strides, self.offset)
        found = torch._conj(found) if self.conjugate else found
        return torch._neg_view(found) if self.negative else found


def expression_of(value: Any) -> Any:
    """The expression of a symbolic number; else None."""
    return getattr(getattr(value, "node", None), "expr", None)


def _number(value: Any, numbers: Mapping[Any, int] | None) -> Any:
    """A number, or a symbolic one with numbers for its symbols; None where one has none."""
    if type(value) is int:
        return value
    known = expression_of(value)
    known = known.subs(numbers) if numbers and known is not None else known
    return int(known) if getattr(known, "is_Integer", False) else None


def _packed(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of contiguous elements, as PyTorch counts them."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * max(shape[d + 1], 1)
    return tuple(strides)


def storage_of(value: Any) -> int | None:
    """A number that tensors with one storage share, for a tensor or a list of such; else None."""
    torch = torch_package()
    if isinstance(value, (list, tuple)):
        shared = set(map(storage_of, value))
        return shared.pop() if len(shared) == 1 else None
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    number: int = value.untyped_storage()._cdata
    return number


def shared_base(node: Any, known: Mapping[Any, Any]) -> Any:
    """The node that made the storage of a node's tensor.

    Args:
        node: of a functional graph of ``torch.fx``: its tensor has the storage of one that it
            reads, or its own.
        known: the same of nodes before it.

    Returns:
        The node that is known for it; itself where there is none.
    """
    storage = storage_of(node.meta.get("val"))
    read = [r for n in node.all_input_nodes for r in (n, *n.all_input_nodes) if r in known]
    return next((known[r] for r in read if storage_of(r.meta["val"]) == storage), node)
