"""What a stage tells about itself, under TE's names."""

from __future__ import annotations

from typing import Any

from loopwright import te
from loopwright.schedule import create_schedule


def test_attributes_follow_the_steps() -> None:
    A = te.placeholder((8, 6), name="A")
    B = te.compute((8, 6), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((8, 6), lambda i, j: B[i, j] * 2.0, name="C")
    s = create_schedule(C.op)
    i, j = C.op.axis
    assert s[C].is_output
    assert not s[B].is_output
    assert (s[B].attach_type, s[B].attach_stage, s[B].attach_ivar) == ("root", None, None)
    io, ii = s[C].split(i, factor=4)
    s[B].compute_at(s[C], io)
    assert s[B].attach_type == "at"
    assert s[B].attach_stage.op is C.op
    assert s[B].attach_ivar is io
    assert s[C].all_iter_vars == [i, j, io, ii]
    assert s[C].leaf_iter_vars == [io, ii, j]
    (relation,) = s[C].relations
    assert (relation.parent, relation.factor) == ("a0", 4)
    s[B].compute_inline()
    assert s[B].attach_type == "inline"


def test_a_cached_stage_keeps_its_origin() -> None:
    A = te.placeholder((8,), name="A")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((4,), lambda i: te.sum(A[k] + i, axis=k), name="C")
    s = create_schedule(C.op)
    cached = s.cache_write(C, "local")
    assert s[cached].scope == "local"
    assert s[C].scope == "global"
    assert s[C].origin_op is C.op
    assert s[C].op.reduce_axis == []
    assert s[cached].op.reduce_axis == [k]
    assert s[C].op.input_tensors == [cached]


def test_what_primitives_said_of_loops() -> None:
    A = te.placeholder((8, 6, 4), name="A")
    k = te.reduce_axis((0, 4), name="k")
    C = te.compute((8, 6), lambda i, j: te.sum(A[i, j, k], axis=k), name="C")
    s = create_schedule(C.op)
    assert s[C].iter_var_attrs == {}
    i, j = C.op.axis
    io, ii = s[C].split(i, factor=4)
    s[C].bind(io, te.thread_axis("vthread"))
    s[C].pragma(ii, "user.tile", 3)
    s[C].vectorize(j)
    s[C].pragma(k, "auto_unroll_max_step", 8)
    said = s[C].iter_var_attrs
    assert list(said) == [io, ii, j, k]
    assert [x.iter_type for x in said.values()] == [
        "ThreadIndex", "DataPar", "Vectorized", "CommReduce",
    ]  # fmt: skip
    assert [x.bind_thread for x in said.values()] == ["vthread", "", "", ""]
    assert said[ii].pragmas == {"user.tile": 3}
    assert said[k].pragmas == {"auto_unroll_max_step": 8}
    assert repr(s) == "Schedule(stages A, C; 5 step(s))"


def test_a_tensorized_loop_says_so() -> None:
    A = te.placeholder((8, 16), name="A")
    C = te.compute((8, 16), lambda i, j: A[i, j] + 1.0, name="C")
    x = te.placeholder((16,), name="x")
    y = te.compute((16,), lambda j: x[j] + 1.0, name="y")

    def body(inputs: Any, outputs: Any) -> Any:
        ib = te.ir_builder()
        with ib.for_range(16) as j:
            ib.emit(outputs[0].store((j,), inputs[0][j] + 1.0))
        return ib.get()

    s = create_schedule(C.op)
    s[C].tensorize(C.op.axis[1], te.decl_tensor_intrin(y.op, body))
    assert s[C].iter_var_attrs[C.op.axis[1]].iter_type == "Tensorized"
