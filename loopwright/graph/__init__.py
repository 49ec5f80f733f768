"""Whole models as graphs of operators: Relay's vocabulary over frozen nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.executors import load_model as load
from loopwright.graph import dataflow_pattern, frontend, op, transform
from loopwright.graph.batches import CompiledBatches
from loopwright.graph.building import CompiledModel
from loopwright.graph.compile import compile, compile_partitioned
from loopwright.graph.frontend.onnx import from_onnx
from loopwright.graph.frontend.torch import from_torch
from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    FuncType,
    GlobalVar,
    HostFunction,
    If,
    Let,
    OpRef,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    const,
    var,
)
from loopwright.graph.ir.module import IRModule, bind_params_by_name
from loopwright.graph.ir.structural import structural_equal, structural_hash
from loopwright.graph.ir.visitor import free_vars, post_order, rewrite, substitute
from loopwright.graph.kernels import evaluate
from loopwright.graph.layout.choice import LayoutChoice
from loopwright.graph.op.products import sparse_dense
from loopwright.graph.quantize import quantize
from loopwright.graph.registry import (
    Implementation,
    Op,
    Pattern,
    get_op,
    implementations,
    op_names,
    register_implementation,
    register_op,
    remove_implementation,
    remove_op,
)
from loopwright.graph.serial import load_json, save_json
from loopwright.lazy import lazy_names

if TYPE_CHECKING:
    from loopwright.graph import torch_backend
    from loopwright.graph.batches import BatchSource, checked_batches, source_of
    from loopwright.graph.building import ModelBuilder
    from loopwright.graph.fallbacks import random_inputs, seconds_by_step, shares_by_step
    from loopwright.graph.frontend.source import ModelLike, module_of
    from loopwright.graph.ir.module import MAIN
    from loopwright.graph.kernels import KernelTasks, fastest, kernel_tasks
    from loopwright.graph.layout.choice import LAYOUTS
    from loopwright.graph.layout_tuning import LayoutCosts, Measured, tune_layouts
    from loopwright.graph.plan import Planned
    from loopwright.graph.registry import DEFINITION
    from loopwright.graph.transform.pipeline import before_layouts, prepared
    from loopwright.graph.tuning import ModelTask, extract_tasks, grouped, tune
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
