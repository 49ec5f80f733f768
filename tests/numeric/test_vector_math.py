"""Vector math: error bounds, special values, no library, one result for every schedule."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzzing import ulp
from fuzzing.ulp import NAMES, errors, measure, samples, special
from loopwright import te
from loopwright.codegen.llvm.compiler import compile_func
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule
from loopwright.target import Target
from loopwright.testing.target_contract import runs_here
from tests.covering import covering
from tests.kernels import build

#: What docs/math.md promises, in units in the last place.
BOUNDS = {
    "exp": 1.1, "exp2": 1.3, "expm1": 2.0, "log": 1.0, "log2": 1.0, "log10": 1.0, "log1p": 1.0,
    "sigmoid": 2.5, "tanh": 3.0, "sinh": 3.0, "cosh": 2.0, "erf": 1.5, "rsqrt": 1.6, "sin": 1.6,
    "cos": 1.6, "tan": 3.2, "atan": 2.0, "pow": 1.4,
}  # fmt: skip
DTYPES = ("float32", "float64")


#: By night a function meets four times as many numbers.
@pytest.mark.parametrize("part", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fn", NAMES)
def test_error_bound(fn: str, dtype: str, part: int) -> None:
    count = (400_000 if dtype == "float32" else 130_000) // part
    e = measure(fn, dtype, samples(dtype, count, 2 if fn == "pow" else 1, seed=7))
    assert e.wrong == 0, f"{fn}{e.example}"
    assert e.ulp <= BOUNDS[fn], f"{fn}{e.args}"


@pytest.mark.skipif(not runs_here("llvm -mcpu=x86-64"), reason="x86 only")
@pytest.mark.parametrize(
    ("fn", "dtype", "cpu"), covering(NAMES, DTYPES, ["x86-64-v2", "x86-64"], strength=1)
)
def test_error_bound_without_fma(fn: str, dtype: str, cpu: str) -> None:
    blocks = samples(dtype, 65_536, 2 if fn == "pow" else 1, seed=3)
    e = measure(fn, dtype, blocks, f"llvm -num-threads=1 -mcpu={cpu}")
    assert e.wrong == 0, f"{fn}{e.example}"
    assert e.ulp <= BOUNDS[fn], f"{fn}{e.args}"


def test_every_small_and_large_argument_of_exp() -> None:
    """Around the ends of the range every float32 is tried: overflow, denormal results, zero."""
    low = np.arange(np.float32(-104.2).view("int32"), np.float32(-104.2).view("int32") - 65536, -1)
    high = np.arange(np.float32(88.6).view("int32"), np.float32(88.6).view("int32") + 65536)
    blocks = [(a.astype("int32").view("float32"),) for a in (low, high)]
    e = measure("exp", "float32", iter(blocks))
    assert e.wrong == 0
    assert e.ulp <= BOUNDS["exp"]


def program(fn: str, dtype: str, vector: bool, n: int) -> tuple[Schedule, list[Any]]:
    names = "AB" if fn == "pow" else "A"
    args = [te.placeholder((n,), dtype, name=x) for x in names]
    out = te.compute((n,), lambda i: te.call(fn, *(a[i] for a in args)), name="out")
    s = create_schedule(out)
    if vector:
        s[out].vectorize(s[out].split(out.op.axis[0], factor=16)[1])
    return s, [*args, out]


@pytest.mark.parametrize(("fn", "dtype"), covering(NAMES, DTYPES, strength=1))
def test_the_result_does_not_depend_on_the_schedule(fn: str, dtype: str) -> None:
    """Scalar and vector code, with fast arithmetic around it or not, give the same bits."""
    x = special(dtype)
    inputs = [x, np.roll(x, 5)] if fn == "pow" else [x]
    results = []
    for vector in (False, True):
        for fast in ("false", "true"):
            s, args = program(fn, dtype, vector, len(x))
            out = np.zeros_like(x)
            target = f"llvm -num-threads=1 -fastmath={fast}"
            build(s, args, target=target)(*inputs, out)
            results.append(out)
    for got in results[1:]:
        np.testing.assert_array_equal(got, results[0])


@pytest.mark.skipif(not runs_here("llvm -mcpu=x86-64"), reason="x86 only")
@pytest.mark.parametrize(
    ("fn", "dtype"), covering(["exp", "log", "sin", "pow"], DTYPES, strength=1)
)
def test_nor_does_it_without_fma(fn: str, dtype: str) -> None:
    x = special(dtype)
    inputs = [x, np.roll(x, 5)] if fn == "pow" else [x]
    results = []
    for vector in (False, True):
        s, args = program(fn, dtype, vector, len(x))
        out = np.zeros_like(x)
        build(s, args, target="llvm -num-threads=1 -mcpu=x86-64-v2")(*inputs, out)
        results.append(out)
    np.testing.assert_array_equal(*results)


@pytest.mark.skipif(not runs_here("llvm -mcpu=x86-64"), reason="x86 only")
@pytest.mark.parametrize(
    ("fn", "dtype", "cpu"),
    covering(NAMES, DTYPES, ["x86-64-v2", "x86-64-v3", "x86-64-v4"], strength=1),
)
def test_no_call_of_a_library(fn: str, dtype: str, cpu: str) -> None:
    """Only the reduction of huge arguments is a call, of a function in the same object."""
    s, args = program(fn, dtype, True, 32)
    code = compile_func(lower(s, args), Target(f"llvm -num-threads=1 -mcpu={cpu}"))
    calls = [line.split()[-1] for line in code.source("asm").splitlines() if "call" in line]
    assert [c for c in calls if not c.startswith("lw._")] == []
    declared = [
        line for line in code.source("ll-unoptimised").splitlines() if line.startswith("declare")
    ]
    assert [line for line in declared if "@llvm." not in line] == []


def test_errors_are_counted_in_units_of_the_exact_value() -> None:
    got = np.array([1.0, 2.0, np.inf, 0.0, 1e-45, np.nan], "float32")
    want = np.array([1.0, 2.0 + 2.0**-22, 1e39, -0.0, 0.0, 1.0])
    ulp, bad = errors(got, want)
    np.testing.assert_array_equal(ulp, [0, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(bad, [False, False, False, True, False, True])


@pytest.mark.parametrize(
    ("dtype", "args"),
    [
        # The float64 that lies closest to a multiple of pi/2 (Muller, Elementary Functions, 11.3).
        ("float64", [6381956970095103 * 2.0**797, 1e22, 2.0**1023, 1.7976931348623157e308]),
        ("float32", [16367173 * 2.0**72, 3e38, 1e22, 8192.0, 8191.9995]),
    ],
)
@pytest.mark.parametrize("fn", ["sin", "cos", "tan"])
def test_huge_angles_keep_their_digits(fn: str, dtype: str, args: list[float]) -> None:
    x = np.resize(np.array(args, dtype), 65536)
    e = measure(fn, dtype, iter([(x,)]))
    assert e.wrong == 0
    assert e.ulp <= BOUNDS[fn]


def test_docs_name_every_function_and_its_bound() -> None:
    text = (Path(__file__).parents[2] / "docs" / "math.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    said = {row[1].strip(" `"): float(row[4]) for row in rows if len(row) > 5}
    assert said == BOUNDS


def test_the_tool_names_the_functions_that_it_knows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ulp", "exp", "nosuch"])
    with pytest.raises(SystemExit, match="2"):
        ulp.main()
    assert "unknown function nosuch; take of exp, exp2" in capsys.readouterr().err
