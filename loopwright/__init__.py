"""loopwright: an auto-tuning framework for tensor programs.

Names are loaded at their first use, so that a deployed kernel needs `loopwright.runtime` alone.
"""

from __future__ import annotations

import importlib
from typing import Any

from loopwright.version import __version__

#: Modules under their own names.
_MODULES = (
    "auto_scheduler autotvm contrib driver errors executors graph history inspection ir measure "
    "ops records runtime space target task te testing tir topi transform tuner"
)
#: Names of each module, ``name=attribute`` where they differ.
_ATTRIBUTES = {
    "automatic": "auto_schedule build",
    "errors": "LoopwrightError TVMError=LoopwrightError",
    "graph": "compile",
    "graph.tuning": "tune",
    "history": "apply_history_best",
    "lowering": "lower",
    "measure": "LocalBuilder LocalRunner MeasureInput MeasureResult measure_option",
    "ops": "create_task",
    "runtime": "cl=opencl context=device cpu cuda device get_global_func gpu load_module metal "
    "opencl register_func rocm",
    "schedule": "create_schedule",
    "space": "space_rule workload",
    "target": "Target",
    "task": "ConfigEntity ConfigSpace Task get_config in_context template",
    "transform": "PassContext",
    "tuner": "tune_tasks",
}
#: Public name -> (module, attribute); an empty attribute is the module itself.
_NAMES: dict[str, tuple[str, str]] = {
    **{name: (name, "") for name in _MODULES.split()},
    "callback": ("tuner.run.callbacks", ""),
    "nd": ("runtime.ndarray", ""),
}
for _module, _names in _ATTRIBUTES.items():
    for _name, _, _attribute in (entry.partition("=") for entry in _names.split()):
        _NAMES[_name] = (_module, _attribute or _name)

__all__ = ["__version__", *_NAMES]

_GPU = "code is made for the CPU, for OpenCL and for CUDA; write lw.opencl() or lw.cuda()"
_NETWORK = (
    "networks are modules of loopwright.graph: loopwright.graph.from_onnx reads them, "
    "loopwright.tune tunes them, loopwright.compile builds them"
)
_SPACES = (
    "write a template with knobs (loopwright.template), or let the space be derived "
    "(loopwright.create_task, loopwright.auto_scheduler)"
)
#: Names that TVM had here before version 0.7, and has in ``te`` since.
_MOVED = (
    "compute", "exp", "if_then_else", "log", "placeholder", "reduce_axis", "select", "size_var",
    "sum", "tensor", "thread_axis", "var",
)  # fmt: skip
#: Names of TVM that cannot be had, and what takes their place.
_INSTEAD = {
    **dict.fromkeys(("hexagon", "vulkan"), _GPU),
    **{name: f"write te.{name}, as for TVM since its version 0.7" for name in _MOVED},
    "IRModule": "write loopwright.graph.IRModule; loopwright.lower(s, args) gives one function",
    "const": "write tir.const or te.const",
    "convert": "Python's numbers, lists and functions are taken as they are",
    "meta_schedule": _SPACES,
    "micro": "kernels run on this machine; Module.export_library writes what C code can call",
    "module": "loopwright.runtime.load_module(path) reads a module",
    "ndarray": "write loopwright.nd",
    "relay": _NETWORK,
    "rpc": "tune on the machine itself with LocalRunner, and merge the logs",
    "script": "write te.compute with a schedule",
}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        from loopwright.errors import no_such_name

        raise no_such_name("loopwright", name, _INSTEAD)
    module, attribute = _NAMES[name]
    loaded = importlib.import_module(f"loopwright.{module}")
    value = getattr(loaded, attribute) if attribute else loaded
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
