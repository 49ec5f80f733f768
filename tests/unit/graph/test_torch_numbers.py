"""A part of ``python -m benchmarks.torch_numbers``: kernels beside eager PyTorch at edges."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks import torch_numbers

#: An operator, and the dtypes in which it is tried.
PARTS = {
    "acosh": ("float64",),
    "amax": ("float32",),
    "asinh": ("float16", "float32"),
    "floor_divide": ("int8", "float32"),
    "logsumexp": ("float16",),
    "sign": ("float32", "uint8"),
    "sort": ("float32", "bool"),
    "nn.functional.gelu": ("float16",),
    "nn.functional.softplus": ("bfloat16",),
    "sum": ("int8", "bfloat16"),
    "true_divide": ("float16",),
}


@pytest.fixture(scope="module")
def listed() -> dict[str, Any]:
    return {op.name: op for op in torch_numbers.operators() if not op.variant_test_name}


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, types in PARTS.items() for dtype in types]
)
def test_an_operator_gives_what_eager_pytorch_gives(
    listed: dict[str, Any], name: str, dtype: str
) -> None:
    op = listed.get(name) or next(o for o in torch_numbers.operators() if o.name == name)
    found = torch_numbers.compare(op, dtype)
    assert not found.left
    assert found.samples > 1
    assert not found.wrong


def test_a_difference_is_found() -> None:
    """What the comparison would say of a wrong place of NaN, and of a wrong integer."""
    import numpy as np
    import torch

    result = torch_numbers.Result()
    call = torch_numbers._Call(torch.neg, (torch.tensor([1.0, 2.0]),))
    for got, want in (
        (np.array([np.nan, 2], "float32"), torch.tensor([1.0, 2.0])),
        (np.array([-0.0, 1], "float32"), torch.tensor([0.0, 1.0])),
        (np.array([1, 2]), torch.tensor([1, 3])),
        (np.array([1, 2], "int32"), torch.tensor([1, 2])),
    ):
        torch_numbers._compared(result, call, got, want, True)
    assert len(result.wrong) == 3
    assert result.zeros == 1


def test_what_is_meant_is_meant_of_some_elements_alone() -> None:
    """Beyond the root of the limit a sum may overflow in one of the two; else it may not differ."""
    import numpy as np
    import torch

    excuses = [torch_numbers._beyond]
    for large, ours, wrong, meant in (
        (3e38, np.inf, 0, 1),
        (3e38, 3e30, 0, 1),
        (3e38, 3e37, 1, 0),
        (3.0, np.inf, 1, 0),
        (np.inf, np.nan, 1, 0),
    ):
        result = torch_numbers.Result()
        x = torch.tensor([large, -large])
        call, want = torch_numbers._Call(torch.sum, (x,)), torch.tensor(0.0)
        got = np.array(ours, "float32")
        torch_numbers._compared(result, call, got, want, True, excuses, "float32")
        assert (len(result.wrong), result.meant) == (wrong, meant), (large, ours)
