"""loopwright: an auto-tuning framework for tensor programs.

Names are loaded when they are first used, so that ``import loopwright`` is cheap and a deployed
kernel needs nothing but `loopwright.runtime`.
"""

from __future__ import annotations

import importlib
from typing import Any

from loopwright.version import __version__

#: Public name -> (module, attribute); an empty attribute is the module itself.
_NAMES: dict[str, tuple[str, str]] = {
    "ConfigEntity": ("loopwright.task", "ConfigEntity"),
    "ConfigSpace": ("loopwright.task", "ConfigSpace"),
    "LocalBuilder": ("loopwright.measure", "LocalBuilder"),
    "LocalRunner": ("loopwright.measure", "LocalRunner"),
    "LoopwrightError": ("loopwright.errors", "LoopwrightError"),
    "MeasureInput": ("loopwright.measure", "MeasureInput"),
    "MeasureResult": ("loopwright.measure", "MeasureResult"),
    "PassContext": ("loopwright.transform", "PassContext"),
    "TVMError": ("loopwright.errors", "LoopwrightError"),
    "Target": ("loopwright.target", "Target"),
    "Task": ("loopwright.task", "Task"),
    "apply_history_best": ("loopwright.history", "apply_history_best"),
    "auto_scheduler": ("loopwright.auto_scheduler", ""),
    "autotvm": ("loopwright.autotvm", ""),
    "auto_schedule": ("loopwright.automatic", "auto_schedule"),
    "build": ("loopwright.automatic", "build"),
    "callback": ("loopwright.tuner.run.callbacks", ""),
    "compile": ("loopwright.graph", "compile"),
    "context": ("loopwright.runtime", "device"),
    "cpu": ("loopwright.runtime", "cpu"),
    "cuda": ("loopwright.runtime", "cuda"),
    "cl": ("loopwright.runtime", "opencl"),
    "gpu": ("loopwright.runtime", "gpu"),
    "metal": ("loopwright.runtime", "metal"),
    "opencl": ("loopwright.runtime", "opencl"),
    "rocm": ("loopwright.runtime", "rocm"),
    "create_schedule": ("loopwright.schedule", "create_schedule"),
    "create_task": ("loopwright.ops", "create_task"),
    "device": ("loopwright.runtime", "device"),
    "executors": ("loopwright.executors", ""),
    "driver": ("loopwright.driver", ""),
    "get_config": ("loopwright.task", "get_config"),
    "get_global_func": ("loopwright.runtime", "get_global_func"),
    "in_context": ("loopwright.task", "in_context"),
    "load_module": ("loopwright.runtime", "load_module"),
    "history": ("loopwright.history", ""),
    "inspection": ("loopwright.inspection", ""),
    "ir": ("loopwright.ir", ""),
    "lower": ("loopwright.lowering", "lower"),
    "measure": ("loopwright.measure", ""),
    "measure_option": ("loopwright.measure", "measure_option"),
    "nd": ("loopwright.runtime.ndarray", ""),
    "ops": ("loopwright.ops", ""),
    "records": ("loopwright.records", ""),
    "register_func": ("loopwright.runtime", "register_func"),
    "runtime": ("loopwright.runtime", ""),
    "graph": ("loopwright.graph", ""),
    "space": ("loopwright.space", ""),
    "target": ("loopwright.target", ""),
    "task": ("loopwright.task", ""),
    "te": ("loopwright.te", ""),
    "template": ("loopwright.task", "template"),
    "testing": ("loopwright.testing", ""),
    "tir": ("loopwright.tir", ""),
    "space_rule": ("loopwright.space", "space_rule"),
    "transform": ("loopwright.transform", ""),
    "tune": ("loopwright.graph.tuning", "tune"),
    "tune_tasks": ("loopwright.tuner", "tune_tasks"),
    "tuner": ("loopwright.tuner", ""),
    "workload": ("loopwright.space", "workload"),
}

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
    "contrib": "Module.export_library finds what links by itself; Python's tempfile makes folders",
    "convert": "Python's numbers, lists and functions are taken as they are",
    "meta_schedule": _SPACES,
    "micro": "kernels run on this machine; Module.export_library writes what C code can call",
    "module": "loopwright.runtime.load_module(path) reads a module",
    "ndarray": "write loopwright.nd",
    "relay": _NETWORK,
    "rpc": "tune on the machine itself with LocalRunner, and merge the logs",
    "script": "write te.compute with a schedule",
    "topi": "loopwright.ops has operators, each with a template; the others are a te.compute",
}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        from loopwright.errors import no_such_name

        raise no_such_name("loopwright", name, _INSTEAD)
    module, attribute = _NAMES[name]
    loaded = importlib.import_module(module)
    value = getattr(loaded, attribute) if attribute else loaded
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
