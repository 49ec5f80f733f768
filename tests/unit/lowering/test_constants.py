"""What constants determine becomes a function of its own; the rest takes its results."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.driver import program_key
from loopwright.errors import LowerError
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Func, SplitFunc
from loopwright.lowering import constant_stages, lower, prepared_stages
from loopwright.lowering.context import PassContext
from loopwright.schedule import create_schedule
from loopwright.target import Target
from loopwright.te.tensor import Tensor

SCALE = 3.0


class Product:
    """A product with scaled weights: ``C = A @ (3 W)``, the scaled weights a stage of their own."""

    def __init__(self, constant: bool = True) -> None:
        self.a = te.placeholder((4, 8), name="A")
        self.w = te.placeholder((8, 6), name="W", constant=constant)
        self.v = te.compute((8, 6), lambda i, j: self.w[i, j] * SCALE, name="V")
        k = te.reduce_axis(8, name="k")
        self.c = te.compute(
            (4, 6), lambda i, j: te.sum(self.a[i, k] * self.v[k, j], axis=k), name="C"
        )
        self.s = create_schedule(self.c.op)

    @property
    def args(self) -> list[Tensor]:
        return [self.a, self.w, self.c]

    def lowered(self) -> Func:
        return lower(self.s, self.args)


def split(f: Func) -> SplitFunc:
    assert isinstance(f, SplitFunc)
    return f


def names(f: Func) -> list[str]:
    marked = zip(f.params, f.outputs, strict=True)
    return [f"{'out ' if out else ''}{p.name}" for p, out in marked]


def run_parts(f: Func, arrays: dict[str, Any]) -> None:
    """Interpret one part after the other; kept buffers are poisoned before."""
    parts = split(f)
    known = dict(arrays) | {b.name: np.full(b.extents, np.nan, b.dtype) for b in parts.kept}
    for part in (parts.prepare, parts.main):
        interpret(part, [known[p.name] for p in part.params])


def test_a_stage_of_constants_is_prepared_and_both_parts_are_printed() -> None:
    f = split(Product().lowered())
    assert names(f.prepare) == ["W", "out V"]
    assert names(f.main) == ["A", "out C", "V"]
    assert names(f) == ["A", "W", "out C"]
    assert re.findall(r"def (\w+)", str(f)) == ["main_prepare", "main_prepared"]
    assert "W: constant float32[8, 6]" in str(f)


def test_the_whole_and_the_parts_compute_the_same() -> None:
    rng = np.random.default_rng(0)
    a, w = rng.random((4, 8), "float32"), rng.random((8, 6), "float32")
    for level in (0, 2, 3):
        with PassContext(level, config={"verify": True}):
            f = Product().lowered()
        whole, parts = np.full((4, 6), np.nan, "float32"), np.full((4, 6), np.nan, "float32")
        interpret(f, [a, w, whole])
        run_parts(f, {"A": a, "W": w, "C": parts})
        np.testing.assert_allclose(whole, a @ (3 * w), rtol=1e-5)
        np.testing.assert_array_equal(whole, parts)


def test_nothing_changes_without_constants_and_without_such_stages() -> None:
    plain = Product(constant=False)
    assert type(plain.lowered()) is Func
    assert constant_stages(plain.s.state) == set()
    inlined = Product()
    inlined.s[inlined.v].compute_inline()
    assert type(inlined.lowered()) is Func
    other = Product(constant=False)
    other.s[other.v].compute_inline()
    without_mark = str(inlined.lowered()).replace("constant ", "")
    assert without_mark == str(other.lowered())


def test_chains_and_attached_producers_go_along_and_only_what_is_read_is_kept() -> None:
    p = Product()
    packed = p.s.cache_read(p.v, "global", [p.c])
    p.s[packed].transform_layout(lambda i, j: (j // 2, i, j % 2))
    f = split(p.lowered())
    assert [b.name for b in f.kept] == ["V.global"]
    assert f.kept[0].shape == (3, 8, 2)
    p.s[p.v].compute_at(p.s[packed], p.s[packed].op.axis[0])
    f = split(p.lowered())
    assert [b.name for b in f.kept] == ["V.global"]
    a, w = np.ones((4, 8), "float32"), np.arange(48, dtype="float32").reshape(8, 6)
    c = np.full((4, 6), np.nan, "float32")
    run_parts(f, {"A": a, "W": w, "C": c})
    np.testing.assert_allclose(c, a @ (3 * w), rtol=1e-5)


def test_a_constant_that_the_rest_reads_as_well_is_an_argument_of_both() -> None:
    a = te.placeholder((4,), name="A")
    w = te.placeholder((4,), name="W", constant=True)
    v = te.compute((4,), lambda i: w[i] * 2, name="V")
    b = te.compute((4,), lambda i: a[i] + v[i] * w[3 - i], name="B")
    f = split(lower(create_schedule(b.op), [a, w, b]))
    assert names(f.prepare) == ["W", "out V"]
    assert names(f.main) == ["A", "W", "out B", "V"]


def test_what_a_stage_inside_the_rest_reads_is_kept() -> None:
    p = Product()
    near = p.s.cache_read(p.v, "local", [p.c])
    p.s[near].compute_at(p.s[p.c], p.c.op.axis[0])
    f = split(p.lowered())
    assert [b.name for b in f.kept] == ["V"]
    assert "V.local = alloc" in str(f.main)


def test_results_that_the_caller_gets_stay_in_the_rest() -> None:
    p = Product()
    f = lower(p.s, [p.a, p.w, p.v, p.c])
    assert type(f) is Func
    packed = p.s.cache_read(p.v, "global", [p.c])  # reads what is written in each call
    assert type(lower(p.s, [p.a, p.w, p.v, p.c])) is Func
    assert prepared_stages(p.s.state) == {2, p.s.stage_id(packed, "test")}
    assert prepared_stages(p.s.state, frozenset({2})) == set()


@pytest.mark.parametrize("change", ["scope", "align"])
def test_buffers_that_cannot_be_handed_over_are_computed_each_time(change: str) -> None:
    p = Product()
    packed = p.s.cache_read(p.v, "global", [p.c])
    if change == "scope":
        p.s[packed].set_scope("local")
    else:
        p.s[packed].storage_align(p.s[packed].op.axis[0], 8, 3)
    f = split(p.lowered())
    assert [b.name for b in f.kept] == ["V"]
    a, w = np.ones((4, 8), "float32"), np.ones((8, 6), "float32")
    c = np.full((4, 6), np.nan, "float32")
    run_parts(f, {"A": a, "W": w, "C": c})
    np.testing.assert_array_equal(c, 24)


def test_a_program_of_constants_alone() -> None:
    w = te.placeholder((4,), name="W", constant=True)
    v = te.compute((4,), lambda i: w[i] * 2, name="V")
    b = te.compute((4,), lambda i: v[i] + 1, name="B")
    f = lower(create_schedule(b.op), [w, b])
    assert names(split(f).main) == ["out B", "V"]
    got = np.empty(4, "float32")
    run_parts(f, {"W": np.ones(4, "float32"), "B": got})
    np.testing.assert_array_equal(got, 3)


def test_several_outputs_of_a_stage() -> None:
    a = te.placeholder((4,), name="A")
    w = te.placeholder((4,), name="W", constant=True)
    low, high = te.compute((4,), lambda i: (w[i] - 1, w[i] + 1), name="V")
    b = te.compute((4,), lambda i: a[i] + high[i], name="B")
    f = lower(create_schedule(b.op), [a, w, b])
    assert [k.name for k in split(f).kept] == ["V.v1"]
    got = np.empty(4, "float32")
    run_parts(f, {"A": np.zeros(4, "float32"), "W": np.ones(4, "float32"), "B": got})
    np.testing.assert_array_equal(got, 2)
    assert low.op is high.op


def test_what_is_computed_once_for_all_sizes_depends_on_none() -> None:
    n = te.var("n")
    a, w = te.placeholder((n, 4), name="A"), te.placeholder((4,), name="W", constant=True)
    v = te.compute((4,), lambda i: w[i] * 2, name="V")
    b = te.compute((n, 4), lambda i, j: a[i, j] + v[j], name="B")
    f = split(lower(create_schedule(b.op), [a, w, b]))
    assert (f.sizes, f.prepare.sizes, f.main.sizes) == ((n,), (), (n,))
    for rows in (1, 3):
        got = np.empty((rows, 4), "float32")
        given = {"A": np.zeros((rows, 4), "float32"), "W": np.ones(4, "float32"), "B": got}
        run_parts(f, given)
        np.testing.assert_array_equal(got, 2)


@pytest.mark.parametrize("told_by", ["the constant", "what is prepared", "no argument"])
def test_programs_of_symbolic_sizes_are_left_whole(told_by: str) -> None:
    n = te.var("n")
    a = te.placeholder((n,) if told_by != "no argument" else (n * 2,), name="A")
    w = te.placeholder((n,) if told_by == "the constant" else (4,), name="W", constant=True)
    v = te.compute((4,) if told_by == "no argument" else (n,), lambda i: w[i % 4], name="V")
    b = te.compute(a.shape, lambda i: a[i] + v[i % 4], name="B")
    assert type(lower(create_schedule(b.op), [a, w, b])) is Func


def test_a_constant_must_be_an_argument() -> None:
    p = Product()
    with pytest.raises(LowerError, match="constant tensor 'W' is not in the arguments"):
        lower(p.s, [p.a, p.c])


def test_a_function_with_another_body_has_no_parts() -> None:
    f = split(Product().lowered())
    assert f.with_body(f.body) is f
    other = f.with_body(f.main.body)
    assert type(other) is Func


def test_keys_tell_the_parts() -> None:
    target = Target("llvm")
    keys = {program_key(Product(c).lowered(), target, {}) for c in (True, False)}
    assert len(keys) == 2
    assert len({program_key(Product().lowered(), target, {}) for _ in range(2)}) == 1
