"""Tensors of PyTorch as arrays and back, without copies where the memory can be shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.errors import GraphError, TensorError

Array = npt.NDArray[Any]


def torch_package() -> Any:
    """The package torch.

    Raises:
        GraphError: it is not installed.
    """
    try:
        import torch
    except ImportError as exc:
        raise GraphError(
            'models of PyTorch need the package torch: pip install "loopwright[torch]"'
        ) from exc
    return torch


def is_tensor(value: Any) -> bool:
    """Whether something is a tensor of PyTorch."""
    return isinstance(value, torch_package().Tensor)


def dtype_of(tensor: Any) -> str | None:
    """The dtype of a tensor by its name here; None where programs do not have it."""
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        return dtypes.check(name)
    except TensorError:
        return None


def as_array(tensor: Any) -> Array:
    """A tensor of the host as an array that shares its memory; a copy where it is not contiguous,
    or not aligned.

    Raises:
        GraphError: it is on a device, or of a dtype that programs do not have.
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
    """The bytes of the elements of a tensor of the host, of any dtype, in order; shared where it is
    contiguous."""
    torch = torch_package()
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return np.asarray(plain.view(-1).view(torch.uint8).numpy())


def as_tensor(array: Array) -> Any:
    """An array as a tensor that shares its memory, into which nobody may write.

    PyTorch has no read-only tensors, and warns of each array that is one: here operators are
    called that write into nothing.
    """
    torch = torch_package()
    shared = np.asarray(_Writable(array)) if not array.flags.writeable else array
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(shared.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(shared)


class _Writable:
    """An array that is read-only, by an interface that does not say so."""

    def __init__(self, array: Array) -> None:
        shown = np.ascontiguousarray(array)
        if shown.dtype.name == "bfloat16":
            shown = shown.view("int16")
        interface = dict(shown.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self._owner = shown
