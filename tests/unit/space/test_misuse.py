"""What strangers get wrong with tensors, efforts and rules is said in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import LoopwrightError, SpaceError
from loopwright.space.registry import RULES
from loopwright.te import Tensor, create_schedule


def plus() -> list[Tensor]:
    A = te.placeholder((64,), name="A")
    return [A, te.compute((64,), lambda i: A[i] + 1, name="B")]


def plus_of(n: int) -> list[Tensor]:
    A = te.placeholder((n,), name="A")
    return [A, te.compute((n,), lambda i: A[i] + 1, name="B")]


@pytest.fixture(autouse=True)
def rules() -> Iterator[None]:
    known = dict(RULES)
    yield
    RULES.clear()
    RULES.update(known)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: lw.auto_schedule((create_schedule(plus()[1].op), plus())), "expected tensors"),
        (lambda: lw.auto_schedule([], effort="draft"), "nothing is computed"),
        (lambda: lw.auto_schedule(plus(), effort="qick"), "did you mean 'quick'"),
        (lambda: lw.auto_schedule(plus(), effort=3), "unknown effort 3; there are draft, quick"),
        (lambda: lw.auto_schedule(plus(), effort=None), "unknown effort None"),
        (lambda: lw.create_task(plus_of, 4), "arguments are given as a tuple, got 4"),
        (lambda: lw.create_task(plus_of, "4"), "arguments are given as a tuple, got '4'"),
        (lambda: lw.create_task([None, plus()[1]]), "expected tensors .*, got None"),
        (lambda: lw.auto_schedule(plus(), verbose="yes"), "verbose is True, False or None"),
        (lambda: lw.build(plus_of), r"'plus_of' is a function; .* lw\.build\(plus_of\(\.\.\.\)\)"),
        (lambda: lw.build(plus()[1].op), r"is an operation; .* B\.op\.output\(0\)"),
        (lambda: lw.build(lw.create_task(plus(), target="llvm"), "c"), "is a task for llvm"),
        (lambda: lw.space_rule(lambda outputs, args: None), r"write @loopwright\.space_rule\("),
    ],
)
def test_it_is_said_in_one_line(call: Callable[[], object], text: str) -> None:
    with pytest.raises(LoopwrightError, match=text) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_a_family_of_targets_may_be_given_alone() -> None:
    asked = []
    lw.space_rule("misuse/watch", targets="cpu")(lambda outputs, args: asked.append(outputs))
    lw.create_task(plus_of, (64,), "llvm")
    assert asked


def test_a_rule_that_asks_a_knob_for_its_value_is_told_what_to_do() -> None:
    @lw.space_rule("misuse/asks")
    def asks(outputs: list[Tensor], args: list[Tensor]) -> None:
        sketch = lw.space.Sketch(outputs, args)
        if sketch.number("width", [4, 8]) > 4:
            sketch.why.append("wide")

    with pytest.raises(SpaceError, match=r"'misuse/asks' .* asks for the value of a knob"):
        lw.create_task(plus_of, (64,), "llvm")
