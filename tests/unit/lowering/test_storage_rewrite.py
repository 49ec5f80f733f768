"""StorageRewrite: bytes saved, results kept, scopes and levels respected."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.codegen.backends import compile_func
from loopwright.errors import LowerError
from loopwright.ir.buffer import Buffer
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Func, Seq, View
from loopwright.ir.verify import verify
from loopwright.lowering import lower
from loopwright.lowering.passes.storage_rewrite import PooledBuffer, assign_offsets
from loopwright.schedule import Schedule, create_schedule
from loopwright.target import Target

N = 2048
BYTES = 4 * N


def chain(n: int, size: int = N) -> tuple[Schedule, list[te.Tensor], list[te.Tensor]]:
    """``n`` root stages one after the other, each reading the one before."""
    a = te.placeholder((size,), name="A")
    stages = [a]
    for k in range(n):
        prev = stages[-1]
        stages.append(
            te.compute((size,), lambda i, p=prev, k=k: p[i] * 2.0 + float(k), name=f"S{k}")
        )
    return create_schedule(stages[-1]), [a, stages[-1]], stages


def reference(n: int, a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    for k in range(n):
        a = a * np.float32(2) + np.float32(k)
    return a


def workspace(s: Schedule, args: list[te.Tensor], spec: str = "llvm") -> int:
    return compile_func(lower(s, args), Target(spec)).workspace_bytes


@pytest.mark.parametrize(("n", "before", "after"), [(2, 1, 1), (3, 2, 2), (4, 3, 2), (8, 7, 2)])
def test_a_chain_needs_two_buffers(n: int, before: int, after: int) -> None:
    s, args, _ = chain(n)
    with lw.PassContext(disabled_pass=["StorageRewrite"]):
        assert workspace(s, args) == before * BYTES
    assert workspace(s, args) == after * BYTES


@pytest.mark.parametrize("spec", ["llvm -num-threads=1", "llvm -num-threads=2", "interp"])
def test_results_are_kept(spec: str) -> None:
    s, args, stages = chain(5)
    for t in stages[1:]:
        s[t].parallel(s[t].split(t.op.axis[0], factor=64)[0])
    f = lw.build(s, args, spec)
    a = np.random.default_rng(0).standard_normal(N).astype("float32")
    out = np.full(N, np.nan, "float32")
    f(a, out)
    np.testing.assert_allclose(out, reference(5, a), rtol=1e-6)


def test_what_is_still_needed_stays() -> None:
    """The first stage is read again at the end: three buffers are in use at once."""
    a = te.placeholder((N,), name="A")
    b = te.compute((N,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((N,), lambda i: b[i] * 2.0, name="C")
    d = te.compute((N,), lambda i: c[i] - 3.0, name="D")
    e = te.compute((N,), lambda i: d[i] * b[i], name="E")
    s = create_schedule(e)
    assert workspace(s, [a, e]) == 3 * BYTES
    x, out = np.arange(N, dtype="float32"), np.zeros(N, "float32")
    lw.build(s, [a, e])(x, out)
    np.testing.assert_array_equal(out, ((x + 1) * 2 - 3) * (x + 1))


def test_sizes_and_types_may_differ() -> None:
    a = te.placeholder((N,), name="A")
    b = te.compute((N,), lambda i: a[i].astype("float64"), name="B")
    c = te.compute((N,), lambda i: b[i].astype("int32"), name="C")
    d = te.compute((2 * N,), lambda i: c[i // 2].astype("float64") * 0.5, name="D")
    e = te.compute((N,), lambda i: (d[2 * i] + d[2 * i + 1]).astype("float32"), name="E")
    s = create_schedule(e)
    text = str(lower(s, [a, e]))
    assert f"pool = alloc(uint8[{N * 20}], global)" in text  # C and D: 4 and 16 bytes an element
    x, out = np.arange(N, dtype="float32"), np.zeros(N, "float32")
    lw.build(s, [a, e])(x, out)
    np.testing.assert_array_equal(out, x)


def test_levels_inside_loops_share_as_well() -> None:
    a = te.placeholder((4, N), name="A")
    stages = [a]
    for k in range(4):
        prev = stages[-1]
        stages.append(te.compute((4, N), lambda i, j, p=prev: p[i, j] + 1.0, name=f"S{k}"))
    s = create_schedule(stages[-1])
    out = stages[-1]
    for t in stages[1:-1]:
        s[t].compute_at(s[out], out.op.axis[0])
    s[out].parallel(out.op.axis[0])
    code = compile_func(lower(s, [a, out]), Target("llvm -num-threads=2"))
    assert code.parallel_workspace_bytes == 2 * BYTES
    x, got = np.ones((4, N), "float32"), np.zeros((4, N), "float32")
    lw.build(s, [a, out], "llvm -num-threads=2")(x, got)
    np.testing.assert_array_equal(got, x + 4)


def test_small_buffers_stay_on_the_stack() -> None:
    s, args, _ = chain(4, 1024)
    assert "pool" not in str(lower(s, args))
    s, args, _ = chain(4, 1025)
    assert "pool = alloc(uint8[8320], global)" in str(lower(s, args))


def test_nothing_is_done_where_nothing_is_saved() -> None:
    s, args, _ = chain(3)
    assert "pool" not in str(lower(s, args))


def test_golden(golden: Any) -> None:
    s, args, _ = chain(4)
    golden(str(lower(s, args)))


def test_the_interpreter_sees_stale_reads() -> None:
    """A view begins uninitialised, so that a wrong plan shows: here two that meet."""
    s, args, _ = chain(4)
    f = lower(s, args)
    seen: list[View] = []

    def collide(n: Any) -> Any:
        if isinstance(n, View):
            seen.append(n)
            return View(n.buffer, n.of, 0, n.body.map_children(collide))
        return n.map_children(collide)

    broken = f.with_body(collide(f.body))
    assert len(seen) == 3
    out = np.zeros(N, "float32")
    interpret(broken, [np.ones(N, "float32"), out])
    assert np.isnan(out).all()


def test_a_plan_never_lets_two_meet() -> None:
    rng = random.Random(7)
    for _ in range(300):
        places = []
        for k in range(rng.randint(1, 9)):
            first = rng.randint(0, 8)
            size = 64 * rng.randint(1, 12)
            places.append(
                PooledBuffer(
                    Buffer(f"b{k}", (size,), "uint8"), first, first + rng.randint(0, 4), size
                )
            )
        total = assign_offsets(places)
        for p, q in itertools.combinations(places, 2):
            apart = p.offset + p.size <= q.offset or q.offset + q.size <= p.offset
            assert apart or p.last < q.first or q.last < p.first
        busiest = max(sum(p.size for p in places if p.first <= t <= p.last) for t in range(14))
        assert busiest <= total <= sum(p.size for p in places)


@pytest.mark.parametrize(
    ("of", "offset", "text"),
    [
        (Buffer("pool", (64,), "uint8"), 40, r"'V' \(32 bytes\) at 40 is not inside Buffer\(pool"),
        (Buffer("pool", (64,), "float32"), 0, "'V' .32 bytes. at 0 is not inside"),
        (Buffer("pool", (64,), "uint8"), -4, "'V' .32 bytes. at -4 is not inside"),
        (None, 0, "buffer 'gone' is touched where it does not exist"),
    ],
)
def test_views_are_verified(of: Buffer | None, offset: int, text: str) -> None:
    inside = of or Buffer("gone", (64,), "uint8")
    view = View(Buffer("V", (8,), "float32"), inside, offset, Seq(()))
    with pytest.raises(LowerError, match=text):
        verify(Func("f", (of,) if of else (), (True,) if of else (), view))
