"""Options: AutoTVM's names and meanings, and clear refusals."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from loopwright.errors import UsageError
from loopwright.measure import LocalBuilder, LocalRunner, MeasureOption, measure_option


def test_local_stands_for_the_defaults() -> None:
    expected = MeasureOption(LocalBuilder(), LocalRunner())
    assert measure_option() == measure_option("local", "local") == expected


def test_options_are_frozen_values() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        LocalRunner().timeout = 3  # type: ignore[misc]
    assert LocalBuilder(timeout=3) == LocalBuilder(3.0)


@pytest.mark.parametrize("value", ["lokal", "rpc", 3, None, LocalBuilder])
def test_unknown_builder_or_runner(value: Any) -> None:
    with pytest.raises(UsageError, match="builder must be"):
        measure_option(builder=value)
    with pytest.raises(UsageError, match="runner must be"):
        measure_option(runner=value)


def test_swapped_arguments() -> None:
    runner: Any = LocalRunner()
    with pytest.raises(UsageError, match=r"builder must be .* LocalRunner\("):
        measure_option(builder=runner)


@pytest.mark.parametrize(
    "bad",
    [
        {"timeout": 0},
        {"timeout": "10"},
        {"n_parallel": 0},
        {"n_parallel": 1.5},
        {"n_parallel": True},
        {"build_func": "ndk"},
        {"build_func": print},
        {"memory_bytes": -1},
    ],
)
def test_bad_builder_options(bad: dict[str, Any]) -> None:
    (name,) = bad
    with pytest.raises(UsageError, match=f"LocalBuilder: {name}"):
        LocalBuilder(**bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"timeout": -1},
        {"timeout": float("nan")},
        {"number": 0},
        {"repeat": 0},
        {"min_repeat_ms": -1},
        {"cooldown_interval": -0.1},
        {"seed": -1},
    ],
)
def test_bad_runner_options(bad: dict[str, Any]) -> None:
    (name,) = bad
    with pytest.raises(UsageError, match=f"LocalRunner: {name}"):
        LocalRunner(**bad)


def test_one_explicit_count_brings_autotvm_defaults_for_the_others() -> None:
    assert LocalRunner().windows
    assert not LocalRunner(number=10).windows
    assert LocalRunner(number=10).counts == (10, 3, 0.0)
    assert LocalRunner(min_repeat_ms=0).counts == (4, 3, 0.0)
    assert not LocalRunner(min_repeat_ms=0).windows


def test_memory_is_shared_among_builders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopwright.measure.options.machine_memory", lambda: 64 << 30)
    assert LocalBuilder(n_parallel=4).memory_limit == 8 << 30
    assert LocalBuilder(n_parallel=64).memory_limit == 1 << 30
    assert LocalRunner().memory_limit == 32 << 30
    assert LocalRunner(memory_bytes=5).memory_limit == 5


def test_arguments_of_autotvm_are_accepted_with_their_defaults() -> None:
    builder = LocalBuilder(timeout=3, build_kwargs=None, do_fork=False, runtime=None)
    assert builder == LocalBuilder(timeout=3) == LocalBuilder(timeout=3, do_fork=True)
    assert LocalRunner(number=2, module_loader=None) == LocalRunner(number=2)
    assert LocalRunner(module_loader="default") == LocalRunner()
    assert LocalBuilder(build_func="tar") == LocalBuilder(build_func="default") == LocalBuilder()
    assert dataclasses.replace(builder, timeout=4) == LocalBuilder(timeout=4)
    by_place = [f.name for f in dataclasses.fields(LocalRunner) if not f.kw_only]
    assert by_place[-1] == "seed"


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (LocalBuilder, "build_kwargs", {"x": 1}),
        (LocalBuilder, "runtime", "crt"),
    ],
)
def test_other_values_are_refused_with_the_reason(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"{kind.__name__}: {name}=.* is not supported: \w+ .*"):
        kind(**{name: value})


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda f: LocalBuilder(build_func=f),
            "LocalBuilder: build_func is 'default' or 'tar', not {}: builders are other processes, "
            "which get data and never import a script (docs/adr/018, 019); choose the compiler by "
            "the target, such as target='c'",
        ),
        (
            lambda f: LocalRunner(module_loader=f),
            "LocalRunner: module_loader is 'default', not {}: the runner is another process, which "
            "links what builders send it and never imports a script (docs/adr/018, 019); leave it "
            "out",
        ),
    ],
)
def test_functions_for_other_processes_are_refused_with_the_reason(make: Any, text: str) -> None:
    for given, said in ((print, "a function"), ("ndk", "'ndk'"), (7, "7")):
        with pytest.raises(UsageError, match=f"^{re.escape(text.format(said))}$"):
            make(given)
