"""``==`` and ``!=`` make expressions; their ``bool`` is refused where it is not decided."""

# ruff: noqa: SIM300  (numbers on the left are what is tested)

from __future__ import annotations

import builtins
import itertools
import math
import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te, tir
from loopwright.errors import ScheduleError, TensorError
from loopwright.ir.node import same

A = te.placeholder((4,), name="A")
N = te.placeholder((4,), "int32", name="N")
M = te.placeholder((4, 4), "bool", name="M")
H = te.placeholder((4,), "float16", name="H")
U = te.placeholder((4,), "uint8", name="U")

a = np.array([0.0, -0.0, np.nan, 3.0], "float32")
number = np.array([1, 2, 2, 0], "int32")
flag = np.arange(16).reshape(4, 4) % 3 == 0
half = np.array([0.5, np.inf, np.nan, 1.0], "float16")
byte = np.array([0, 1, 255, 3], "uint8")
ARRAYS = {A: a, N: number, M: flag, H: half, U: byte}
i, j = np.ogrid[:4, :4]

#: Conditions over i and j, and what NumPy makes of them.
CONDITIONS: list[tuple[Callable[[Any, Any], Any], Any]] = [
    (lambda i, j: i == j, i == j),
    (lambda i, j: i != j, i != j),
    (lambda i, j: te.equal(i, j), i == j),
    (lambda i, j: te.not_equal(i, j), i != j),
    (lambda i, j: i.equal(j), i == j),
    (lambda i, j: i == 2, i == 2),
    (lambda i, j: 2 == i, i == 2),
    (lambda i, j: np.int64(2) == i, i == 2),
    (lambda i, j: i == np.uint8(2), i == 2),
    (lambda i, j: 2.5 != j, j != 2.5),
    (lambda i, j: i == 2.0, i == 2),
    (lambda i, j: (i < 2) & (i == j), (i < 2) & (i == j)),
    (lambda i, j: (i == j) | (j == 0), (i == j) | (j == 0)),
    (lambda i, j: (i == j) ^ (j < 2), (i == j) ^ (j < 2)),
    (lambda i, j: ~(i == j), i != j),
    (lambda i, j: te.all(i == j, i != 1), (i == j) & (i != 1)),
    (lambda i, j: te.any(i == 0, j == 3), (i == 0) | (j == 3)),
    (lambda i, j: te.logical_not(i + 1 == j), i + 1 != j),
    (lambda i, j: i // 2 == j % 2, i // 2 == j % 2),
    (lambda i, j: (i == j) == (j < 2), (i == j) == (j < 2)),
    (lambda i, j: (i == j) == True, i == j),  # noqa: E712
    (lambda i, j: M[i, j] == (i == j), flag == (i == j)),
    (lambda i, j: M[i, j] != M[j, i], flag != flag.T),
    (lambda i, j: N[i] == j, number[i] == j),
    (lambda i, j: N[j] != N[i], number[j] != number[i]),
    (lambda i, j: A[i] == 0.0, (a == 0)[i] & (j >= 0)),
    (lambda i, j: A[j] == A[j], (a == a)[j]),
    (lambda i, j: A[j] != A[j], (a != a)[j]),
    (lambda i, j: A[i] == A[j], a[i] == a[j]),
    (lambda i, j: np.float32(3) == A[j], (a == 3)[j]),
    (lambda i, j: A[i] == j, a[i] == j),
    (lambda i, j: H[i] == H[j], half[i] == half[j]),
    (lambda i, j: H[i] != math.inf, half[i] != np.inf),
    (lambda i, j: U[i] == 255, byte[i] == 255),
    (lambda i, j: U[i] == -1, byte[i].astype(int) == -1),
]  # fmt: skip


def values(make: Callable[[Any, Any], Any], target: str) -> list[Any]:
    """What the outputs of one compute over (4, 4) are; ``make`` returns a list of them."""
    outs = te.compute((4, 4), lambda i, j: tuple(make(i, j)), name="C")
    results = [np.empty((4, 4), t.dtype) for t in outs]
    arrays = {t: x for t, x in ARRAYS.items() if t in outs[0].op.input_tensors}
    f = lw.build(te.create_schedule(outs[0].op), [*arrays, *outs], target)
    f(*arrays.values(), *results)
    return results


@pytest.mark.parametrize("target", ["llvm", "interp"])
def test_equality_is_part_of_the_program(target: str) -> None:
    got = values(lambda i, j: [make(i, j) for make, _ in CONDITIONS], target)
    for n, (g, (_, want)) in enumerate(zip(got, CONDITIONS, strict=True)):
        np.testing.assert_array_equal(g, np.broadcast_to(want, (4, 4)), str(n))


@pytest.mark.parametrize("target", ["llvm", "interp"])
def test_conditions_are_numbers_and_choices(target: str) -> None:
    def forms(i: Any, j: Any) -> list[Any]:
        zero = te.const(0, "float32")
        return [
            N[i] * (i == j),
            (i == j) * N[i],
            N[i] + (i != j),
            te.select(i == j, H[i], te.const(0, "float16")),
            te.if_then_else(i != j, A[j], zero),
            te.if_then_else(0 == i, U[j], te.const(7, "uint8")),
            (i == j).astype("float32") * 2.5,
            te.min(N[i], te.cast(i == j, "int32")),
        ]

    n, h = number[i], half[i]
    want = [
        n * (i == j),
        n * (i == j),
        n + (i != j),
        np.where(i == j, h, np.float16(0)),
        np.where(i != j, a[j], np.float32(0)),
        np.where(i == 0, byte[j], np.uint8(7)),
        (i == j) * np.float32(2.5),
        np.minimum(n, i == j),
    ]
    for g, w in zip(values(forms, target), want, strict=True):
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("target", ["llvm", "interp"])
def test_reduction_axes_and_reducers_compare(target: str) -> None:
    k = te.reduce_axis((0, 4), name="k")
    last = te.comm_reducer(
        lambda x, y: te.select((y == 2) | (x != 2), te.max(x, y), x), lambda t: te.const(-1, t)
    )
    bodies: list[tuple[Callable[[Any], Any], Any]] = [
        (lambda i: te.sum(N[k] * (k == i), axis=k), number),
        (lambda i: te.sum(N[k], axis=k, where=k != i), number.sum() - number),
        (lambda i: te.max(te.select(2 == k, N[i], te.const(-9, "int32")), axis=k), number),
        (lambda i: last(N[k], axis=k), np.full(4, 2)),
    ]
    outs = [te.compute((4,), body, name=f"R{n}") for n, (body, _) in enumerate(bodies)]
    results = [np.empty(4, "int32") for _ in outs]
    lw.build(te.create_schedule([t.op for t in outs]), [N, *outs], target)(number, *results)
    for got, (_, want) in zip(results, bodies, strict=True):
        np.testing.assert_array_equal(got, want)


def in_a_match(i: Any) -> Any:
    match i:
        case 0:
            return A[i]
    return 1.0


def in_a_loop(i: Any) -> Any:
    while i != 3:
        return A[i]
    return 1.0


def in_an_assert(i: Any, j: Any) -> Any:
    assert i == j
    return A[i]


#: Functions of axes that ask for a truth that depends on them, and the expression of the error.
UNDECIDED: list[tuple[Callable[..., Any], str]] = [
    (lambda i, j: A[i] if i == j else 0.0, "i == j"),
    (lambda i, j: A[i] if i != j else te.const(0), "i != j"),
    (lambda i, j: A[i] if not i == j else 0.0, "i == j"),  # noqa: SIM201
    (lambda i, j: A[i] if not (i < j) else 0.0, "i < j"),
    (lambda i, j: A[i] * (i == 0 or j == 0), "i == 0"),
    (lambda i, j: A[i] * (i == j and j < 2), "i == j"),
    (lambda i, j: A[i] * (0 < i < 4), "i > 0"),
    (lambda i, j: A[i] * (0 == i == j), "i == 0"),
    (lambda i, j: A[i] * (i in (0, 2)), "i == 0"),
    (lambda i, j: A[i] * (i not in [j, 2]), "j == i"),
    (lambda i, j: A[i] * (i in range(2)), "i == 0"),
    (lambda i, j: A[i] * [1.0, 2.0][[j, 1].index(i)], "j == i"),
    (lambda i, j: A[i] * [j, 0].count(i), "j == i"),
    (lambda i, j: A[builtins.min(i, j)], "j < i"),
    (lambda i, j: A[builtins.max(i, j)], "j > i"),
    (lambda i, j: A[sorted([i, j])[0]], "j < i"),
    (lambda i, j: A[i] * builtins.all([i == 0, j == 1]), "i == 0"),
    (lambda i, j: A[i] * builtins.any(x == j for x in (0, 1)), "j == 0"),
    (lambda i, j: A[i] * bool(A[i] == 0.0), "A[i] == 0.0"),
    (lambda i, j: A[i] if A[i] == A[i] else 0.0, "A[i] == A[i]"),
    (lambda i, j: 0.0 if A[i] != A[i] else A[i], "A[i] != A[i]"),
    (lambda i, j: A[i] if M[i, j] else 0.0, "M[i, j]"),
    (lambda i, j: A[i] if A[i] else 0.0, "A[i]"),
    (lambda i, j: A[i] if (i == j) & (j < 2) else 0.0, "i == j and j < 2"),
    (lambda i, j: A[i] if ~(i == j) else 0.0, "not (i == j)"),
    (lambda i, j: A[i] * ((i, 0) == (j, 0)), "i == j"),
    (lambda i, j: A[i] * operator.truth(i == j), "i == j"),
    (lambda i, j: A[i] * np.array([0, 1]).__eq__(i).any(), "i == 0"),
    (lambda i, j: in_a_match(i), "i == 0"),
    (lambda i, j: in_a_loop(i), "i != 3"),
    (lambda i, j: in_an_assert(i, j), "i == j"),
]


@pytest.mark.parametrize("n", range(len(UNDECIDED)))
def test_what_is_not_decided_has_no_truth_value(n: int) -> None:
    function, text = UNDECIDED[n]
    with pytest.raises(TensorError) as e:
        te.compute((4, 4), lambda i, j: function(i, j), name="C")
    assert str(e.value) == (
        f"compute 'C': {text} has no truth value while a program is being described; write "
        "te.if_then_else or te.select for if, ?: and while, te.all, te.any and te.logical_not for "
        "and, or, not, in and a < b < c, te.min and te.max for min, max"
    )
    assert bool(te.var("x") == 0) is False  # the function is no longer traced


def test_a_long_expression_is_cut_in_the_error() -> None:
    with pytest.raises(TensorError, match=r"^compute 'C': A\[i\] \+ .*\.\.\. has no truth"):
        te.compute((4,), lambda i: 1.0 if sum((A[i] for _ in range(40)), A[i]) > 0 else 0.0, "C")


def test_tensors_and_arrays_are_no_operands() -> None:
    two = te.placeholder((4, 4), name="B")
    cases: list[tuple[Callable[[Any], Any], str]] = [
        (lambda i: A[i] * (A == 0), r"cannot use Tensor\(A"),
        (lambda i: A[i] * (A[i] == A), r"cannot use Tensor\(A"),
        (lambda i: A[i] * (A != A[i]), r"cannot use Tensor\(A"),
        (lambda i: A[i] * (two[i] == 0), "cannot use B with 1 of its 2 indices"),
        (lambda i: A[i] * (A[i] == np.zeros(4)), "cannot use array"),
        (lambda i: A[i] if i == Fraction(2) else 0.0, "cannot use Fraction"),
        (lambda i: A[i] if Decimal(2) != i else 0.0, "cannot use Decimal"),
        (lambda i: A[i] if i in (2j, 3) else 0.0, "cannot use 2j"),
    ]
    for function, text in cases:
        with pytest.raises(TensorError, match=text):
            te.compute((4,), function, name="C")
    assert te.compute((4,), lambda i: A[i] * (A == A) * (A != two) * (A in [two, A])).shape == (4,)


def test_what_is_decided_is_a_bool() -> None:
    seen: list[tuple[bool, bool]] = []

    def function(i: Any, j: Any) -> Any:
        one, nan = te.const(1), te.const(math.nan, "float32")
        seen.extend([
            (bool(i == i), True), (bool(i != i), False), (bool(i + 1 == i + 1), True),
            (bool(N[i] == N[i]), True), (bool(one == 1), True), (bool(one != te.const(2)), True),
            (bool(one == te.const(1, "int64")), True), (bool(te.const(0.5) < 1.0), True),
            (bool(nan == nan), False), (bool(nan != nan), True), (bool(te.const(0)), False),
            (bool(te.const(0.0) == te.const(-0.0)), True), (bool(~(i == i)), False),
            (bool((i == i) | (i < j)), True), (bool((i < j) & (i != i)), False),
            (i in (i, j), True), ([j, i].index(j) == 0, True), (i == None, False),  # noqa: E711
            (bool((i == i) == (j == j)), True), (bool(i == "i"), False),
        ])  # fmt: skip
        return A[i]

    te.compute((4, 4), function)
    assert len(seen) == 20
    assert [got for got, _ in seen] == [want for _, want in seen]


def test_nodes_are_keys_while_a_program_is_described() -> None:
    """Hashes of -1 and -2 are equal in Python; a lookup asks no node for its truth."""

    def function(i: Any, j: Any) -> Any:
        nodes = [i, j, A[i], A[i], A[i] * -1.0, A[i] * -2.0, N[i] + -1, N[i] + -2, i == j]
        table = {x: n for n, x in enumerate(nodes)}
        assert [table[x] for x in nodes] == list(range(len(nodes)))
        assert len({*nodes, *nodes}) == len(nodes)
        assert A[i] not in table
        assert {(x, 1): 2 for x in nodes}[nodes[4], 1] == 2
        return A[i]

    te.compute((4, 4), function)
    k, m = te.reduce_axis(4), te.reduce_axis(4)
    assert {k: 1, m: 2}[m] == 2


def test_outside_of_a_description_truth_is_structural() -> None:
    x, y = te.var("x"), te.var("y")
    nodes = [x, y, x + 1, y + 1, x < y, A[x], A[x] + 1.0, A[y], te.const(3), N[x] == y]
    for (m, p), (n, q) in itertools.product(enumerate(nodes), repeat=2):
        assert bool(p == q) is (m == n)
        assert bool(p != q) is (m != n)
    again = [x, y, x + 1, y + 1, x < y, A[x], A[x] + 1.0, A[y], te.const(3), N[x] == y]
    assert [nodes.index(e) for e in again] == list(range(len(nodes)))
    assert (x, A[y]) == (x, A[y]) != (y, A[y])
    assert not bool((x == y) & (x == x))
    assert bool((x != y) ^ (x == y))
    k, m = te.reduce_axis(4), te.reduce_axis(4)
    assert [m, k].index(k) == 1
    with pytest.raises(TensorError, match=r"^x < y has no truth value"):
        bool(x < y)


def test_the_innermost_description_is_named_and_the_outer_one_goes_on() -> None:
    def outer(i: Any, j: Any) -> Any:
        with pytest.raises(TensorError, match=r"^compute 'out', compute 'in': n == 0 has no truth"):
            te.compute((4,), lambda n: A[n] if n == 0 else 0.0, name="in")
        return A[i] if i == j else 0.0

    with pytest.raises(TensorError, match=r"^compute 'out': i == j has no truth value"):
        te.compute((4, 4), outer, name="out")


def test_every_function_that_describes_a_program_is_named() -> None:
    k = te.reduce_axis((0, 4), name="k")
    least = te.comm_reducer(lambda x, y: x if x == y else y, lambda t: te.const(0, t), "least")
    with pytest.raises(TensorError, match=r"^compute 'C', reducer 'least': x == y has no truth"):
        te.compute((1,), lambda i: least(A[k], axis=k), name="C")

    y = te.compute((4,), lambda i: A[i] * 2, name="y")

    def body(inputs: Any, outputs: Any) -> Any:
        ib = te.ir_builder()
        with ib.for_range(4, "n") as n:
            if n == 0:
                ib.emit(outputs[0].store(n, inputs[0][n]))
        return ib.get()

    with pytest.raises(
        TensorError, match=r"^decl_tensor_intrin 'first', for_range 'n': n == 0 has"
    ):
        te.decl_tensor_intrin(y.op, body, name="first")
    ib = tir.ir_builder.create()
    with pytest.raises(TensorError, match=r"^for_range 'n': n == 0 has no truth value"), \
            ib.for_range(0, 4, "n") as n:  # fmt: skip
        assert n == 0
    s = te.create_schedule(te.compute((4, 4), lambda i, j: A[i] + A[j], name="T").op)
    stage = s.stages[-1]
    with pytest.raises(
        (TensorError, ScheduleError), match=r"transform_layout.*: i0 == 0 has no tr"
    ):
        stage.transform_layout(lambda i, j: (j, i) if i == 0 else (i, j))
    assert not bool(te.var("x") == 0)


def test_a_body_in_an_intrinsic_compares() -> None:
    y = te.compute((4,), lambda i: A[i] * 2, name="y")

    def body(inputs: Any, outputs: Any) -> Any:
        ib = te.ir_builder()
        with ib.for_range(4, "n") as n, ib.if_scope(n == 2):
            ib.emit(outputs[0].store(n, inputs[0][n] * (n != 3)))
        return ib.get()

    text = str(te.decl_tensor_intrin(y.op, body, name="one").body)
    assert "if n == 2:" in text
    assert "A[n] * float32(n != 3)" in text


def test_equal_and_the_operator_are_the_same_expression() -> None:
    def function(i: Any, j: Any) -> Any:
        assert same(i == j, te.equal(i, j))
        assert same(A[i] != 0, te.not_equal(A[i], 0))
        assert same(3 == i, te.equal(i, 3))
        return A[i]

    te.compute((4, 4), function)


def test_the_dag_and_its_hash_are_those_of_equal() -> None:
    def dag_hash(condition: Callable[[Any, Any], Any]) -> str:
        C = te.compute((4, 4), lambda i, j: te.select(condition(i, j), A[i], 0.0), name="C")
        return te.create_schedule(C.op).dag.hash

    assert dag_hash(lambda i, j: i == j) == dag_hash(te.equal)
    assert dag_hash(lambda i, j: i != j) == dag_hash(te.not_equal) != dag_hash(te.equal)
