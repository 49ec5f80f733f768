"""What the passes of kernels do to the function that the nest leaves: shared memory, reductions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loopwright.ir.node import Node
from loopwright.ir.stmt import Allocate, AllReduce, Barrier, For, Func
from loopwright.lowering import lower
from loopwright.lowering.context import PassContext
from tests.unit.lowering import gpu_programs
from tests.unit.lowering.programs import Case


def lowered(case: Case, *disabled: str) -> Func:
    with PassContext(disabled_pass=disabled, config={"verify": False}):
        return lower(case.s, case.args)


def around_shared(node: Node, tags: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """For each buffer in shared memory, the thread axes around it."""
    if isinstance(node, For) and node.kind == "thread":
        tags = (*tags, node.tag)
    here = [tags] if isinstance(node, Allocate) and node.buffer.scope == "shared" else []
    return here + [t for child in node.children() for t in around_shared(child, tags)]


def count(node: Node, kind: type[Node]) -> int:
    return isinstance(node, kind) + sum(count(child, kind) for child in node.children())


@pytest.mark.parametrize("program", [gpu_programs.tiled_matmul, gpu_programs.shared_stage])
def test_place_shared_memory_moves_buffers_out_of_the_threads(program: Callable[[], Case]) -> None:
    before = around_shared(lowered(program(), "PlaceSharedMemory").body)
    after = around_shared(lowered(program()).body)
    assert any("threadIdx.x" in tags for tags in before)
    assert after
    assert all(tag.startswith("blockIdx") for tags in after for tag in tags)


def test_lower_thread_allreduce_leaves_shared_memory_and_barriers() -> None:
    before = lowered(gpu_programs.row_sum(), "LowerThreadAllreduce", "ThreadSync")
    after = lowered(gpu_programs.row_sum())
    assert count(before.body, AllReduce) == 1
    assert around_shared(before.body) == []
    assert count(after.body, AllReduce) == 0
    assert len(around_shared(after.body)) == 1
    assert count(after.body, Barrier) > 0
