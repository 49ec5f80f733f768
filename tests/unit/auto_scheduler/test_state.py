"""States: Ansor's primitives make the schedules that the surface makes."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import loopwright as lw
from loopwright import auto_scheduler, te
from loopwright.errors import ScheduleError, TaskError, TensorError, UsageError


def product(n: int = 32) -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C, te.compute((n, n), lambda i, j: C[i, j] + 1, name="D")


A, B, C, D = product()
DAG = auto_scheduler.ComputeDAG([A, B, D])


def trace(build) -> list:
    s = te.create_schedule(D.op)
    build(s)
    return s.trace_json()


def test_tiles_are_those_of_the_surface() -> None:
    state = DAG.get_init_state()
    i, j = state[D].iters
    outer_i, inner_i = state.split(D, i, [4])
    outer_j, inner_j = state.split(D, j, [8])
    state.reorder(D, [outer_i, outer_j, inner_i, inner_j])
    fused = state.fuse(D, [outer_i, outer_j])
    assert state.parallel(D, fused).name == fused.name
    state.vectorize(D, inner_j)
    state.unroll(D, inner_i)
    state.compute_at(C, D, fused)

    def by_hand(s: lw.schedule.Schedule) -> None:
        x, y = s[D].op.axis
        xo, xi = s[D].split(x, factor=4)
        yo, yi = s[D].split(y, factor=8)
        s[D].reorder(xo, yo, xi, yi)
        both = s[D].fuse(xo, yo)
        s[D].parallel(both)
        s[D].vectorize(yi)
        s[D].unroll(xi)
        s[C].compute_at(s[D], both)

    assert state.transform_steps == trace(by_hand)
    assert DAG.infer_bound_from_state(state)[C].extents == [4, 8, 32]


@pytest.mark.parametrize(
    ("lengths", "inner_to_outer", "extents"),
    [([4, 2], True, [4, 4, 2]), ([4, 2], False, [4, 2, 4]), ([8], True, [4, 8]), ([], True, [32])],
)
def test_lengths_of_several_loops(
    lengths: list[int], inner_to_outer: bool, extents: list[int]
) -> None:
    state = DAG.get_init_state()
    loops = state.split(D, 0, lengths, inner_to_outer)
    assert state[D].extents[:-1] == extents
    assert [axis.name for axis in loops] == [axis.name for axis in state[D].iters[:-1]]


def test_new_stages_are_named_by_their_operations() -> None:
    state = DAG.get_init_state()
    local = state.cache_write(C, "local")
    copy = state.cache_read(B, "global", [local])
    assert (local.name, copy.name) == ("C.local", "B.global")
    assert [op.name for op in state.stage_ops] == ["A", "B", "B.global", "C.local", "C", "D"]
    state.compute_inline(C)
    state.compute_at(copy, local, 0)
    state.storage_align(copy, 0, 32, 8)
    state.pragma(D, 0, "auto_unroll_max_step$16")
    s, args = DAG.apply_steps_from_state(state)
    assert [t.name for t in args] == ["A", "B", "D"]
    lw.lower(s, args)


def test_a_reduction_in_parts_gives_the_right_answer() -> None:
    state = DAG.get_init_state()
    outer, _ = state.split(C, 2, [8])
    parts = state.rfactor(C, outer, 2)
    assert parts.name == "C.rf"
    f = lw.build(*DAG.apply_steps_from_state(state), "llvm")
    a, b = np.random.default_rng(0).random((2, 32, 32), "float32")
    d = np.empty((32, 32), "float32")
    f(a, b, d)
    np.testing.assert_allclose(d, a @ b + 1, rtol=1e-5)


def test_long_loops_are_not_written_out() -> None:
    state = DAG.get_init_state()
    state.unroll(D, 1, max_unroll=16)
    assert state.transform_steps == []
    state.unroll(D, 1, max_unroll=32)
    assert len(state.transform_steps) == 1


def test_threads_are_bound() -> None:
    state = DAG.get_init_state()
    outer, inner = state.split(D, 0, [4])
    state.bind(D, outer, "blockIdx.x")
    state.bind(D, inner, "threadIdx.x")
    assert "threadIdx.x in thread(4)" in str(state)


def test_a_copy_goes_its_own_way() -> None:
    state = DAG.get_init_state()
    state.split(D, 0, [4])
    for other in (state.copy(), copy.copy(state), copy.deepcopy(state)):
        assert other == state
        assert hash(other) == hash(state)
        other.vectorize(D, -1)
        assert len(state.transform_steps) == 1
        assert other != state
    schedule, _ = DAG.apply_steps_from_state(state)
    schedule[D].parallel(schedule[D].leaf_iter_vars[0])
    assert len(state.transform_steps) == 1


# Each step on a loop, or a stage, that was taken from the state before it was copied.
STEPS = {
    "split": lambda s, L, c, d: s.split(D, d[0], [4]),
    "fuse": lambda s, L, c, d: s.fuse(D, d[:2]),
    "reorder": lambda s, L, c, d: s.reorder(D, [d[1], d[0]]),
    "parallel": lambda s, L, c, d: s.parallel(D, d[0]),
    "vectorize": lambda s, L, c, d: s.vectorize(D, d[-1]),
    "unroll": lambda s, L, c, d: s.unroll(D, d[-1]),
    "unroll short ones": lambda s, L, c, d: s.unroll(D, d[-1], max_unroll=64),
    "bind": lambda s, L, c, d: s.bind(D, d[0], "blockIdx.x"),
    "pragma": lambda s, L, c, d: s.pragma(D, d[0], "auto_unroll_max_step$16"),
    "compute_at": lambda s, L, c, d: s.compute_at(L, D, d[0]),
    "storage_align": lambda s, L, c, d: s.storage_align(L, c[0], 32, 8),
    "follow_split": lambda s, L, c, d: s.follow_split(D, d[0], 2, 1),
    "follow_fused_split": lambda s, L, c, d: s.follow_fused_split(D, d[0], [2], 0, True),
    "rfactor": lambda s, L, c, d: s.rfactor(L, c[3], 2),
    "cache_read": lambda s, L, c, d: s.cache_read(A, "global", [L]),
    "compute_inline": lambda s, L, c, d: s.compute_inline(C),
    "compute_root": lambda s, L, c, d: s.compute_root(L),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_loops_and_stages_of_a_state_are_those_of_its_copies(step) -> None:
    state = DAG.get_init_state()
    local = state.cache_write(C, "local")
    state.split(local, state[local].iters[2], [4])
    state.split(D, state[D].iters[1], [8])
    others = [state.copy(), auto_scheduler.loop_state.State(state, DAG), state.copy().copy()]
    loops = state[local].iters, state[D].iters
    for other in (*others, state):
        step(other, local, *loops)
    assert len({len(other.transform_steps) for other in others}) == 1
    assert all(other == state for other in others)


@pytest.mark.parametrize("stages", [0, 1])
def test_loops_made_since_belong_to_one_state(stages: int) -> None:
    state = DAG.get_init_state()
    copies = [state, state.copy()]
    old = copies[stages][D].iters[0]
    outer, _ = copies[stages].split(D, old, [4])
    with pytest.raises(ScheduleError, match=r"no loop 'i\.0'; .* i, j \(it is one of another"):
        copies[1 - stages].parallel(D, outer)
    with pytest.raises(ScheduleError, match=r"no loop 'i'; .* \(it was split or fused since;"):
        copies[stages].parallel(D, old)
    local = copies[stages].cache_write(C, "local")
    with pytest.raises(ScheduleError, match=r"C\.local.* is not part of this schedule"):
        copies[1 - stages].compute_inline(local)


def test_splits_are_followed_by_their_numbers() -> None:
    state = DAG.get_init_state()
    state.split(D, 0, [4, 2])
    last = len(state.transform_steps) - 1
    assert [state.follow_split(C, 0, number, 2)[0].name for number in (last,)] == ["i.0"]
    assert state[C].extents == [4, 4, 2, 32, 32]
    assert [axis.name for axis in state.follow_split(C, 3, 0, 1)] == ["j.0", "j.1"]
    assert state[C].extents == [4, 4, 2, 4, 8, 32]
    state.follow_fused_split(C, 5, [0, last], 1, False)
    assert state[C].extents == [4, 4, 2, 4, 8, 4, 8]
    f = lw.build(*DAG.apply_steps_from_state(state), "llvm")
    a, b = np.random.default_rng(0).random((2, 32, 32), "float32")
    d = np.empty((32, 32), "float32")
    f(a, b, d)
    np.testing.assert_allclose(d, a @ b + 1, rtol=1e-5)
    state.parallel(D, 0)
    for step in (len(state.transform_steps) - 1, 99, "a", None):
        with pytest.raises(ScheduleError, match=r"is no split of this state; .* are: 0, 1"):
            state.follow_split(D, -1, step, 1)


def test_what_cannot_be_is_refused_in_one_line() -> None:
    state = DAG.get_init_state()
    with pytest.raises(ScheduleError, match="there is no stage 9"):
        state.split(9, 0, [4])
    with pytest.raises(ScheduleError, match="its loops are i, j"):
        state.split(D, 5, [4])
    with pytest.raises(ScheduleError, match="PreloadCustomSketchRule"):
        state.split(D, 0, [None])
    state.split(D, 0, [4])
    for call in (
        lambda: state.follow_split(C, 0, 0, 1.5),
        lambda: state.follow_fused_split(C, 0, 0, 0, True),
        lambda: state.follow_fused_split(C, 0, [0], None, True),
        lambda: state.split(D, 0, 4),
        lambda: state.fuse(D, 0),
        lambda: state.reorder(D, None),
        lambda: state.unroll(D, 0, "x"),
        lambda: state.pragma(D, 0, "auto_unroll_max_step$x"),
        lambda: state.cache_read(A, "global", None),
    ):
        with pytest.raises(ScheduleError):
            call()
    X = te.placeholder((2048,), name="X")
    Y = te.compute((2048,), lambda i: X[i] * 2, name="Y")
    long = auto_scheduler.ComputeDAG([X, Y])
    wide = long.get_init_state()
    wide.vectorize(Y, 0)
    with pytest.raises(ScheduleError, match="longest vector"):
        long.infer_bound_from_state(wide)


def test_states_of_another_expression_are_refused() -> None:
    X = te.placeholder((4,), name="X")
    Y = te.compute((4,), lambda i: X[i] * 2, name="Y")
    foreign = auto_scheduler.ComputeDAG([X, Y]).get_init_state()
    for ask in (
        DAG.apply_steps_from_state,
        DAG.print_python_code_from_state,
        DAG.infer_bound_from_state,
    ):
        with pytest.raises(UsageError, match="another expression"):
            ask(foreign)


def test_an_expression_may_be_given_in_several_ways() -> None:
    key = auto_scheduler.register_workload_tensors("test/product 32", [A, B, D])
    s = te.create_schedule(D.op)
    ways = [auto_scheduler.ComputeDAG(way) for way in (key, s, D, [A, B, D])]
    assert {dag.hash_key() for dag in ways} == {DAG.hash_key()}
    assert {dag.flop_ct for dag in ways} == {2 * 32**3 + 32**2}
    assert [op.name for op in DAG.ops] == ["A", "B", "C", "D"]
    assert DAG.init_state == DAG.get_init_state()
    assert copy.deepcopy(DAG).hash_key() == DAG.hash_key()
    with pytest.raises(UsageError, match="it got a int"):
        auto_scheduler.ComputeDAG(3)
    with pytest.raises(TaskError, match="key of no workload"):
        auto_scheduler.ComputeDAG("nothing")
    with pytest.raises(TensorError):
        auto_scheduler.ComputeDAG([A, B])


def test_free_layouts_change_nothing() -> None:
    X = te.placeholder((8, 8), name="X")
    plain, free = (
        te.compute((8, 8), lambda i, j: X[i, j] + 1, name="Y", attrs=attrs)
        for attrs in (None, {"layout_free_placeholders": [X]})
    )
    one, other = (auto_scheduler.ComputeDAG([X, Y]) for Y in (plain, free))
    assert one.hash_key() == other.hash_key()


def test_printed_source_is_the_program() -> None:
    names: dict = {}
    exec(f"from loopwright import te\n{DAG}", names)
    assert auto_scheduler.ComputeDAG([names["D"]]).hash_key() == DAG.hash_key()


def test_keys_of_workloads_are_taken_once() -> None:
    auto_scheduler.register_workload_tensors("test/once", [A, B, D])
    with pytest.raises(TaskError, match="give another key"):
        auto_scheduler.register_workload_tensors("test/once", [A, B, D], override=False)
    with pytest.raises(TaskError, match="nobody"):
        auto_scheduler.make_workload_key("nobody", ())


def test_functions_stay_what_they_are_and_may_be_replaced() -> None:
    def first(n: int) -> list[te.Tensor]:
        X = te.placeholder((n,), name="X")
        return [X, te.compute((n,), lambda i: X[i] + 1, name="Y")]

    def second(n: int) -> list[te.Tensor]:
        X = te.placeholder((n,), name="X")
        return [X, te.compute((n,), lambda i: X[i] + 2, name="Y")]

    name = "test/replaced"
    assert auto_scheduler.register_workload(name, first) is first
    with pytest.raises(TaskError, match="defined"):
        auto_scheduler.register_workload(name)(second)
    key = auto_scheduler.make_workload_key(name, (8,))
    before = auto_scheduler.ComputeDAG(key).hash_key()
    auto_scheduler.register_workload(name, second, override=True)
    assert auto_scheduler.ComputeDAG(key).hash_key() != before
    del lw.task.TASKS[name]
