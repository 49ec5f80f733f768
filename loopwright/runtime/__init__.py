"""Load, run and time compiled programs; knows no tensor expressions and no search.

Works alone: a saved program runs with nothing else of loopwright imported. Importing this package
does not load LLVM; linking the first program does.
"""

from loopwright.runtime.artifacts.artifact import Artifact
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
from loopwright.runtime.packed.function import PackedFunc
from loopwright.runtime.packed.registry import (
    get_global_func,
    list_global_func_names,
    register_func,
    remove_global_func,
)
from loopwright.runtime.packed.typed import TypedPackedFunc
from loopwright.runtime.packed.value import enter_kind, kind_of
from loopwright.runtime.params import load_params, save_params
from loopwright.runtime.peak import bandwidth, fma_peak
from loopwright.runtime.pool import get_num_threads, pinned, set_num_threads
from loopwright.runtime.random_fill import random_fill
from loopwright.runtime.symbolic import SymbolicFunction
from loopwright.runtime.system_library import system_lib
from loopwright.runtime.timing import (
    BenchmarkResult,
    Evaluator,
    measure_windows,
    time_call,
    time_once,
)

for _function in (Function, SymbolicFunction):
    PackedFunc.register(_function)
enter_kind(Module, "module")
for _kind in (LLVM_OBJECT, C_OBJECT, LIBRARY, INTERP):
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
    "TypedPackedFunc",
    "array",
    "bandwidth",
    "cpu",
    "device",
    "empty",
    "enabled",
    "fma_peak",
    "from_dlpack",
    "get_global_func",
    "get_num_threads",
    "kind_of",
    "list_global_func_names",
    "load_module",
    "load_params",
    "measure_windows",
    "pinned",
    "random_fill",
    "register_artifact_kind",
    "register_func",
    "remove_global_func",
    "save_params",
    "set_num_threads",
    "system_lib",
    "time_call",
    "time_once",
    "unregister_artifact_kind",
]
