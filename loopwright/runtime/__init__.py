"""Load, run and time compiled programs; knows no tensor expressions and no search.

Works alone: a saved program runs with nothing else of loopwright imported. Importing this package
does not load LLVM; linking the first program does.
"""

from loopwright.runtime import profiling
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
from loopwright.runtime.caches.programs import ProgramCache, content_key, program_cache
from loopwright.runtime.caches.runtime_cache import CacheStatistics, RuntimeCache
from loopwright.runtime.checker import RuntimeChecker
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
from loopwright.runtime.function import Arg, BoundCall, Function
from loopwright.runtime.library import LIBRARY
from loopwright.runtime.module import Module, load_module
from loopwright.runtime.ndarray import NDArray, array, empty, from_dlpack
from loopwright.runtime.peak import bandwidth, fma_peak
from loopwright.runtime.pool import config_threadpool, get_num_threads, pinned, set_num_threads
from loopwright.runtime.threads.thread_pool import ThreadPool
from loopwright.runtime.timing import (
    BenchmarkResult,
    Evaluator,
    measure_windows,
    time_call,
    time_once,
)

#: The field's name for a compiled function.
PackedFunc = Function

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
    "DeviceType",
    "Evaluator",
    "Function",
    "Manifest",
    "Module",
    "NDArray",
    "PackedFunc",
    "ProgramCache",
    "RuntimeCache",
    "RuntimeChecker",
    "ThreadPool",
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
    "get_num_threads",
    "gpu",
    "load_module",
    "measure_windows",
    "metal",
    "opencl",
    "pinned",
    "profiling",
    "program_cache",
    "register_artifact_kind",
    "rocm",
    "set_num_threads",
    "time_call",
    "time_once",
    "unregister_artifact_kind",
]
