"""Executors of whole models: programs of kernels as data. Nothing here knows an IR."""

from __future__ import annotations

from loopwright.runtime.executors.aot_executor import AotExecutor
from loopwright.runtime.executors.async_executor import AsyncGraphExecutor
from loopwright.runtime.executors.batches.batched_model import BatchedModel
from loopwright.runtime.executors.batches.sized_model import SizedModel
from loopwright.runtime.executors.batches.sized_program import SizedProgram, SizedValue
from loopwright.runtime.executors.debug_executor import DebugExecutor
from loopwright.runtime.executors.device_executor import DeviceGraphExecutor
from loopwright.runtime.executors.device_program import DeviceProgram
from loopwright.runtime.executors.executor import Executor
from loopwright.runtime.executors.graph_executor import GraphExecutor
from loopwright.runtime.executors.host_step import HostStep
from loopwright.runtime.executors.loading import load_model
from loopwright.runtime.executors.model import Model
from loopwright.runtime.executors.partition import Edge, Partition, partition
from loopwright.runtime.executors.partitioned_executor import PartitionedExecutor
from loopwright.runtime.executors.program import Program, Step, Value

__all__ = [
    "AotExecutor",
    "AsyncGraphExecutor",
    "BatchedModel",
    "DebugExecutor",
    "DeviceGraphExecutor",
    "DeviceProgram",
    "Edge",
    "Executor",
    "GraphExecutor",
    "HostStep",
    "Model",
    "Partition",
    "PartitionedExecutor",
    "Program",
    "SizedModel",
    "SizedProgram",
    "SizedValue",
    "Step",
    "Value",
    "load_model",
    "partition",
]
