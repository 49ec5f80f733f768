"""The outline of a nest has the loops of the printed program, each statement inside of its own."""

from __future__ import annotations

import re

import pytest

import loopwright as lw
from loopwright import te
from loopwright.inspection.emission import outline
from loopwright.ir import Func

LOOP = re.compile(r"for (\S+) in (\w+)\((\d+)\)")
STORE = re.compile(r"([\w.]+)\[.*\] = ")


def paths_of_program(func: Func) -> list[tuple[str, ...]]:
    """Each statement of the printed program with the loops around it, told from indentation; their
    numbers, by which printing tells names apart, are left out."""
    found, open_loops = [], []
    for line in str(func).splitlines()[1:]:
        depth = len(line) - len(line.lstrip())
        open_loops = [(d, text) for d, text in open_loops if d < depth]
        if loop := LOOP.search(line):
            name, kind, extent = loop.groups()
            mark = "" if kind == "range" else f" {kind}"
            open_loops.append((depth, f"{plain(name)} {extent}{mark}"))
        elif store := STORE.match(line.strip()):
            found.append((*(text for _, text in open_loops), plain(store[1])))
    return found


def paths_of_outline(text: str) -> list[tuple[str, ...]]:
    """The same, of an outline."""
    found, heads = [], []
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip())
        heads = [(d, loops) for d, loops in heads if d < depth]
        name, colon, loops = line.strip().rpartition(": ")
        around = [loop for _, head in heads for loop in head]
        if colon:
            found.append((*map(plain, (*around, *loops.split(", "), name)),))
        elif not line.strip().startswith(("if ", "else")):  # what the last tile has is no loop
            heads.append((depth, line.strip().split(", ")))
    return found


def plain(name: str) -> str:
    """A name without the number behind it."""
    return re.sub(r"_\d+\b", "", name)


def product(m: int, n: int, k: int) -> list[te.Tensor]:
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    return [A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")]


@pytest.mark.parametrize("number", range(0, 12, 3))
def test_every_statement_stands_in_its_loops(number: int) -> None:
    task = lw.create_task(product(64, 64, 64), target="llvm -mcpu=x86-64-v3")
    space = task.structures[number].config_space
    func = lw.lower(*task.structures[number].instantiate(space.get(space.default_index)))
    expected = list(dict.fromkeys(paths_of_program(func)))  # edges have the loops of whole tiles
    assert len(expected) >= 3
    assert list(dict.fromkeys(paths_of_outline(outline(func)))) == expected


def test_whole_tiles_and_edges_are_one_line() -> None:
    (A, B, C) = product(30, 30, 8)
    s = te.create_schedule(C.op)
    io, jo, ii, ji = s[C].tile(*C.op.axis, 4, 8)
    s[C].reorder(io, jo, *C.op.reduce_axis, ii, ji)
    s[C].vectorize(ji)
    func = lw.lower(s, [A, B, C])
    assert str(func).count("for j.1") == 4, "of whole tiles and of edges: cleared, and summed"
    assert outline(func) == (
        "i.0 8, j.0 4\n  C: i.1 4, j.1 8 vectorized\n  C: r 8, i.1 4, j.1 8 vectorized"
    )


def test_branches_that_differ_are_both_shown() -> None:
    ib = lw.tir.ir_builder.create()

    def body(inputs: list[object], outputs: list[object]) -> object:
        x, y = ib.buffer_ptr(inputs[0]), ib.buffer_ptr(outputs[0])
        with ib.for_range(0, 4, "i") as i:
            with ib.if_scope(x[i] > 1.0):
                y[i] = x[i]
            with ib.else_scope(), ib.for_range(0, 3, "j"):
                y[i] = y[i] + x[i]
        return ib.get()

    x, y = (lw.tir.decl_buffer((4,), "float32", name) for name in "xy")
    func = lw.tir.prim_func(body, [x], [y], "f")
    assert outline(func) == "i 4, if x[i] > 1.0\n  y\nelse\n  y: j 3"


def test_threads_of_a_kernel_have_their_names() -> None:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    block, thread = s[B].split(B.op.axis[0], factor=16)
    s[B].bind(block, te.thread_axis("blockIdx.x"))
    s[B].bind(thread, te.thread_axis("threadIdx.x"))
    assert outline(lw.lower(s, [A, B])) == "B: blockIdx.x 4, threadIdx.x 16"
