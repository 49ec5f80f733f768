"""Load, run and time compiled programs; knows no tensor expressions and no search.

Works alone: a saved program runs with nothing else of loopwright imported. Importing this package
does not load LLVM; linking the first program does.
"""

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
from loopwright.runtime.devices.device import DEVICE_TYPES, Device, DeviceType, cpu, device, enabled
from loopwright.runtime.function import Arg, BoundCall, Function
from loopwright.runtime.library import LIBRARY
from loopwright.runtime.module import Module, load_module
from loopwright.runtime.ndarray import NDArray, array, empty, from_dlpack
from loopwright.runtime.peak import bandwidth, fma_peak
from loopwright.runtime.pool import get_num_threads, pinned, set_num_threads
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
    "Device",
    "DeviceType",
    "Evaluator",
    "Function",
    "Manifest",
    "Module",
    "NDArray",
    "PackedFunc",
    "array",
    "bandwidth",
    "cpu",
    "device",
    "empty",
    "enabled",
    "fma_peak",
    "from_dlpack",
    "get_num_threads",
    "load_module",
    "measure_windows",
    "pinned",
    "register_artifact_kind",
    "set_num_threads",
    "time_call",
    "time_once",
    "unregister_artifact_kind",
]
