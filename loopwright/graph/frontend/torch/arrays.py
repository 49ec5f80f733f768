"""Tensors of PyTorch as arrays and back, without copies where the memory can be shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.errors import GraphError, TensorError

Array = npt.NDArray[Any]


def torch_package() -> Any:
    try:
        import torch
    except ImportError as exc:
        raise GraphError(
            'models of PyTorch need the package torch: pip install "loopwright[torch]"'
        ) from exc
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
    plain = tensor.detach()
    plain = plain.resolve_conj().resolve_neg().contiguous()
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
    """An array as a tensor that shares its memory, and must not be written.

    PyTorch has no read-only tensors, and warns of read-only arrays: the operators called here do
    not write into their inputs.
    """
    torch = torch_package()
    shared = np.asarray(_Writable(array)) if not array.flags.writeable else array
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(shared.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(shared)


class _Writable:
    """A read-only array whose interface does not declare it read-only."""

    def __init__(self, array: Array) -> None:
        shown = np.ascontiguousarray(array)
        if shown.dtype.name == "bfloat16":
            shown = shown.view("int16")
        interface = dict(shown.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self._owner = shown
