"""Tutorial 13: packed functions, which Python and compiled code call alike.

Run it with ``python tutorials/13_packed_functions.py``. Its last part needs a C compiler, and is
left out where there is none. docs/howto/packed-functions.md says what may be passed, and what goes
wrong.
"""

import shutil
import tempfile
import traceback
from pathlib import Path

import numpy as np

import loopwright as lw
from loopwright import te, tir
from loopwright.runtime import NDArray, PackedFunc, TypedPackedFunc

N = 6


def by_name():
    """A function that is known by a name in the whole process."""

    @lw.register_func("tutorial.describe")
    def describe(*args):
        return ", ".join(lw.runtime.kind_of(x) for x in args)

    f = lw.get_global_func("tutorial.describe")
    print("  ", f(1, 2.5, "text", b"bytes", None, np.zeros(2), lw.cpu(0), np.sqrt, [1, 2]))
    try:
        lw.get_global_func("tutorial.descrbe")
    except lw.LoopwrightError as error:
        print("   a slip:", error)


def with_types():
    """Annotations become checks."""

    def scaled(a: NDArray, factor: float) -> float:
        return float(a.numpy().sum() * factor)

    f = TypedPackedFunc(scaled)
    print("  ", f(np.ones(4, "float32"), 2))
    try:
        f(np.ones(4, "float32"), "two")
    except lw.LoopwrightError as error:
        print("   refused:", error)


def by_hand():
    """A function of the loop IR that calls one of Python in the middle of a loop."""

    def body(inputs, outputs):
        ib = tir.ir_builder.create()
        x, y = ib.buffer_ptr(inputs[0]), ib.buffer_ptr(outputs[0])
        with ib.for_range(0, N, "i") as i:
            y[i] = x[i] * 2.0
            with ib.if_scope(y[i] > 6.0):
                ib.emit(tir.call_packed("tutorial.watch", y, i, "over the limit"))
        return ib.get()

    x, y = (tir.decl_buffer((N,), "float32", name) for name in "xy")
    func = tir.prim_func(body, [x], [y], "double")
    print(func)

    @lw.register_func("tutorial.watch")
    def watch(y, i, why):
        print(f"   y[{i}] = {y[i]} is {why}; it becomes 6")
        y[i] = 6  # the array is the kernel's own memory, while the call lasts

    for target in ("llvm", "c") if shutil.which("cc") else ("llvm",):
        out = np.zeros(N, "float32")
        lw.build(func, target=target)(np.arange(N, dtype="float32"), out)
        assert (out == np.minimum(np.arange(N) * 2, 6)).all()
    return func


def behind_a_schedule():
    """The nest of a schedule, and a call behind it: what a scheduled program is handed to."""
    A = te.placeholder((N,), name="A")
    B = te.compute((N,), lambda i: te.exp(A[i]), name="B")
    func = lw.lower(te.create_schedule(B.op), [A, B], name="exp")
    call = tir.call_packed("tutorial.sorted", func.params[1])
    func = func.with_body(tir.stmt_seq(func.body, call))

    @lw.register_func("tutorial.sorted")
    def sort(b):
        b[:] = np.sort(b.numpy())

    a, b = np.random.default_rng(0).random(N, "float32"), np.zeros(N, "float32")
    lw.build(func, target="llvm")(a, b)
    np.testing.assert_allclose(b, np.sort(np.exp(a)), rtol=1e-6)
    print("  ", b.round(2))


def what_goes_wrong(func):
    """What a callback raises comes out where the kernel was called, with its traceback."""

    @lw.register_func("tutorial.watch", override=True)
    def watch(y, i, why):
        raise ValueError(f"y[{i}] is {why}")

    try:
        lw.build(func, target="llvm")(np.arange(N, dtype="float32"), np.zeros(N, "float32"))
    except ValueError as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        print(f"   ValueError: {error} (raised in {last.name}, line {last.lineno})")


def passed_on():
    """A compiled function is a packed function: it can be passed, called back, and registered."""
    A = te.placeholder((N,), name="A")
    B = te.compute((N,), lambda i: A[i] * A[i], name="B")
    square = lw.build(te.create_schedule(B.op), [A, B], "llvm", name="square")["square"]
    assert isinstance(square, PackedFunc)

    @lw.register_func("tutorial.twice")
    def twice(f, a, b):
        f(a, b)
        f(b, a)

    a, b = np.arange(N, dtype="float32"), np.empty(N, "float32")
    lw.get_global_func("tutorial.twice")(square, a, b)
    np.testing.assert_array_equal(a, np.arange(N) ** 4)
    print("  ", a)


def exported(func):
    """An exported library calls the functions of the process that loads it."""
    lw.register_func("tutorial.watch", lambda y, i, why: y.__setitem__(i, -1), override=True)
    with tempfile.TemporaryDirectory() as folder:
        path = lw.build(func, target="llvm").export_library(Path(folder) / "double.so")
        out = np.zeros(N, "float32")
        module = lw.load_module(path)
        module(np.arange(N, dtype="float32"), out)
    print("   it calls", module.metadata["functions"][0]["packed"], "and gives", out)


def main():
    print("1. a function by its name, and the kinds of values that it gets")
    by_name()
    print("\n2. a function that checks its arguments")
    with_types()
    print("\n3. called from a loop that was written by hand")
    func = by_hand()
    print("\n4. called behind the nest of a schedule")
    behind_a_schedule()
    print("\n5. an exception in the callback")
    what_goes_wrong(func)
    print("\n6. a compiled function passed to one of Python")
    passed_on()
    print("\n7. called from an exported library")
    if shutil.which("cc"):
        exported(func)
    else:
        print("   left out: there is no C compiler; apt-get install gcc libc6-dev")


if __name__ == "__main__":
    main()
