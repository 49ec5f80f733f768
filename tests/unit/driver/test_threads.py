"""Thread axes and targets: CPUs refuse a launch by name, virtual threads run anywhere."""

from __future__ import annotations

import re

import numpy as np
import pytest

from loopwright import te
from loopwright.driver import build
from loopwright.errors import CodegenError
from loopwright.schedule import Schedule, create_schedule

CPUS = ("llvm -num-threads=1", "c -num-threads=1")


def program() -> tuple[te.Tensor, te.Tensor, te.Tensor, Schedule]:
    a = te.placeholder((6, 8), name="A")
    b = te.compute((6, 8), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((6, 8), lambda i, j: b[i, j] + b[i, 7 - j], name="C")
    return a, b, c, create_schedule(c)


@pytest.mark.parametrize("target", CPUS)
@pytest.mark.parametrize("tag", ["blockIdx.x", "threadIdx.z"])
def test_cpus_refuse_bound_loops(target: str, tag: str) -> None:
    a, _, c, s = program()
    s[c].bind(c.op.axis[0], tag)
    with pytest.raises(CodegenError) as e:
        build(s, [a, c], target)
    assert str(e.value) == (
        f"{target.split()[0]}: loop 'C.i' is bound to {tag}; thread axes are for GPU targets, on a "
        "CPU use parallel, vectorize or unroll"
    )


@pytest.mark.parametrize("target", CPUS)
def test_every_loop_of_an_axis_is_named(target: str) -> None:
    a, b, c, s = program()
    s[c].bind(c.op.axis[1], "threadIdx.x")
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].set_scope("shared")
    s[b].bind(b.op.axis[1], "threadIdx.x")
    text = "loops 'C.j' and 'B.j' are bound to threadIdx.x; thread axes are for GPU targets"
    with pytest.raises(CodegenError, match=re.escape(text)):
        build(s, [a, c], target)


@pytest.mark.parametrize("target", CPUS)
def test_cpus_refuse_env_threads(target: str) -> None:
    a, _, c, s = program()
    s[c].env_threads([("threadIdx.x", 4)])
    with pytest.raises(CodegenError, match=r": env_threads of C launches threadIdx\.x; thread axe"):
        build(s, [a, c], target)


@pytest.mark.parametrize("target", [*CPUS, "interp"])
def test_virtual_threads_are_loops_of_a_cpu(target: str) -> None:
    a, b, c, s = program()
    i, j = c.op.axis
    v, _ = s[c].split(i, nparts=2)
    s[c].bind(v, te.thread_axis("vthread"))
    s[c].vectorize(j)
    s[b].compute_at(s[c], v)
    f = build(s, [a, c], target)
    x = np.random.default_rng(0).integers(-9, 9, (6, 8)).astype("float32")
    out = np.zeros_like(x)
    f(x, out)
    np.testing.assert_array_equal(out, 2 * x + 2 * x[:, ::-1])


def test_the_interpreter_as_a_target_runs_kernels() -> None:
    a, b, c, s = program()
    i, j = c.op.axis
    s[c].bind(i, "blockIdx.x")
    s[c].bind(j, "threadIdx.x")
    s[b].compute_at(s[c], i)
    s[b].bind(b.op.axis[1], "threadIdx.x")
    f = build(s, [a, c], "interp")
    x = np.random.default_rng(0).integers(-9, 9, (6, 8)).astype("float32")
    out = np.zeros_like(x)
    f(x, out)
    np.testing.assert_array_equal(out, 2 * x + 2 * x[:, ::-1])
