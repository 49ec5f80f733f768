"""Executors of whole models: programs of kernels as data. Nothing here knows an IR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.executors.batched_model import (
    BatchedModel,
    SizedModel,
    SizedProgram,
    SizedValue,
    load_model,
)
from loopwright.executors.callees import HostStep
from loopwright.executors.debug_executor import DebugExecutor
from loopwright.executors.device_executor import DeviceGraphExecutor, DeviceProgram
from loopwright.executors.executor import Executor
from loopwright.executors.graph_executor import AsyncGraphExecutor, GraphExecutor
from loopwright.executors.model import Model
from loopwright.executors.partitioned_executor import (
    Edge,
    Partition,
    PartitionedExecutor,
    partition,
)
from loopwright.executors.program import Program, Step, Value
from loopwright.executors.whole_program import AotExecutor
from loopwright.lazy import lazy_names

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.executors.c_headers import HEADER, c_header
    from loopwright.executors.callees import SharedArrays, sequence
    from loopwright.executors.program import Kind
    from loopwright.executors.saved import SAVED

__all__ = [
    "AotExecutor", "AsyncGraphExecutor", "BatchedModel", "DebugExecutor", "DeviceGraphExecutor",
    "DeviceProgram", "Edge", "Executor", "GraphExecutor", "HostStep", "Model", "Partition",
    "PartitionedExecutor", "Program", "SizedModel", "SizedProgram", "SizedValue", "Step", "Value",
    "load_model", "partition",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
