"""Packed functions: what arrives of each kind of value, and what is refused."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Optional, Union

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import ArgumentError, UsageError
from loopwright.runtime import Device, Module, NDArray, PackedFunc, TypedPackedFunc, kind_of
from loopwright.runtime.packed import KINDS


def add_one(n: int | Any = 4, name: str = "add_one") -> Module:
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    return lw.build(te.create_schedule(B.op), [A, B], "llvm", name=name)


def test_every_argument_arrives_in_order() -> None:
    """A well-known listing of ``__call__`` drops them all."""
    got: list[object] = []
    f = PackedFunc(lambda *args: got.extend(args) or len(args))
    assert f(1, "two", 3.0, None, b"5") == 5
    assert got == [1, "two", 3.0, None, b"5"]


def test_every_argument_arrives_at_a_compiled_function() -> None:
    f = PackedFunc(add_one()["add_one"])
    b = np.empty(4, "float32")
    assert f(np.arange(4, dtype="float32"), b) is None
    np.testing.assert_array_equal(b, [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("value", "kind", "arrives"),
    [
        (None, "none", None),
        (True, "bool", True),
        (np.True_, "bool", True),
        (7, "int", 7),
        (np.int8(-3), "int", -3),
        (np.uint64(2**64 - 1), "int", 2**64 - 1),
        (0.5, "float", 0.5),
        (np.float32(0.5), "float", 0.5),
        ("x", "str", "x"),
        (b"x", "bytes", b"x"),
        (bytearray(b"x"), "bytes", b"x"),
        (memoryview(b"x"), "bytes", b"x"),
        (np.dtype("int8"), "dtype", np.dtype("int8")),
        (Device("cpu", 0), "device", Device("cpu", 0)),
        ((1, 2), "object", (1, 2)),
        ([1, 2], "object", [1, 2]),
        ({"a": 1}, "object", {"a": 1}),
        (int, "object", int),
    ],
    ids=lambda x: "memory" if isinstance(x, memoryview) else repr(x),  # equal in all processes
)
def test_kinds(value: object, kind: str, arrives: object) -> None:
    got: list[object] = []
    result = PackedFunc(lambda x: got.append(x) or x)(value)
    assert kind_of(value) == kind in KINDS
    assert got == [arrives]
    assert type(got[0]) is type(arrives)
    assert result == arrives


def test_objects_pass_by_reference() -> None:
    value = [1]
    address = ctypes.c_void_p(64)
    assert PackedFunc(lambda x: x)(value) is value
    assert PackedFunc(lambda x: x)(address) is address
    assert kind_of(address) == "handle"


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "bfloat16"])
def test_arrays_share_their_memory(dtype: str) -> None:
    a = lw.nd.array(np.zeros((2, 3)), dtype).numpy()

    def fill(x: NDArray) -> NDArray:
        x[1, 2] = 1
        return x

    result = PackedFunc(fill)(a)
    assert isinstance(result, NDArray)
    assert a[1, 2] == 1
    assert result.data == a.ctypes.data
    assert kind_of(a) == kind_of(result) == "array"


def test_modules_and_functions_are_kinds() -> None:
    module = add_one()
    f = module["add_one"]
    assert kind_of(module) == "module"
    assert kind_of(f) == kind_of(print) == "function"
    assert isinstance(f, PackedFunc)
    assert PackedFunc(lambda x: x)(f) is f
    assert PackedFunc(lambda x: x)(module) is module


def test_functions_of_symbolic_sizes_are_packed_functions() -> None:
    n = te.size_var("n")
    assert isinstance(add_one(n)["add_one"], PackedFunc)


def test_a_callable_arrives_as_packed_function() -> None:
    def apply(f: Callable[..., object], x: int) -> object:
        assert isinstance(f, PackedFunc)
        return f(x)

    assert PackedFunc(apply)(lambda x: x + 1, 4) == 5


def test_a_compiled_function_is_passed_and_called_back() -> None:
    def twice(f: PackedFunc, a: NDArray, b: NDArray) -> None:
        f(a, b)
        f(b, a)

    a, b = np.zeros(4, "float32"), np.empty(4, "float32")
    PackedFunc(twice)(add_one()["add_one"], a, b)
    np.testing.assert_array_equal(a, [2, 2, 2, 2])


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (2**64, "does not fit into 64 bits"),
        (-(2**63) - 1, "does not fit into 64 bits"),
        (np.zeros((4, 4))[:, 0], "not row-major"),
        (np.zeros(2, "complex64"), "complex64"),
        (np.ma.masked_array(np.zeros(2), [True, False]), "masks"),
    ],
)
def test_what_cannot_be_passed_is_refused_with_its_place(value: object, why: str) -> None:
    called: list[object] = []
    with pytest.raises(ArgumentError, match=rf"f: argument 1: .*{why}"):
        PackedFunc(lambda *args: called.append(args), "f")(0, value)
    assert not called
    with pytest.raises(ArgumentError, match=f"f: the result: .*{why}"):
        PackedFunc(lambda: value, "f")()


def test_only_what_can_be_called_becomes_a_function() -> None:
    with pytest.raises(ArgumentError, match=r"expected a function, got 3 \(a int\)"):
        PackedFunc(3)  # type: ignore[arg-type]


def test_names_of_functions() -> None:
    assert PackedFunc(max).name == "max"
    assert PackedFunc(max, "most").name == "most"
    assert repr(PackedFunc(max)) == "<PackedFunc max>"


class Matrix:
    pass


def described(
    a: NDArray,
    n: int,
    x: float = 1.0,
    kind: str | None = None,
    f: Callable[..., object] = print,
    *rest: Matrix,
) -> dict[str, object]:
    return {"n": n, "x": x, "kind": kind, "rest": len(rest), "a": a.shape, "f": f}


def test_a_typed_function_takes_what_it_says() -> None:
    f = TypedPackedFunc(described)
    got = f(np.zeros(3), 2, 3, None, max, Matrix(), Matrix())
    assert isinstance(got, dict)
    assert (got["n"], got["x"], got["kind"], got["rest"], got["a"]) == (2, 3.0, None, 2, (3,))
    assert type(got["x"]) is float
    assert isinstance(got["f"], PackedFunc)
    assert f(np.zeros(3), np.int64(2)) is not None  # what has defaults may be left out


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), r"described\(.*: missing a required argument: 'a'"),
        (
            (np.zeros(1), 1, 1.0, "k", print, Matrix(), 3),
            r"argument 6 \('rest'\) is a Matrix, got 3",
        ),
        ((np.zeros(1), 1.0), r"described: argument 1 \('n'\) is an int, got 1.0 \(a float\)"),
        ((np.zeros(1), True), r"argument 1 \('n'\) is an int, got True \(a bool\)"),
        (("a", 1), r"argument 0 \('a'\) is an NDArray, got 'a' \(a str\)"),
        ((np.zeros(1), 1, 1.0, 5), r"argument 3 \('kind'\) is a str or None, got 5"),
        ((np.zeros(1), 1, 1.0, None, 5), r"argument 4 \('f'\) is a PackedFunc, got 5"),
    ],
)
def test_a_typed_function_refuses_the_rest(args: tuple[object, ...], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        TypedPackedFunc(described)(*args)


def test_a_typed_function_checks_its_result() -> None:
    def wrong() -> int:
        return "three"  # type: ignore[return-value]

    with pytest.raises(ArgumentError, match=r"wrong: the result is an int, got 'three' \(a str\)"):
        TypedPackedFunc(wrong)()


def test_annotations_of_several_forms() -> None:
    def f(a: Optional[int], b: Union[str, bytes], c: Any, d, e: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def] # noqa: UP007, UP045
        return None

    typed = TypedPackedFunc(f)
    assert typed(None, b"x", object(), 1j, (1,)) is None
    with pytest.raises(ArgumentError, match=r"argument 4 \('e'\) is a tuple, got \[1\]"):
        typed(1, "x", 0, 0, [1])


def keyword_only(*, n: int) -> None:
    pass


def numpy_array(a: np.ndarray[Any, Any]) -> None:
    pass


@pytest.mark.parametrize(
    ("function", "text"),
    [(keyword_only, "must be given 'n' by name"), (numpy_array, "annotate it as .*NDArray")],
)
def test_annotations_that_cannot_hold(function: Callable[..., object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        TypedPackedFunc(function)
