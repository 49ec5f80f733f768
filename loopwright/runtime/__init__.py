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
from loopwright.runtime.artifacts.device_kinds import CUDA_CUBIN, OPENCL_SOURCE
from loopwright.runtime.artifacts.kinds import (
    INTERP,
    ArtifactKind,
    register_artifact_kind,
    unregister_artifact_kind,
)
from loopwright.runtime.artifacts.manifest import Manifest
from loopwright.runtime.artifacts.objects import C_OBJECT, LLVM_OBJECT
from loopwright.runtime.calling.argument import Arg
from loopwright.runtime.constants import FunctionWithConstants
from loopwright.runtime.devices.device import (
    Device,
    cpu,
    cuda,
    device,
    enabled,
    gpu,
    metal,
    opencl,
    rocm,
)
from loopwright.runtime.devices.device_types import DEVICE_TYPES, DeviceType
from loopwright.runtime.devices.function import DeviceCall, DeviceFunction
from loopwright.runtime.devices.interface import DeviceAPI, Event, Memory, Program, Stream
from loopwright.runtime.devices.registry import register_device_api, unregister_device_api
from loopwright.runtime.function import BoundCall, Function
from loopwright.runtime.libraries.library import LIBRARY
from loopwright.runtime.module import Module, load_module
from loopwright.runtime.ndarray import array, empty, from_dlpack
from loopwright.runtime.packed.function import PackedFunc
from loopwright.runtime.packed.registry import (
    get_global_func,
    list_global_func_names,
    register_func,
    remove_global_func,
)
from loopwright.runtime.packed.value import enter_kind, kind_of
from loopwright.runtime.parts import Parts, PreparedCall
from loopwright.runtime.pool import config_threadpool, get_num_threads, pinned, set_num_threads
from loopwright.runtime.random_fill import random_fill
from loopwright.runtime.symbolic import SymbolicFunction
from loopwright.runtime.timing import (
    BenchmarkResult,
    Evaluator,
    measure_windows,
    time_call,
    time_once,
)

if TYPE_CHECKING:
    from loopwright.runtime import profiling
    from loopwright.runtime.caches.programs import ProgramCache, content_key, program_cache
    from loopwright.runtime.caches.runtime_cache import CacheStatistics, RuntimeCache
    from loopwright.runtime.checker import RuntimeChecker
    from loopwright.runtime.libraries.system_library import system_lib
    from loopwright.runtime.packed.typed import TypedPackedFunc
    from loopwright.runtime.params import load_params, save_params
    from loopwright.runtime.peak import bandwidth, fma_peak
    from loopwright.runtime.threads.thread_pool import ThreadPool

#: Names that are imported at their first use, and their modules; a module maps to itself.
_LATER = {
    "CacheStatistics": "loopwright.runtime.caches.runtime_cache",
    "ProgramCache": "loopwright.runtime.caches.programs",
    "RuntimeCache": "loopwright.runtime.caches.runtime_cache",
    "RuntimeChecker": "loopwright.runtime.checker",
    "ThreadPool": "loopwright.runtime.threads.thread_pool",
    "TypedPackedFunc": "loopwright.runtime.packed.typed",
    "bandwidth": "loopwright.runtime.peak",
    "content_key": "loopwright.runtime.caches.programs",
    "fma_peak": "loopwright.runtime.peak",
    "load_params": "loopwright.runtime.params",
    "profiling": "loopwright.runtime.profiling",
    "program_cache": "loopwright.runtime.caches.programs",
    "save_params": "loopwright.runtime.params",
    "system_lib": "loopwright.runtime.libraries.system_library",
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
        found = module if _LATER[name] == f"{__name__}.{name}" else getattr(module, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
