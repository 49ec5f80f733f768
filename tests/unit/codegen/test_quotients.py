"""Fused loops over contiguous memory stay contiguous, also where a vector crosses a row."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.codegen.llvm.indices import Quotients
from loopwright.ir.affine import Affine, to_affine
from loopwright.ir.expr import Var
from loopwright.schedule import create_schedule

TARGET = "llvm -num-threads=1"


def form(e: object, f: Var) -> Affine | None:
    quotients = Quotients(lambda x: to_affine(x, {}, {f: (0, 10**6)}))
    found = quotients.form(e)  # type: ignore[arg-type]
    return None if found is None else quotients.joined(found)


def test_a_quotient_and_its_remainder_make_the_number() -> None:
    f = Var("f")
    assert form((f // 56) * 56 + f % 56, f) == Affine.of(f)
    assert form((f // 7) * 14 + (f % 7) * 2 + 3, f) == Affine.of(f) * 2 + 3
    flat = (f // 9) * 9 + (f // 3 % 3) * 3 + f % 3
    assert form(flat, f) == Affine.of(f)
    nested = (f // 56 // 9) * 504 + (f // 56 % 9) * 56 + f % 56
    assert form(nested, f) == Affine.of(f)


def test_quotients_that_do_not_meet_are_no_form() -> None:
    f = Var("f")
    for e in ((f // 56) * 57 + f % 56, f // 56 + f % 56, (f // 55) * 56 + f % 56, (f % 56) * 2):
        assert form(e, f) is None


@pytest.mark.parametrize("shape", [(9, 7), (4, 5, 6), (3, 1, 11), (2, 3, 4, 5)])
@pytest.mark.parametrize("lanes", [4, 16])
def test_a_fused_vector_loop_against_numpy(shape: tuple[int, ...], lanes: int) -> None:
    A = te.placeholder(shape, name="A")
    B = te.compute(shape, lambda *i: A[i] * 2, name="B")
    C = te.compute(shape, lambda *i: B[i] + A[(*i[:-1], shape[-1] - 1 - i[-1])], name="C")
    for out in (B, C):
        s = create_schedule(out)
        for t in (B, C) if out is C else (B,):
            fused = s[t].fuse(*s[t].op.axis)
            s[t].vectorize(s[t].split(fused, factor=lanes)[1])
        a = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        got = np.zeros_like(a)
        lw.build(s, [A, out], TARGET)(a, got)
        want = a * 2 if out is B else a * 2 + a[..., ::-1]
        np.testing.assert_array_equal(got, want)


def test_whole_vectors_are_loaded_across_rows() -> None:
    A = te.placeholder((48, 5), name="A")
    B = te.compute((48, 5), lambda i, j: A[i, j] + 1, name="B")
    s = create_schedule(B)
    s[B].vectorize(s[B].split(s[B].fuse(*B.op.axis), factor=4)[1])
    text = lw.build(s, [A, B], TARGET).get_source("ll-unoptimised")
    assert "load <4 x float>" in text
    assert "store <4 x float>" in text
    assert "insertelement <4 x float>" not in text.replace("poison, float 1.0", "")
