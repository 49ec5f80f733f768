"""``apply`` is pure: states are values, and a shared prefix is shared work."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.schedule import State, apply, primitives
from loopwright.schedule.steps import Step
from tests.unit.schedule.programs import chain, matmul, running_sums


def snapshot(state: State) -> Any:
    """Everything in a state as plain values."""
    return (
        state.order,
        state.outputs,
        state.steps,
        [
            (
                s.id,
                id(s.op),
                dict(s.loops),
                s.leaves,
                s.relations,
                dict(s.marks),
                s.pragmas,
                s.prefetches,
                s.attach,
                s.scope,
                s.layout,
                s.env_threads,
                s.predicate,
                s.align,
                s.store,
                s.double,
                s.group,
            )
            for s in state.stages.values()
        ],
        dict(state.groups),
    )


STEPS: list[Step] = [
    primitives.CacheWrite(3, "local"),
    primitives.CacheRead(1, "local", (2, "s0")),
    primitives.Split(3, "a0", 4, None),
    primitives.Split(3, "a1", None, 3),
    primitives.Reorder(3, ("2.0", "3.0", "2.1", "3.1")),
    primitives.Fuse(3, "2.0", "3.0"),
    primitives.Annotate(3, "5.0", "parallel"),
    primitives.Annotate(3, "3.1", "vectorized"),
    primitives.Pragma(3, "2.1", "auto_unroll_max_step", 8),
    primitives.Prefetch(3, "2.1", 1, 2),
    primitives.PrefetchNext(3, "2.1", 1, 3, "5.0"),
    primitives.ComputeAt("s0", 3, "5.0"),
    primitives.ComputeInline(2),
    primitives.ComputeRoot(2),
    primitives.TransformLayout("s1", ((1, 1, None), (0, 1, None))),
    primitives.Bind("s0", "a0", "threadIdx.x"),
    primitives.SetScope("s1", "shared"),
    primitives.StorageAlign("s1", 0, 16, 1),
    primitives.ComputeAt("s1", "s0", "a0"),
    primitives.StoreAt("s1", 3, "5.0"),
    primitives.StoreRoot("s1"),
    primitives.DoubleBuffer("s1"),
    primitives.EnvThreads(3, (("threadIdx.x", 8), ("threadIdx.y", None))),
    primitives.FollowSplit("s0", "a1", 3, "a0", 1),
    primitives.FollowFusedSplit("s1", "a0", ((3, "a0"), ("s0", "a1")), 0),
    primitives.SampleCategorical("s0", (2, 4), 4, (0.5, 0.5)),
    primitives.SamplePerfectTile("s1", "a1", 2, 16, (3, 2)),
    primitives.SampleComputeLocation(2, ("root",)),
]


#: Steps of reductions, the matmul's.
REDUCTION_STEPS: list[Step] = [primitives.Split(2, "r0", 4, None), primitives.RFactor(2, "0.1", 0)]
SCAN_STEPS: list[Step] = [primitives.BlockedScan(1, "r0", 4), primitives.BlockedScan("s0", "r0", 2)]
GROUP_STEPS: list[Step] = [primitives.CreateGroup(2, (), (0,)), primitives.ComputeAt("s0", 3, "a0")]
TENSOR_STEPS: list[Step] = [primitives.Tensorize(2, "a1", te.intrinsics.dot_uint8_int8_int32(4))]
THREAD_STEPS: list[Step] = [
    primitives.Bind(2, "r0", "threadIdx.x", 10),
    primitives.SetStorePredicate(2, (("threadIdx.x", 3),)),
]


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (chain, STEPS),
        (chain, GROUP_STEPS),
        (matmul, REDUCTION_STEPS),
        (matmul, THREAD_STEPS),
        (matmul, TENSOR_STEPS),
        (running_sums, SCAN_STEPS),
    ],
)
def test_states_are_never_changed(make: Any, steps: list[Step]) -> None:
    state = State.initial(make().s.dag)
    history = [(state, snapshot(state))]
    for step in steps:
        state = apply(state, step)
        history.append((state, snapshot(state)))
    assert state.steps == len(steps)
    for old, before in history:
        assert snapshot(old) == before


def test_every_primitive_is_covered() -> None:
    several = (STEPS, GROUP_STEPS, REDUCTION_STEPS, THREAD_STEPS, TENSOR_STEPS, SCAN_STEPS)
    every = {type(s) for steps in several for s in steps}
    assert every == set(Step.registry.values())


def test_states_with_a_common_prefix_share_it() -> None:
    base = apply(State.initial(chain().s.dag), STEPS[0])
    left, right = (
        apply(base, primitives.Split(3, "a0", 2, None)),
        apply(base, primitives.Split(3, "a0", 4, None)),
    )
    assert left.stages[1] is right.stages[1]
    assert left.stages[3].loops["1.1"].nominal == 2
    assert right.stages[3].loops["1.1"].nominal == 4


def test_apply_needs_no_mutable_mappings() -> None:
    """Nothing may be written into a mapping of an earlier state."""
    state = State.initial(chain().s.dag)
    for step in STEPS:
        frozen = {
            i: s.__class__(
                **{
                    f: MappingProxyType(v) if isinstance(v := getattr(s, f), dict) else v
                    for f in s.__dataclass_fields__
                }
            )
            for i, s in state.stages.items()
        }
        state = State(MappingProxyType(frozen), state.order, state.outputs, state.steps)
        state = apply(state, step)
    plain = State.initial(chain().s.dag)
    for step in STEPS:
        plain = apply(plain, step)
    assert state.steps == len(STEPS)
    assert {i: s.leaves for i, s in state.stages.items()} == {
        i: s.leaves for i, s in plain.stages.items()
    }


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (
            primitives.Split(9, "a0", 2, None),
            r"split \(step 0\): there is no stage 9; stages: 0, 1, 2",
        ),
        (
            primitives.Split(0, "a0", 2, None),
            r"split \(step 0\): 'A' is an input and has no loops; use cache_",
        ),
        (
            primitives.Split(2, "a3", 2, None),
            r"split \(step 0\): stage 'C' has no loop 'a3' \(did you mean 'a\d'\?\); its loops: "
            r"C\.i, C\.j, C\.k",
        ),
        (
            primitives.Annotate(2, "a0", "wide"),
            r"annotate \(step 0\): unknown kind 'wide'; use vectorized",
        ),
        (primitives.ComputeAt(0, 2, "a0"), r"compute_at \(step 0\): 'A' is an input"),
        (primitives.ComputeRoot("s7"), r"compute_root \(step 0\): there is no stage 's7'"),
    ],
)
def test_steps_that_fit_no_stage_or_loop(step: Step, text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        apply(matmul().s.state, step)
