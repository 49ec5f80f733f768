"""The CUDA driver through ``cuda.bindings``, probed before any other use.

The bindings raise, or hang at the second call, where there is no driver. So the driver's library is
opened by itself first; only if that works is the package imported.
"""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from typing import Any

from loopwright.errors import DeviceLostError, OutOfMemoryError, RunError, TargetError

#: Objects of the bindings, which have no useful types.
Driver = Any
INSTALL_PACKAGE = 'pip install "loopwright[cuda]"'
#: Errors after which every further call in this process fails too.
_STICKY = (
    "ILLEGAL_ADDRESS", "LAUNCH_TIMEOUT", "ASSERT", "HARDWARE_STACK_ERROR", "ILLEGAL_INSTRUCTION",
    "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC", "LAUNCH_FAILED",
    "ECC_UNCORRECTABLE", "CONTEXT_IS_DESTROYED", "DEVICE_UNAVAILABLE",
)  # fmt: skip


def call(driver: Driver, where: str, doing: str, name: str, *args: object) -> Any:
    """Call a function of the driver and return its result (a tuple where there are several).

    OutOfMemoryError, TargetError (code for another architecture, or for a newer driver),
    DeviceLostError (unusable for this process from now on), and RunError for all other failures.
    """
    status, *results = getattr(driver, name)(*args)
    if int(status) != 0:
        raise _error(status, where, doing)
    return results[0] if len(results) == 1 else tuple(results)


def _error(status: Any, where: str, doing: str) -> Exception:
    name = str(getattr(status, "name", status)).removeprefix("CUDA_ERROR_")
    text = f"{where}: {doing} failed: {name} ({int(status)})"
    if name == "OUT_OF_MEMORY":
        return OutOfMemoryError(text)
    if name in ("NO_BINARY_FOR_GPU", "UNSUPPORTED_PTX_VERSION", "INVALID_IMAGE"):
        return TargetError(f"{text}; build it for this device (-arch, see its compute_version)")
    if any(word in name for word in _STICKY):
        return DeviceLostError(f"{text}; this process has lost the device: start it again")
    return RunError(text)


@lru_cache(maxsize=1)
def find_driver() -> tuple[Driver, int, str]:
    """The driver's module or None, the number of devices, and the reason where that is 0."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        opened = ctypes.CDLL(library)
    except OSError:
        return None, 0, f"there is no NVIDIA driver ({library}); install the driver of the GPU"
    code = opened.cuInit(0)
    number = ctypes.c_int(0)
    code = code or opened.cuDeviceGetCount(ctypes.byref(number))
    if code or not number.value:
        said = f"it says error {code}" if code else "it finds no device"
        return None, 0, f"{library} is there, but {said}; see nvidia-smi"
    try:
        from cuda.bindings import driver
    except ImportError as error:
        return None, 0, f"cuda-bindings is missing ({error}); install it: {INSTALL_PACKAGE}"
    return driver, number.value, ""
