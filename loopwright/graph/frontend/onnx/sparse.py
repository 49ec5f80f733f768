"""Sparse tensors of ONNX as dense arrays."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.files import onnx_package

Array = npt.NDArray[Any]
#: A few bytes of a file may ask for any number of elements; more bytes are refused.
_MOST_BYTES = 1 << 34


def dense_of(tensor: Any) -> Array:
    """A ``SparseTensorProto`` as a dense array.

    Its indices are flat, or a row of coordinates for each value.
    """
    to_array = onnx_package().numpy_helper.to_array
    values, indices, shape = to_array(tensor.values), to_array(tensor.indices), tuple(tensor.dims)
    if min(shape, default=0) < 0:
        raise GraphError(f"the sparse tensor has the shape {list(shape)}")
    if prod(shape) * values.dtype.itemsize > _MOST_BYTES:
        raise GraphError(f"with its zeros the sparse tensor {list(shape)} is over 16 GB")
    if values.ndim != 1 or len(indices) != len(values) or indices.dtype.kind != "i":
        raise GraphError(f"the sparse tensor has {len(values)} values and {len(indices)} indices")
    in_order = indices.ndim == 1
    coordinates = indices.reshape(-1, 1) if in_order else indices
    limits = (prod(shape),) if in_order else shape
    if coordinates.shape[1:] != (len(limits),):
        raise GraphError(f"the sparse tensor of shape {list(shape)} has other coordinates")
    if ((coordinates < 0) | (coordinates >= np.array(limits))).any():
        raise GraphError(f"an index of the sparse tensor is not in its shape {list(shape)}")
    dense = np.zeros(limits, values.dtype)
    dense[tuple(coordinates.T)] = values
    return dense.reshape(shape)
