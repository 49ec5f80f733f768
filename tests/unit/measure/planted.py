"""Pairs of programs with the same arguments, a right one and one that is wrong somewhere, and the
check of one of them as a kernel for the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopwright import te
from loopwright.driver import build
from loopwright.measure import Measurer
from loopwright.measure.candidate import Candidate
from loopwright.measure.result import MeasureError
from loopwright.measure.workers.protocol import RaceReply
from loopwright.runtime import Artifact
from loopwright.target import Target

Program = tuple[Any, list[te.Tensor]]
N = 512
TARGET = "llvm -num-threads=1"


class PlainTask:
    """A task whose one configuration is a program, without a reference of its own."""

    key, args, reference, make_inputs = "planted", (), None, None

    def __init__(self, name: str, program: Program, target: str = TARGET) -> None:
        self.name, self.program, self.target = name, program, Target(target)

    def instantiate(self, config: int) -> Program:
        return self.program


def scheduled(out: te.Tensor, *inputs: te.Tensor) -> Program:
    return te.create_schedule(out.op), [*inputs, out]


def checked(
    name: str, right: Program, artifact: Artifact, beside: Measurer, target: str = TARGET
) -> MeasureError | None:
    """Why a kernel does not pass for the program; None where it does."""
    with Measurer(PlainTask(name, right, target), beside.option, beside=beside) as m:
        candidate = m.session.instantiate(0)  # type: ignore[arg-type]
        assert isinstance(candidate, Candidate), candidate
        race = m.session.runner.load_and_race(artifact, None)
        assert isinstance(race, RaceReply), race
        return m.session.check(candidate, artifact).error


def artifact_of(program: Program, target: str = TARGET) -> Artifact:
    return build(*program, Target(target), name="main").artifact


def elements(
    types: str, result: str, right: Callable[..., Any], wrong: Callable[..., Any]
) -> tuple[Program, Program]:
    """Programs of one element at a time, of inputs of these types."""

    def made(f: Callable[..., Any]) -> Program:
        names = types.split()
        ins = [te.placeholder((N,), t, name=f"x{k}") for k, t in enumerate(names)]
        return scheduled(
            te.compute((N,), lambda i: f(*(x[i] for x in ins)).astype(result), name="y"), *ins
        )

    return made(right), made(wrong)


def gathered(last: int) -> Program:
    table, at = te.placeholder((40,), name="table"), te.placeholder((N,), "int32", name="at")
    return scheduled(
        te.compute((N,), lambda i: table[te.max(te.min(at[i], last), 0)], name="y"), table, at
    )


def products(narrow: bool) -> Program:
    a, b = te.placeholder((24, 64), "int8", name="a"), te.placeholder((24, 64), "uint8", name="b")
    k = te.reduce_axis((0, 64), name="k")

    def term(i: Any, j: Any) -> Any:
        if not narrow:
            return a[i, k].astype("int32") * b[j, k].astype("int32")
        product = a[i, k].astype("int32") * b[j, k].astype("int32")
        return te.max(te.min(product, 32512), -32513)  # saturates at less than the two extremes

    c = te.compute((24, 24), lambda i, j: te.sum(term(i, j), axis=k), name="c")
    return scheduled(c, a, b)


def dropping(drops: bool) -> Program:
    """A sum of rows; the wrong one leaves its last term out where its first one is zero."""
    a = te.placeholder((64, 33), name="a")
    k = te.reduce_axis((0, 33), name="k")

    def term(i: Any) -> Any:
        left_out = te.all(te.equal(a[i, 0], 0.0), te.equal(k, 32))
        return te.if_then_else(left_out, 0.0, a[i, k]) if drops else a[i, k]

    return scheduled(te.compute((64,), lambda i: te.sum(term(i), axis=k), name="c"), a)


def rows(n: int, k: int, dtype: str, f: Callable[..., Any]) -> Program:
    """What a reduction gives of each row."""
    a, r = te.placeholder((n, k), dtype, name="a"), te.reduce_axis((0, k), name="k")
    return scheduled(te.compute((n,), lambda i: f(a[i, r], r), name="c"), a)


def bytes_summed(limit: int) -> Program:
    """Sums of rows longer than elements are computed for all of."""
    return rows(64, 40000, "int8", lambda x, r: te.sum(te.max(x.astype("int32"), limit), axis=r))


def maximum(of: Callable[..., Any]) -> Program:
    return rows(64, 5000, "float32", lambda x, r: te.max(of(x), axis=r))


def product(term: Callable[..., Any]) -> Program:
    a, b = te.placeholder((24, 64), name="a"), te.placeholder((64, 24), name="b")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((24, 24), lambda i, j: te.sum(term(a[i, k], b[k, j], i, j), axis=k), name="c")
    return scheduled(c, a, b)


def few_rows(f: Callable[..., Any], n: int = 3, k: int = 3000) -> Program:
    """What a reduction gives of rows too few for each to have data of a kind of its own."""
    return rows(n, k, "float32", f)


def softmax(safe: bool) -> Program:
    a = te.placeholder((64, 20), name="a")
    k, r = te.reduce_axis((0, 20), name="k"), te.reduce_axis((0, 20), name="r")
    top = te.compute((64,), lambda i: te.max(a[i, k], axis=k), name="top")
    e = te.compute((64, 20), lambda i, j: te.exp(a[i, j] - (top[i] if safe else 0.0)), name="e")
    total = te.compute((64,), lambda i: te.sum(e[i, r], axis=r), name="total")
    return scheduled(te.compute((64, 20), lambda i, j: e[i, j] / total[i], name="y"), a)


def where_largest(last: bool, length: int = 12, dtype: str = "int32") -> Program:
    """The place of the largest; the wrong one takes the last of equal ones."""
    a = te.placeholder((64, length), dtype, name="a")
    k = te.reduce_axis((0, length), name="k")

    def combine(x: Any, y: Any) -> Any:
        better = x[1] > y[1]
        same = te.equal(x[1], y[1])
        keep = te.any(better, te.all(same, x[0] > y[0] if last else x[0] < y[0]))
        return te.select(keep, x[0], y[0]), te.select(keep, x[1], y[1])

    start = -1 if last else 2**31 - 1
    reducer = te.comm_reducer(
        combine, lambda t, u: (te.const(start, t), te.min_value(u)), name="largest"
    )
    at, top = te.compute((64,), lambda i: reducer((k, a[i, k]), axis=k), name="y")
    return te.create_schedule(at.op), [a, at, top]


def _tanh_by_exp(x: Any) -> Any:
    e = te.exp(x * 2.0)
    return (e - 1.0) / (e + 1.0)


def _wide(x: Any) -> Any:
    return x.astype("int64")


#: A right program and a wrong one each.
PLANTED: dict[str, Callable[[], tuple[Program, Program]]] = {
    "a sum that saturates": lambda: elements(
        "int8 int8",
        "int8",
        lambda a, b: a + b,
        lambda a, b: te.max(te.min(a.astype("int32") + b.astype("int32"), 127), -128),
    ),
    "an unsigned comparison of signed numbers": lambda: elements(
        "int32 int32",
        "int32",
        lambda a, b: te.select(te.max(a, 0) < te.max(b, 1), a, b),
        lambda a, b: te.select(
            te.max(a, 0) < te.select(b > 2**30, te.const(1, "int32"), te.max(b, 1)), a, b
        ),
    ),
    "a maximum that drops NaN": lambda: elements(
        "float32", "float32", lambda a: te.max(a, 0.0), lambda a: te.select(a > 0.0, a, 0.0)
    ),
    "a reciprocal that loses the sign of zero": lambda: elements(
        "float32",
        "float32",
        lambda a: 1.0 / a,
        lambda a: te.select(te.equal(a, 0.0), te.max_value("float32"), 1.0 / a),
    ),
    "a conversion that wraps": lambda: elements(
        "float32",
        "int32",
        lambda a: a,
        lambda a: te.select(a > 1e9, te.min_value("int32"), a.astype("int32")),
    ),
    "squares of sixteen bits": lambda: elements(
        "int16", "int32", lambda a: a.astype("int32") * a.astype("int32"), lambda a: a * a
    ),
    "bytes that are taken for signed": lambda: elements(
        "uint8", "int32", lambda a: a, lambda a: a.astype("int8")
    ),
    "an average that overflows": lambda: elements(
        "int32 int32", "int32", lambda a, b: (_wide(a) + _wide(b)) >> 1, lambda a, b: (a + b) >> 1
    ),
    "integers by way of float64": lambda: elements(
        "int64", "int64", lambda a: a * 3, lambda a: (a.astype("float64") * 3.0).astype("int64")
    ),
    "a shift beyond the width": lambda: elements(
        "int32 int32",
        "int32",
        lambda a, b: a << b,
        lambda a, b: te.select(b > 31, te.const(0, "int32"), a << b),
    ),
    "infinity cut to the largest number": lambda: elements(
        "float32", "float32", lambda a: a * 1.0, lambda a: te.max(te.min(a, 3.4e38), -3.4e38)
    ),
    "a limit whose negative does not exist": lambda: elements(
        "int16",
        "int16",
        lambda a: te.select(a < 0, -a, a),
        lambda a: te.min(te.select(a < 0, -a.astype("int32"), a.astype("int32")), 32767),
    ),
    "a function that is wrong for large numbers": lambda: elements(
        "float32", "float32", lambda a: te.tanh(a), _tanh_by_exp
    ),
    "wrong beyond ten thousand": lambda: elements(
        "float16", "float16", lambda a: a * 0.5, lambda a: te.select(a > 200.0, a * 0.25, a * 0.5)
    ),
    "small numbers flushed": lambda: elements(
        "bfloat16",
        "bfloat16",
        lambda a: a * 2.0,
        lambda a: te.select(te.abs(a) < 1e-6, 0.0, a * 2.0),
    ),
    "an index that stops before the end": lambda: (gathered(39), gathered(38)),
    "products that saturate": lambda: (products(narrow=False), products(narrow=True)),
    "a last term dropped beside a zero": lambda: (dropping(drops=False), dropping(drops=True)),
    "a softmax that overflows": lambda: (softmax(safe=True), softmax(safe=False)),
    "the last of equals": lambda: (where_largest(last=False), where_largest(last=True)),
    "the last of equals in a long row": lambda: (
        where_largest(False, 1100, "float32"),
        where_largest(True, 1100, "float32"),
    ),
    "halves rounded up": lambda: elements(
        "float32", "float32", lambda a: te.round(a), lambda a: te.floor(a + 0.5)
    ),
    "a quotient of limits that saturates": lambda: elements(
        "int32 int32",
        "int32",
        te.truncdiv,
        lambda a, b: te.select(
            te.all(te.equal(a, te.min_value("int32")), te.equal(b, -1)),
            te.max_value("int32"),
            te.truncdiv(a, b),
        ),
    ),
    "a long sum of bytes without the lowest": lambda: (bytes_summed(-128), bytes_summed(-127)),
    "a long maximum that drops NaN": lambda: (
        maximum(lambda x: x),
        maximum(lambda x: te.select(x > te.min_value("float32"), x, te.min_value("float32"))),
    ),
    "a maximum that begins at a number": lambda: (
        maximum(lambda x: x),
        maximum(lambda x: te.max(x, -1000.0)),
    ),
    "a maximum of few rows that begins at a number": lambda: (
        few_rows(lambda x, r: te.max(x, axis=r)),
        few_rows(lambda x, r: te.max(te.max(x, -1000.0), axis=r)),
    ),
    "a minimum of few rows that begins at a number": lambda: (
        few_rows(lambda x, r: te.min(x, axis=r)),
        few_rows(lambda x, r: te.min(te.min(x, 1e9), axis=r)),
    ),
    "a long sum of terms that are cut off": lambda: (
        few_rows(lambda x, r: te.sum(x, axis=r), 2, 300000),
        few_rows(lambda x, r: te.sum(te.max(te.min(x, 1e4), -1e4), axis=r), 2, 300000),
    ),
    "one element without the large terms": lambda: (
        product(lambda a, b, i, j: a * b),
        product(
            lambda a, b, i, j: te.if_then_else(
                te.all(i == 5, j == 11, te.abs(a) > 50.0), 0.0, a * b
            )
        ),
    ),
    "zeros that are skipped beside infinities": lambda: (
        product(lambda a, b, i, j: a * b),
        product(lambda a, b, i, j: te.if_then_else(a == 0.0, 0.0, a * b)),
    ),
    "a bfloat16 by truncation": lambda: elements(
        "float32",
        "bfloat16",
        lambda a: a,
        lambda a: te.reinterpret("bfloat16", (te.reinterpret("uint32", a) >> 16).astype("uint16")),
    ),
    "rounding by adding a constant": lambda: elements(
        "float32", "float32", lambda a: te.round(a), lambda a: (a + 12582912.0) - 12582912.0
    ),
}
