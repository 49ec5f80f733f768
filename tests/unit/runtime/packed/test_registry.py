"""Functions by name: entered, found, replaced, taken away, from many threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import loopwright as lw
from loopwright.errors import ArgumentError, UsageError
from loopwright.runtime import (
    PackedFunc,
    get_global_func,
    list_global_func_names,
    register_func,
    remove_global_func,
)
from tests.unit.runtime import kernels


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    before = set(list_global_func_names())
    yield
    for name in set(list_global_func_names()) - before:
        remove_global_func(name)


def test_a_function_is_found_by_its_name() -> None:
    def double(x: int) -> int:
        return 2 * x

    assert register_func("tests.double", double) is double
    found = lw.get_global_func("tests.double")
    assert isinstance(found, PackedFunc)
    assert found(4) == 8
    assert found.name == "tests.double"
    assert "tests.double" in list_global_func_names()


def test_decorators_with_a_name_and_without() -> None:
    @lw.register_func("tests.named")
    def named() -> str:
        return "n"

    @lw.register_func
    def tests_plain() -> str:
        return "p"

    assert named() == get_global_func("tests.named")() == "n"
    assert tests_plain() == get_global_func("tests_plain")() == "p"


def test_a_function_of_a_module_gives_its_own_name() -> None:
    kernel = kernels.add_one()["add_one"]
    register_func(kernel)
    assert get_global_func("add_one") is kernel
    with pytest.raises(UsageError, match="'<lambda>' is no name of a global function"):
        register_func(lambda: 1)


def test_a_name_is_taken_once_unless_it_is_said() -> None:
    register_func("tests.f", lambda: 1)
    held = get_global_func("tests.f")
    with pytest.raises(UsageError, match=r"'tests.f' already.*override=True"):
        register_func("tests.f", lambda: 2)
    assert get_global_func("tests.f")() == 1
    register_func("tests.f", lambda: 2, override=True)
    assert get_global_func("tests.f")() == 2
    assert held() == 1, "who holds a function keeps it"


def test_what_is_not_there_names_the_nearest() -> None:
    register_func("tests.double", lambda: 1)
    with pytest.raises(UsageError, match=r"'tests.duoble' \(did you mean 'tests.double'\?\)"):
        get_global_func("tests.duoble")
    assert get_global_func("tests.duoble", allow_missing=True) is None
    with pytest.raises(UsageError, match=r"remove_global_func.*did you mean 'tests.double'"):
        remove_global_func("tests.duoble")


def test_removed_is_gone() -> None:
    register_func("tests.gone", lambda: 1)
    remove_global_func("tests.gone")
    assert get_global_func("tests.gone", allow_missing=True) is None
    assert "tests.gone" not in list_global_func_names()


@pytest.mark.parametrize("name", ["", "a b", "1a", "a..b", "é", "a\0b", "a" * 300, None])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UsageError, match="no name of a global function"):
        register_func(name, lambda: 1)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(ArgumentError, match="expected a function, got 3"):
        register_func("tests.three", 3)  # type: ignore[type-var]


def test_of_many_threads_one_takes_a_name() -> None:
    start, won = threading.Barrier(8), []

    def claim(k: int) -> None:
        start.wait()
        for n in range(50):
            try:
                register_func(f"tests.race{n}", lambda k=k: k)
            except UsageError:
                continue
            won.append((n, k))

    threads = [threading.Thread(target=claim, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(n for n, _ in won) == list(range(50))
    assert all(get_global_func(f"tests.race{n}")() == k for n, k in won)
