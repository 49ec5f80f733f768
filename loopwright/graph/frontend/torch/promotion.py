"""Type promotion: the dtype in which PyTorch computes with operands of several dtypes.

Bools, whole numbers and floats are categories, in this order. Among tensors with dimensions,
tensors without, and numbers, the first that have the highest category of all decide; a number has
the default dtype of its category. Two 16-bit floats of different formats give float32.
(``torch.result_type``.)
"""

from __future__ import annotations

from collections.abc import Sequence

from loopwright import dtypes

#: Dtypes of whole numbers from narrow to wide, as PyTorch promotes them.
_WHOLE = ("uint8", "int8", "int16", "int32", "int64")
_DEFAULT = {0: "bool", 1: "int64", 2: "float32"}


def category(dtype: str) -> int:
    """0 for bool, 1 for integers, 2 for floats."""
    if dtype == "bool":
        return 0
    return 2 if dtypes.is_float(dtype) else 1


def result_dtype(
    dimensioned: Sequence[str], scalars: Sequence[str] = (), numbers: Sequence[object] = ()
) -> str:
    """The dtype in which operands are computed.

    ``dimensioned`` are dtypes of tensors with dimensions, ``scalars`` those of tensors without.
    """
    kinds = [_DEFAULT[_number_category(n)] for n in numbers]
    groups = [list(dimensioned), list(scalars), kinds]
    highest = max(category(d) for group in groups for d in group)
    # A group whose category is lower than that of a later one does not decide.
    for group in groups:
        if any(category(d) == highest for d in group):
            return _widest([d for d in group if category(d) == highest])
    return _DEFAULT[highest]


def _number_category(n: object) -> int:
    return 0 if isinstance(n, bool) else 1 if isinstance(n, int) else 2


def _widest(found: Sequence[str]) -> str:
    wide = found[0]
    for d in found[1:]:
        wide = _wider(wide, d)
    return wide


def _wider(a: str, b: str) -> str:
    if a == b:
        return a
    if category(a) == 2:
        if {a, b} == set(dtypes.HALVES):
            return "float32"
        order = (*dtypes.HALVES, "float32", "float64")
        return max(a, b, key=order.index)
    if {a, b} == {"uint8", "int8"}:
        return "int16"
    return max(a, b, key=_WHOLE.index)
