"""The target in force: contexts nest, are left by errors, and belong to their thread."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from loopwright.target import Target


def test_contexts_nest() -> None:
    a, b = Target("llvm -num-threads=1"), Target("llvm -num-threads=2")
    assert Target.current() == Target("llvm")
    with a as entered:
        assert entered is a
        assert Target.current() is a
        with b:
            assert Target.current() is b
            with a:
                assert Target.current() is a
            assert Target.current() is b
        assert Target.current() is a
    assert Target.current() == Target("llvm")


def test_a_context_is_left_by_an_error_too() -> None:
    with pytest.raises(KeyError), Target("llvm -num-threads=1"):
        raise KeyError
    assert Target.current() == Target("llvm")


def test_a_context_is_that_of_its_thread() -> None:
    """One target, entered by two threads that leave it in another order than they came."""
    t = Target("llvm -num-threads=1")
    inside, leave = threading.Event(), threading.Event()
    seen: list[Any] = []

    def other() -> None:
        seen.append(Target.current())
        with t:
            inside.set()
            leave.wait(10)
            seen.append(Target.current())
        seen.append(Target.current())

    thread = threading.Thread(target=other)
    with t:
        thread.start()
        assert inside.wait(10)
    assert Target.current() == Target("llvm")
    leave.set()
    thread.join(10)
    assert seen == [Target("llvm"), t, Target("llvm")]
    assert seen[1] is t
