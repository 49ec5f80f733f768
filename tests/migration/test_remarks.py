"""docs/from-autotvm.md: what its remarks and its differences say is so. Its names: `test_names`."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

import loopwright as tvm
from loopwright import autotvm, te
from loopwright.errors import BuildError, InstantiationError, ScheduleError, TaskError, UsageError
from loopwright.testing.tuner_contract import FakeMeasurer, bowl
from tests.migration.test_names import TEXT

TASK = autotvm.task.create("matmul", args=(16, 16, 16), target="llvm")


def pair() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """An input, what is made of it, and what is made of that."""
    A = te.placeholder((128 / 32, 8.0), name="A")
    B = te.compute((4.0, 8), lambda i, j: A[i, j] + 1.0, name="B")
    return A, B, te.compute((4, 8), lambda i, j: B[i, j] * 2.0, name="C")


# -- remarks of the table, from the first row on ------------------------------------------------


def test_extents_are_whole_floats_and_become_integers() -> None:
    A, B, _ = pair()
    assert (A.shape, B.op.axis[0].dom.extent) == ((4, 8), 4)
    assert all(type(extent) is int for extent in (*A.shape, B.op.axis[0].dom.extent))
    assert isinstance(B.op, te.tensor.ComputeOp)
    assert isinstance(A.op, te.tensor.PlaceholderOp)


def test_stages_have_the_primitives_of_te() -> None:
    _, B, C = pair()
    s = te.create_schedule(C.op)
    names = """
        bind compute_at compute_inline compute_root double_buffer env_threads fuse parallel pragma
        prefetch reorder set_scope set_store_predicate split storage_align tensorize tile unroll
        vectorize
    """
    assert not [name for name in names.split() if not callable(getattr(s[B], name, None))]
    for name in ("cache_read", "cache_write", "rfactor", "create_group"):
        assert callable(getattr(s, name))


def test_equality_is_an_expression_whose_truth_is_that_of_structure() -> None:
    A, *_ = pair()
    assert bool(A[0, 0] == A[0, 0])
    assert not bool(A[0, 0] == A[0, 1])
    assert str(A[0, 0] == A[0, 1]) == str(te.equal(A[0, 0], A[0, 1])) == "A[0, 0] == A[0, 1]"


def test_ties_are_rounded_as_numpy_does() -> None:
    x = np.array([-1.5, -0.5, 0.5, 1.5, 2.5], "float32")
    X = te.placeholder(x.shape, name="X")
    Y = te.compute(x.shape, lambda i: te.round(X[i]), name="Y")
    y = np.empty_like(x)
    tvm.build(te.create_schedule(Y.op), [X, Y], "llvm")(x, y)
    np.testing.assert_array_equal(y, np.round(x))


def test_offsets_and_alignment_of_buffers_change_nothing() -> None:
    plain = tvm.tir.decl_buffer((4, 8), "float32", name="b")
    other = tvm.tir.decl_buffer(
        (4, 8), "float32", name="b", elem_offset=te.var("o"), data_alignment=64, offset_factor=1
    )
    assert (plain.shape, plain.strides) == (other.shape, other.strides)


def test_building_from_a_schedule_and_from_what_lower_made() -> None:
    A, B, C = pair()
    s = te.create_schedule(C.op)
    assert tvm.build(s, [A, B, C], "llvm", "llvm", "named", {}).entry_name == "named"
    a, c = np.ones((4, 8), "float32"), np.zeros((4, 8), "float32")
    s[B].compute_inline()
    lowered = tvm.lower(s, [A, B, C], name="lowered")
    assert "B" not in [param.name for param in lowered.params]
    assert str(lowered).startswith("def lowered(A: float32[4, 8], C: out float32[4, 8]):")
    tvm.build(lowered, target="llvm")(a, c)
    np.testing.assert_array_equal(c, (a + 1) * 2)
    with pytest.raises(tvm.TVMError, match="'B'"):
        tvm.build(s, [A, B, C], "llvm")
    with pytest.raises(BuildError):
        tvm.build(lowered, [A, C], "llvm")


def test_one_device_runs_kernels() -> None:
    assert tvm.device("llvm", 0) == tvm.context("cpu", 0) == tvm.cpu() == tvm.cpu(0)
    for device in (lambda: tvm.cpu(1), lambda: tvm.device("cuda", 0).require()):
        with pytest.raises(UsageError):
            device()
    assert (tvm.runtime.enabled("llvm"), tvm.runtime.enabled("cuda")) == (True, False)


def test_targets() -> None:
    assert tvm.target.Target(target="llvm", host="llvm").kind.name == "llvm"
    assert tvm.target.Target.current() == tvm.target.create("llvm")
    assert tvm.target.Target.current(allow_none=True) is None


def test_names_of_templates() -> None:
    @autotvm.template
    def matmul(n: int) -> object:
        return tvm.ops.matmul(n, n, n)

    by_function = autotvm.task.create(matmul, args=(16,), target="llvm")
    assert by_function.name == "user/matmul"
    assert autotvm.task.create("matmul", args=(16,), target="llvm").name == "user/matmul"
    del tvm.task.TASKS["user/matmul"]
    assert autotvm.task.create("matmul", args=(16, 16, 16), target="llvm").name == "matmul"


def test_every_policy_of_a_space() -> None:
    cfg = autotvm.ConfigSpace()
    axes = [cfg.axis(16), cfg.axis(8), cfg.reduce_axis(4)]
    for policy in ("factors", "power2", "verbose"):
        cfg.define_split(f"split_{policy}", axes[0], policy=policy, num_outputs=2)
    cfg.define_split("split_candidate", axes[0], policy="candidate", candidate=[[-1, 4], [-1, 8]])
    cfg.define_reorder("reorder_identity", axes, policy="identity")
    cfg.define_reorder("reorder_all", axes, policy="all")
    cfg.define_reorder("reorder_interval_all", axes, policy="interval_all", interval=(0, 2))
    cfg.define_reorder("reorder_candidate", axes, policy="candidate", candidate=[axes, axes[::-1]])
    chains = {"spatial": [axes[:1], axes[1:2]], "reduce": [axes[2:]]}
    cfg.define_reorder("reorder_interleave", axes, policy="interleave", **chains)
    for policy in ("none", "unroll", "vec", "unroll_vec", "try_unroll", "try_vec"):
        cfg.define_annotate(f"annotate_{policy}", axes, policy=policy)
    cfg.define_annotate("annotate_try_unroll_vec", axes, policy="try_unroll_vec")
    cfg.define_annotate("annotate_locate_cache", axes, policy="locate_cache", num_anchor=1)
    cfg.define_annotate("annotate_bind_gpu", axes[:2], policy="bind_gpu")
    cfg.freeze()
    assert list(cfg.space_map) == list(cfg.knobs)
    assert len(cfg.space_map["reorder_all"].entities) == 6


def test_a_fallback_is_chosen_by_the_template() -> None:
    @autotvm.template("test/chooses_its_fallback")
    def chooses(n: int) -> object:
        s, (a, b, c) = tuple(TASK.instantiate(0))
        cfg = autotvm.get_config()
        cfg.define_split("one", n, num_outputs=2)
        cfg.define_split("other", n, num_outputs=2)
        if cfg.is_fallback:
            cfg["one"] = autotvm.task.space.SplitEntity([-1, 8])
            cfg.fallback_split("other", [-1, 4])
        return s, [a, b, c]

    config = autotvm.task.create(chooses, args=(16,), target="llvm").config_space
    assert config.get(config.default_index).values == {"one": [-1, 8], "other": [-1, 4]}


def test_what_tuners_have() -> None:
    tuner = autotvm.tuner.RandomTuner(TASK, range_idx=(0, 39))
    assert tuner.range_length == 40
    left = []
    monitor = autotvm.callback.Monitor()
    watch = [monitor, lambda tuner, inputs, results: left.append(tuner.ttl)]
    tuner.tune(n_trial=20, measure_option=FakeMeasurer(bowl), callbacks=watch)
    assert left[-1] == 0
    assert left == sorted(left, reverse=True)
    inp, result = tuner.best_measure_pair
    assert (inp.config, inp.task) == (tuner.best_config, TASK)
    assert result.costs[0] == pytest.approx(TASK.flop / tuner.best_flops)
    assert monitor.trial_scores().max() == pytest.approx(tuner.best_flops)
    assert len(monitor.trial_timestamps()) == len(monitor.trial_scores())


# -- differences on purpose, from the first on --------------------------------------------------


def test_an_illegal_step_is_refused_when_it_is_applied() -> None:
    A, *_ = pair()
    k = te.reduce_axis((0, 8), name="k")
    D = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="D")
    s = te.create_schedule(D.op)
    with pytest.raises(ScheduleError, match="k") as refused:
        s[D].parallel(k)
    assert "\n" not in str(refused.value)


def test_a_failure_has_no_costs() -> None:
    failed = autotvm.MeasureResult((1e9,), 4, 1.0, 2.0)
    costs, error_no, _, _ = failed
    assert (costs, error_no.name) == ((), "RUNTIME_DEVICE")


def test_there_is_no_pragma_that_skips_a_region() -> None:
    _, B, C = pair()
    s = te.create_schedule(C.op)
    with pytest.raises(ScheduleError, match="unknown pragma 'debug_skip_region'"):
        s[B].pragma(B.op.axis[0], "debug_skip_region")


def test_raise_error_ends_the_template() -> None:
    beyond = []

    @autotvm.template("test/ends_at_an_error")
    def ends(n: int) -> object:
        cfg = autotvm.get_config()
        cfg.define_knob("wrong", [0, 1])
        if cfg["wrong"].val:
            cfg.raise_error("this one")
            beyond.append(cfg)
        return TASK.instantiate(0)

    task = autotvm.task.create(ends, args=(16,), target="llvm")
    with pytest.raises(InstantiationError, match="this one"):
        task.instantiate(1)
    assert not beyond


def test_defaults_that_are_others() -> None:
    assert autotvm.LocalRunner().cooldown_interval == 0
    assert autotvm.LocalRunner().windows
    assert autotvm.LocalRunner(repeat=1).counts == (4, 1, 0.0)
    assert autotvm.tuner.XGBTuner(TASK).settings.plan_size == 16
    assert autotvm.tuner.XGBTuner(TASK).settings.optimizer == "evolution"
    assert autotvm.tuner.GATuner(TASK).settings.pop_size == 16


def test_functions_are_refused_where_processes_get_data() -> None:
    for make in (
        lambda: autotvm.LocalBuilder(build_func=print),
        lambda: autotvm.LocalRunner(module_loader=print),
    ):
        with pytest.raises(UsageError, match="not a function"):
            make()
    with pytest.raises(TaskError, match="is a Tensor"):
        autotvm.task.create("matmul", args=(te.placeholder((4,)), 16, 16), target="llvm")


# -- logs ---------------------------------------------------------------------------------------


@autotvm.template("test/of_the_document")
def of_the_document(n: int) -> object:
    """A template with one knob, ``tile_x``."""
    autotvm.get_config().define_split("tile_x", n, num_outputs=2)
    return TASK.instantiate(0)


def test_the_reasons_that_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def line(knob: str, error: int) -> str:
        config = {"index": 0, "code_hash": None, "entity": [[knob, "sp", [-1, 8]]]}
        target = "llvm -keys=cpu -link-params=0"
        given = {"input": [target, "test/of_the_document", [16], {}], "config": config}
        return json.dumps({**given, "result": [[1e-3], error, 0.1, 1.6e9], "version": 0.2})

    lines = [line("tile_x", 0), line("tile_k", 0), line("tile_x", 4)]
    (tmp_path / "autotvm.log").write_text("".join(f"{text}\n" for text in lines))
    monkeypatch.chdir(tmp_path)
    section = TEXT.partition("\n## Logs\n")[2]
    blocks = dict(re.findall(r"^```(\w*)\n(.*?)^```", section, re.MULTILINE | re.DOTALL))
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(blocks["python"], {})
    reasons = [row.partition(" ")[2] for row in blocks[""].splitlines()]
    assert [row.partition(" ")[2] for row in out.getvalue().splitlines()] == reasons
