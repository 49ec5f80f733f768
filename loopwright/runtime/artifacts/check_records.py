"""Records of failed checks inside generated code.

A function with checks has a record of int64 numbers: whether it is taken, then the values of the
check that failed. Of threads that fail at once one takes it. The function returns `FIRST_CODE` and
the number of the check.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from string import Formatter

from loopwright.errors import RunError

#: Result of a function whose first check fails, one more for each further check.
FIRST_CODE = 16


def record_name(function: str) -> str:
    return f"lw_checks_{function}"


def values_in(text: str) -> int:
    """Number of values that a message needs: one more than its largest field."""
    fields = [int(field) for _, field, _, _ in Formatter().parse(text) if field]
    return max(fields, default=-1) + 1


def failed_check(
    addresses: Mapping[str, int], checks: Mapping[str, Sequence[str]], code: int
) -> RunError | None:
    """The error of a check that failed, or None where `code` is another failure; frees the record.

    `addresses` are those of the records, by symbol; `checks` the messages of each function.
    """
    for name, texts in checks.items():
        record = ctypes.cast(addresses[record_name(name)], ctypes.POINTER(ctypes.c_int64))
        if FIRST_CODE <= record[0] < FIRST_CODE + len(texts):
            text = texts[record[0] - FIRST_CODE]
            error = RunError(f"{name}: {text.format(*record[1 : values_in(text) + 1])}")
            record[0] = 0
            return error
        if FIRST_CODE <= code < FIRST_CODE + len(texts):
            return RunError(f"{name}: a check failed in several calls at once (code {code})")
    return None
