"""Random calls, plain and bound, of one kernel on arrays that change under it, against NumPy.

A model says from what NumPy tells of the arrays whether a call may run, and what it gives then. The
kernel is warm, so that most calls are checked in compiled code and the others in Python.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import loopwright as lw
from loopwright import te
from loopwright.errors import ArgumentError
from loopwright.runtime import Module
from loopwright.runtime.kernels import function
from tests.covering import examples

F32 = np.float32
SHAPE = (3, 4)
SIZE = 12
ARRAYS = 4
INDEX = st.integers(0, ARRAYS - 1)
THREE = st.permutations(range(ARRAYS)).map(lambda order: order[:3]) | st.lists(
    INDEX, min_size=3, max_size=3
)
Array = np.ndarray[Any, Any]


@cache
def module(symbolic: bool) -> Module:
    """C = A + 2 * B."""
    shape = (te.size_var("n"), te.size_var("m")) if symbolic else SHAPE
    a, b = (te.placeholder(shape, name=name) for name in "AB")
    c = te.compute(shape, lambda i, j: a[i, j] + 2 * b[i, j], name="C")
    made = lw.build(te.create_schedule(c.op), [a, b, c], "llvm -num-threads=1")
    for _ in range(2 * function._WARM):
        made(*(np.zeros(SHAPE, F32) for _ in range(3)))
    return made


def of_numpy(x: object) -> Array:
    return x if isinstance(x, np.ndarray) else x._data  # type: ignore[attr-defined]


def allowed(operands: list[object], symbolic: bool) -> bool:
    """Whether NumPy says of these arrays what the kernel asks for."""
    arrays = [of_numpy(x) for x in operands]
    shape = arrays[0].shape if symbolic else SHAPE
    return (
        len(shape) == 2
        and all(a.shape == shape and a.size for a in arrays)
        and all(a.dtype == F32 and a.flags.c_contiguous and a.flags.aligned for a in arrays)
        and arrays[2].flags.writeable
        and not any(np.shares_memory(arrays[2], a) for a in arrays[:2])
    )


class Calls(RuleBasedStateMachine):
    """Arrays that are made, viewed and changed in place, and the calls on them."""

    symbolic = False

    @initialize()
    def start(self) -> None:
        self.arrays: list[object] = [np.full(SHAPE, k, F32) for k in range(ARRAYS)]
        self.bound: list[tuple[Any, list[object]]] = []

    @rule(k=INDEX, value=st.integers(-50, 50))
    def fill(self, k: int, value: int) -> None:
        x = of_numpy(self.arrays[k])
        if x.flags.writeable:
            x[...] = value

    @rule(k=INDEX, ours=st.booleans())
    def renew(self, k: int, ours: bool) -> None:
        made = np.ones(SHAPE, F32)
        self.arrays[k] = lw.nd.array(made) if ours else made

    @rule(k=INDEX, shape=st.sampled_from([(3, 5), (4, 4), (12,), (3, 4, 1), (0, 4), ()]))
    def other_shape(self, k: int, shape: tuple[int, ...]) -> None:
        self.arrays[k] = np.ones(shape, F32)

    @rule(k=INDEX, dtype=st.sampled_from(["float64", "int32", ">f4", "float16"]))
    def other_type(self, k: int, dtype: str) -> None:
        self.arrays[k] = np.ones(SHAPE, dtype)

    @rule(k=INDEX, kind=st.sampled_from(["columns", "steps", "backwards"]))
    def other_order(self, k: int, kind: str) -> None:
        orders = {
            "columns": np.ones((4, 3), F32).T,
            "steps": np.ones((3, 8), F32)[:, ::2],
            "backwards": np.ones(SHAPE, F32)[::-1],
        }
        self.arrays[k] = orders[kind]

    @rule(k=INDEX, other=INDEX, begin=st.integers(0, 2), kind=st.sampled_from("rcvt"))
    def view(self, k: int, other: int, begin: int, kind: str) -> None:
        base = of_numpy(self.arrays[other])
        if base.ndim != 2:
            return
        views = {"r": base[begin:], "c": base[:, begin:], "v": base[...], "t": base.T}
        self.arrays[k] = views[kind]

    @rule(k=INDEX, begin=st.integers(0, SIZE), off=st.integers(0, 1))
    def place(self, k: int, begin: int, off: int) -> None:
        """A piece of a block that others may lie in, too; one byte off, where asked."""
        block = np.zeros(4 * 2 * SIZE + 1, np.uint8)
        piece = block[4 * begin + off : 4 * (begin + SIZE) + off].view(F32).reshape(SHAPE)
        self.arrays[k] = piece
        self.arrays[(k + 1) % ARRAYS] = block[: 4 * SIZE].view(F32).reshape(SHAPE)

    @rule(k=INDEX, writable=st.booleans())
    def protect(self, k: int, writable: bool) -> None:
        x = of_numpy(self.arrays[k])
        if not writable or x.base is None:
            x.flags.writeable = writable

    @rule(k=INDEX, shape=st.sampled_from([SHAPE, (4, 3), (12,), (2, 6)]))
    def reshape(self, k: int, shape: tuple[int, ...]) -> None:
        """In place: the array is the same object afterwards."""
        x = of_numpy(self.arrays[k])
        if x.flags.c_contiguous and x.size == SIZE:
            x.shape = shape

    @rule(k=INDEX, rows=st.integers(1, 5))
    def resize(self, k: int, rows: int) -> None:
        """In place, where nothing else has the memory: the array is the same object afterwards."""
        x = self.arrays[k]
        if not isinstance(x, np.ndarray) or not x.flags.owndata or not x.flags.writeable:
            return
        others = [y for j, y in enumerate(self.arrays) if j != k]
        others += [y for _, operands in self.bound for y in operands]
        if not any(y is x or np.may_share_memory(of_numpy(y), x) for y in others):
            x.resize((rows, 4), refcheck=False)  # this list and these names refer to it

    @rule(operands=THREE)
    def call(self, operands: list[int]) -> None:
        args = [self.arrays[k] for k in operands]
        if not allowed(args, self.symbolic):
            before = [of_numpy(x).copy() for x in args]
            with pytest.raises(ArgumentError):
                module(self.symbolic)(*args)
            for x, was in zip(args, before, strict=True):
                np.testing.assert_array_equal(of_numpy(x), was)
            return
        a, b, c = map(of_numpy, args)
        expected = a + 2 * b
        module(self.symbolic)(*args)
        np.testing.assert_array_equal(c, expected)

    @rule(operands=THREE)
    def bind(self, operands: list[int]) -> None:
        args = [self.arrays[k] for k in operands]
        if allowed(args, self.symbolic):
            self.bound.append((module(self.symbolic).bind(*args), [of_numpy(x) for x in args]))
            return
        with pytest.raises(ArgumentError):
            module(self.symbolic).bind(*args)

    @rule(k=INDEX, often=st.booleans())
    def call_bound(self, k: int, often: bool) -> None:
        if k >= len(self.bound):
            return
        call, (a, b, c) = self.bound[k]
        # Shapes may have changed in place since; memory has not.
        expected = a.ravel() + 2 * b.ravel()
        for _ in range(function._WARM + 1 if often else 1):
            call()
        np.testing.assert_array_equal(c.ravel(), expected)

    @invariant()
    def kept(self) -> None:
        assert len(self.arrays) == ARRAYS


class SymbolicCalls(Calls):
    """The same of a kernel that takes any size."""

    symbolic = True


_OPTIONS = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)
TestCalls = Calls.TestCase
TestCalls.settings = _OPTIONS
TestSymbolicCalls = SymbolicCalls.TestCase
TestSymbolicCalls.settings = _OPTIONS
