"""TVM's ``contrib`` names that scripts use: folders, a linker's call, facts of NVIDIA's devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopwright.compat.facade import Table, install

_CODE = "contrib: code of other languages cannot be called from a kernel; write it as statements"
_NETWORK = "loopwright.compile(mod, target) builds a network, and executor() of the result runs it"
_LIBRARY = "kernels call no library; write a te.compute, or register a function and call it in "
_LIBRARY += "tir.prim_func by tir.call_packed"

_TABLES = {
    "": Table(
        "",
        {},
        {
            **dict.fromkeys(("cblas", "cublas", "cudnn", "dnnl", "mkl"), _LIBRARY),
            "clang": f"{_CODE}, by tir.ir_builder",
            "debugger": "loopwright.executors.DebugExecutor says what each kernel gives and takes",
            "graph_executor": _NETWORK,
            "graph_runtime": _NETWORK,
            "random": "loopwright.nd.random_fill fills an array",
        },
    ),
    "cc": Table(
        "Linking of object files.", {"loopwright.compat.contrib": "create_shared cross_compiler"}
    ),
    "nvcc": Table(
        "What NVIDIA's devices can do.",
        {
            "loopwright.compat.contrib": "get_target_compute_version have_bf16 have_fp16 have_int8 "
            "have_tensorcore"
        },
        {"compile_cuda": "loopwright.build(s, args, 'cuda') compiles, by NVRTC"},
    ),
    "tedd": Table(
        "Pictures of schedules for Graphviz.",
        {
            "loopwright.compat.tedd": "viz_dataflow_graph viz_itervar_relationship_graph "
            "viz_schedule_tree"
        },
    ),
    "utils": Table("Folders for a while.", {"loopwright.compat.contrib": "TempDirectory tempdir"}),
}

install(__name__, _TABLES)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
