"""Load, run and time compiled programs; knows no tensor expressions and no search.

Works alone: a saved program runs with nothing else of loopwright imported. Importing this package
does not load LLVM; linking the first program does. Modules that a saved program does not need are
imported at the first use of their names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from loopwright.runtime.arrays.device import DeviceArray
from loopwright.runtime.arrays.host import NDArray
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.artifacts.kinds import (
    CUDA_CUBIN,
    INTERP,
    OPENCL_SOURCE,
    ArtifactKind,
    register_artifact_kind,
    unregister_artifact_kind,
)
from loopwright.runtime.artifacts.manifest import Manifest
from loopwright.runtime.devices.device import (
    DEVICE_TYPES,
    Device,
    DeviceType,
    cpu,
    cuda,
    device,
    enabled,
    gpu,
    metal,
    opencl,
    rocm,
)
from loopwright.runtime.devices.interface import (
    DeviceAPI,
    Event,
    Memory,
    Program,
    Stream,
    register_device_api,
    unregister_device_api,
)
from loopwright.runtime.kernels.argument import Arg
from loopwright.runtime.kernels.constants import FunctionWithConstants, Parts, PreparedCall
from loopwright.runtime.kernels.device_function import DeviceCall, DeviceFunction
from loopwright.runtime.kernels.function import BoundCall, Function
from loopwright.runtime.kernels.symbolic import SymbolicFunction
from loopwright.runtime.kernels.timing import (
    BenchmarkResult,
    Evaluator,
    measure_windows,
    time_call,
    time_once,
)
from loopwright.runtime.libraries import LIBRARY
from loopwright.runtime.module import Module, load_module
from loopwright.runtime.ndarray import array, empty, from_dlpack, random_fill
from loopwright.runtime.objects import C_OBJECT, LLVM_OBJECT
from loopwright.runtime.packed import (
    PackedFunc,
    enter_kind,
    get_global_func,
    kind_of,
    list_global_func_names,
    register_func,
    remove_global_func,
)
from loopwright.runtime.pool import config_threadpool, get_num_threads, pinned, set_num_threads

if TYPE_CHECKING:
    from loopwright.runtime import profiling
    from loopwright.runtime.caches import (
        CacheStatistics,
        ProgramCache,
        RuntimeCache,
        content_key,
        program_cache,
    )
    from loopwright.runtime.checker import RuntimeChecker
    from loopwright.runtime.module import system_lib
    from loopwright.runtime.packed import TypedPackedFunc
    from loopwright.runtime.params import load_params, save_params
    from loopwright.runtime.peak import bandwidth, fma_peak
    from loopwright.runtime.thread_pool import ThreadPool

#: Names that are imported at their first use, and their modules; a module maps to itself.
_LATER = {
    "CacheStatistics": "loopwright.runtime.caches",
    "ProgramCache": "loopwright.runtime.caches",
    "RuntimeCache": "loopwright.runtime.caches",
    "RuntimeChecker": "loopwright.runtime.checker",
    "ThreadPool": "loopwright.runtime.thread_pool",
    "TypedPackedFunc": "loopwright.runtime.packed",
    "bandwidth": "loopwright.runtime.peak",
    "executors": "loopwright.runtime.executors",
    "content_key": "loopwright.runtime.caches",
    "fma_peak": "loopwright.runtime.peak",
    "load_params": "loopwright.runtime.params",
    "profiling": "loopwright.runtime.profiling",
    "program_cache": "loopwright.runtime.caches",
    "save_params": "loopwright.runtime.params",
    "system_lib": "loopwright.runtime.module",
}

for _function in (Function, DeviceFunction, SymbolicFunction):
    PackedFunc.register(_function)
enter_kind(Module, "module")
for _kind in (LLVM_OBJECT, C_OBJECT, LIBRARY, INTERP, OPENCL_SOURCE, CUDA_CUBIN):
    register_artifact_kind(_kind)

__all__ = [
    "DEVICE_TYPES",
    "Arg",
    "Artifact",
    "ArtifactKind",
    "BenchmarkResult",
    "BoundCall",
    "CacheStatistics",
    "Device",
    "DeviceAPI",
    "DeviceArray",
    "DeviceCall",
    "DeviceFunction",
    "DeviceType",
    "Evaluator",
    "Event",
    "Function",
    "FunctionWithConstants",
    "Manifest",
    "Memory",
    "Module",
    "NDArray",
    "PackedFunc",
    "Parts",
    "PreparedCall",
    "Program",
    "ProgramCache",
    "RuntimeCache",
    "RuntimeChecker",
    "Stream",
    "ThreadPool",
    "TypedPackedFunc",
    "array",
    "bandwidth",
    "config_threadpool",
    "content_key",
    "cpu",
    "cuda",
    "device",
    "empty",
    "enabled",
    "fma_peak",
    "from_dlpack",
    "get_global_func",
    "get_num_threads",
    "gpu",
    "kind_of",
    "list_global_func_names",
    "load_module",
    "load_params",
    "measure_windows",
    "metal",
    "opencl",
    "pinned",
    "profiling",
    "program_cache",
    "random_fill",
    "register_artifact_kind",
    "register_device_api",
    "register_func",
    "remove_global_func",
    "rocm",
    "save_params",
    "set_num_threads",
    "system_lib",
    "time_call",
    "time_once",
    "unregister_artifact_kind",
    "unregister_device_api",
]

if not TYPE_CHECKING:  # a type checker needs to know the names

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(_LATER[name])
        value = module if _LATER[name] == f"{__name__}.{name}" else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
