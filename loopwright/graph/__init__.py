"""Whole models as graphs of operators: Relay's vocabulary over frozen nodes."""

from __future__ import annotations

from loopwright.executors import load_model as load
from loopwright.graph import dataflow_pattern
from loopwright.graph import frontend
from loopwright.graph import op
from loopwright.graph import transform
from loopwright.graph.batches import CompiledBatches
from loopwright.graph.building import CompiledModel
from loopwright.graph.compile import compile
from loopwright.graph.compile import compile_partitioned
from loopwright.graph.frontend.onnx import from_onnx
from loopwright.graph.frontend.torch import from_torch
from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import Call
from loopwright.graph.ir.expr import Constant
from loopwright.graph.ir.expr import Expr
from loopwright.graph.ir.expr import FuncType
from loopwright.graph.ir.expr import Function
from loopwright.graph.ir.expr import GlobalVar
from loopwright.graph.ir.expr import HostFunction
from loopwright.graph.ir.expr import If
from loopwright.graph.ir.expr import Let
from loopwright.graph.ir.expr import OpRef
from loopwright.graph.ir.expr import TensorType
from loopwright.graph.ir.expr import Tuple
from loopwright.graph.ir.expr import TupleGetItem
from loopwright.graph.ir.expr import TupleType
from loopwright.graph.ir.expr import Var
from loopwright.graph.ir.expr import const
from loopwright.graph.ir.expr import var
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.module import bind_params_by_name
from loopwright.graph.ir.structural import structural_equal
from loopwright.graph.ir.structural import structural_hash
from loopwright.graph.ir.visitor import free_vars
from loopwright.graph.ir.visitor import post_order
from loopwright.graph.ir.visitor import rewrite
from loopwright.graph.ir.visitor import substitute
from loopwright.graph.kernels import evaluate
from loopwright.graph.layout.choice import LayoutChoice
from loopwright.graph.op.products import sparse_dense
from loopwright.graph.quantize import quantize
from loopwright.graph.registry import Implementation
from loopwright.graph.registry import Op
from loopwright.graph.registry import Pattern
from loopwright.graph.registry import get_op
from loopwright.graph.registry import implementations
from loopwright.graph.registry import op_names
from loopwright.graph.registry import register_implementation
from loopwright.graph.registry import register_op
from loopwright.graph.registry import remove_implementation
from loopwright.graph.registry import remove_op
from loopwright.graph.serial import load_json
from loopwright.graph.serial import save_json
from loopwright.lazy import lazy_names
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopwright.graph import torch_backend
    from loopwright.graph.batches import BatchSource
    from loopwright.graph.batches import checked_batches
    from loopwright.graph.batches import source_of
    from loopwright.graph.building import ModelBuilder
    from loopwright.graph.fallbacks import random_inputs
    from loopwright.graph.fallbacks import seconds_by_step
    from loopwright.graph.fallbacks import shares_by_step
    from loopwright.graph.frontend.source import ModelLike
    from loopwright.graph.frontend.source import module_of
    from loopwright.graph.ir.module import MAIN
    from loopwright.graph.kernels import KernelTasks
    from loopwright.graph.kernels import fastest
    from loopwright.graph.kernels import kernel_tasks
    from loopwright.graph.layout.choice import LAYOUTS
    from loopwright.graph.layout_tuning import LayoutCosts
    from loopwright.graph.layout_tuning import Measured
    from loopwright.graph.layout_tuning import tune_layouts
    from loopwright.graph.plan import Planned
    from loopwright.graph.registry import DEFINITION
    from loopwright.graph.transform.pipeline import before_layouts
    from loopwright.graph.transform.pipeline import prepared
    from loopwright.graph.tuning import ModelTask
    from loopwright.graph.tuning import extract_tasks
    from loopwright.graph.tuning import grouped
    from loopwright.graph.tuning import tune
# Imported at their first use; those that `__all__` lacks by other rooms.


__all__ = [
    "Call", "CompiledBatches", "CompiledModel", "Constant", "Expr", "FuncType", "Function",
    "GlobalVar", "HostFunction", "IRModule", "If", "Implementation", "LayoutChoice", "Let",
    "ModelTask", "Op", "OpRef", "Pattern", "TensorType", "Tuple", "TupleGetItem", "TupleType",
    "Var", "bind_params_by_name", "compile", "compile_partitioned", "const", "dataflow_pattern",
    "evaluate", "extract_tasks", "free_vars", "from_onnx", "from_torch", "frontend", "get_op",
    "implementations", "infer_types", "load", "load_json", "op", "op_names", "post_order",
    "quantize", "register_implementation", "register_op", "remove_implementation", "remove_op",
    "rewrite", "save_json", "sparse_dense", "structural_equal", "structural_hash", "substitute",
    "transform", "tune_layouts", "var",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
