"""Layout of memory: huge pages, and alignment of NumPy's arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence

from loopwright.inspection.doctor.finding import Finding, ok, unknown, warning
from loopwright.inspection.doctor.system_files import SystemFiles

_HUGE = "/sys/kernel/mm/transparent_hugepage/enabled"
#: Bytes of a line of the cache, at whose multiples arrays should begin.
_LINE = 64


def huge_pages(files: SystemFiles) -> Finding:
    """Judge whether large arrays get huge pages."""
    chosen = re.search(r"\[(\w+)\]", files.line(_HUGE))
    if chosen is None:
        return unknown("huge pages", f"there is no {_HUGE}")
    if chosen[1] == "never":
        return warning(
            "huge pages",
            "never: each 4 KiB of an array is a page of its own",
            "kernels on arrays of many MB lose time looking up pages",
            f"echo madvise | sudo tee {_HUGE}",
        )
    asks = ", and NumPy asks for them" if chosen[1] == "madvise" else ""
    return ok("huge pages", f"{chosen[1]}: large arrays get them{asks}")


def alignment(addresses: Sequence[int]) -> Finding:
    """Judge the alignment of NumPy's arrays, from the addresses of some fresh ones."""
    off = {address % _LINE for address in addresses} - {0}
    if not off:
        return ok("array alignment", f"NumPy's arrays begin at multiples of {_LINE} bytes here")
    return warning(
        "array alignment",
        f"NumPy's arrays begin up to {max(off)} bytes behind a multiple of {_LINE}",
        "kernels are timed on aligned arrays; called with such ones, some take 1.2 to 1.7 times "
        "as long",
        "allocate by loopwright.nd.empty or nd.array; np.from_dlpack(a) views one in NumPy",
    )


def numpy_addresses() -> list[int]:
    """Addresses of some fresh arrays of NumPy, from 4 KiB to 16 MiB."""
    import numpy as np

    arrays = [np.empty(1 << power, dtype=np.uint8) for power in range(12, 25, 2)]
    return [array.ctypes.data for array in arrays]
