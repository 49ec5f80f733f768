"""Load, run and time compiled programs; knows no tensor expressions and no search.

Works alone: a saved program runs with nothing else of loopwright imported. Importing this package
does not load LLVM; linking the first program does. Modules that a saved program does not need are
imported at the first use of their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.lazy import lazy_names
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
    from loopwright.runtime.arrays.device import Extent, Taken, buffer_of, extent
    from loopwright.runtime.arrays.host import ALIGNMENT, Arena, aligned_bytes
    from loopwright.runtime.artifacts.artifact import MANIFEST, OBJECT
    from loopwright.runtime.artifacts.device_code import (
        ArgumentSource,
        CallPlan,
        DeviceCode,
        ExtentFormulas,
        KernelResources,
        LaunchSpec,
    )
    from loopwright.runtime.artifacts.kinds import Link, artifact_kind, device_of_target
    from loopwright.runtime.artifacts.manifest import (
        ArgSpec,
        FunctionSpec,
        PartsSpec,
        SizeFormula,
        SizesSpec,
        evaluate,
        linear,
        text,
    )
    from loopwright.runtime.caches import (
        CacheStatistics,
        FileStore,
        ProgramCache,
        RuntimeCache,
        content_key,
        count_cache,
        program_cache,
    )
    from loopwright.runtime.checker import RuntimeChecker
    from loopwright.runtime.devices.device import (
        facts_here,
        models_here,
        names_of,
        runs_on_cpu,
        unlike,
    )
    from loopwright.runtime.devices.interface import (
        DEVICE_ALIGNMENT,
        HOST,
        AttributeValue,
        Extents,
        KernelArgument,
        check_request,
        note_copy,
    )
    from loopwright.runtime.executors import GraphExecutor
    from loopwright.runtime.guarded_memory import GuardedMemory, Side
    from loopwright.runtime.kernels.constants import InPlace
    from loopwright.runtime.kernels.device_function import sweep
    from loopwright.runtime.kernels.function import failure
    from loopwright.runtime.kernels.image import check_arch
    from loopwright.runtime.kernels.kernel import Kernel, KernelCall
    from loopwright.runtime.kernels.symbolic import SymbolicArg
    from loopwright.runtime.kernels.timer import flush
    from loopwright.runtime.kernels.timing import Turns, check_options, grown, sampled
    from loopwright.runtime.libraries import LIBRARY_FILE, TAR_FILE
    from loopwright.runtime.linker import Linked, architecture, host_triple, run_passes
    from loopwright.runtime.memory import note_use
    from loopwright.runtime.module import system_lib
    from loopwright.runtime.ndarray import device_of, host_array, is_on_host
    from loopwright.runtime.objects import FIRST_CODE, calls_packed, record_name
    from loopwright.runtime.packed import TypedPackedFunc, check_name
    from loopwright.runtime.params import decoded, encoded, load_params, save_params
    from loopwright.runtime.peak import assumed_peak, bandwidth, fma_kernel, fma_peak, out_of_reach
    from loopwright.runtime.profiling.report import ProfiledCall, Report
    from loopwright.runtime.thread_pool import ThreadPool


for _function in (Function, DeviceFunction, SymbolicFunction):
    PackedFunc.register(_function)
enter_kind(Module, "module")
for _kind in (LLVM_OBJECT, C_OBJECT, LIBRARY, INTERP, OPENCL_SOURCE, CUDA_CUBIN):
    register_artifact_kind(_kind)

__all__ = [
    "DEVICE_TYPES", "Arg", "Artifact", "ArtifactKind", "BenchmarkResult", "BoundCall",
    "CacheStatistics", "Device", "DeviceAPI", "DeviceArray", "DeviceCall", "DeviceFunction",
    "DeviceType", "Evaluator", "Event", "Function", "FunctionWithConstants", "Manifest", "Memory",
    "Module", "NDArray", "PackedFunc", "Parts", "PreparedCall", "Program", "ProgramCache",
    "RuntimeCache", "RuntimeChecker", "Stream", "ThreadPool", "TypedPackedFunc", "array",
    "bandwidth", "config_threadpool", "content_key", "cpu", "cuda", "device", "empty", "enabled",
    "fma_peak", "from_dlpack", "get_global_func", "get_num_threads", "gpu", "kind_of",
    "list_global_func_names", "load_module", "load_params", "measure_windows", "metal", "opencl",
    "pinned", "profiling", "program_cache", "random_fill", "register_artifact_kind",
    "register_device_api", "register_func", "remove_global_func", "rocm", "save_params",
    "set_num_threads", "system_lib", "time_call", "time_once", "unregister_artifact_kind",
    "unregister_device_api",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
