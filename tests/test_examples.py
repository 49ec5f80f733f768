"""Every public callable has an example in its docstring, and every example is true.

An example is a block ``Example:`` in doctest form. It may use ``lw``, ``te`` and ``np`` without
importing them, runs in an empty folder, and prints what it says.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import loopwright as lw

#: Modules whose `__all__` is what users schedule, tune, build and inspect with.
ROOMS = """
    te schedule lowering transform target driver runtime task measure tuner tuner.run.callbacks
    records ops inspection testing autotvm autotvm.record
""".split()

#: Classes that users hold: each of their methods needs an example, too.
HELD = """
    te.BufferView te.Dag te.IRBuilder te.Operation te.Tensor te.TensorIntrin
    schedule.Schedule schedule.Stage schedule.surface.group.Group
    target.Target transform.PassContext
    runtime.Module runtime.Function runtime.NDArray runtime.Device runtime.Artifact
    task.ApplyHistoryBest task.ConfigSpace task.Task
    measure.LocalRunner measure.MeasuredSpace measure.Measurer
    tuner.Tuner tuner.Summary
    records.Log records.Ranking records.Record records.Store
""".split()

#: Public names that are no tools of a user, by the reason why they need no example.
EXEMPT = {}


def public() -> dict[str, object]:
    """Every public callable by its name below `loopwright`, each object once."""
    found: dict[str, object] = {}
    for room in ROOMS:
        module = importlib.import_module(f"loopwright.{room}")
        for name in getattr(module, "__all__", own_names(module)):
            thing = getattr(module, name)
            if callable(thing) and not any(thing is other for other in found.values()):
                found[f"{room}.{name}"] = thing
    for name in HELD:
        module, _, attribute = name.rpartition(".")
        cls = getattr(importlib.import_module(f"loopwright.{module}"), attribute)
        found.setdefault(name, cls)
        found |= {f"{name}.{method}": f for method, f in methods(cls)}
    return found


def own_names(module: ModuleType) -> list[str]:
    """The public names that a module without `__all__` defines itself."""
    own = {n: x for n, x in vars(module).items() if not n.startswith("_")}
    return [n for n, x in own.items() if getattr(x, "__module__", "") == module.__name__]


def methods(cls: type) -> Iterator[tuple[str, object]]:
    """The public methods of a class, with those that it inherits from classes of ours."""
    for name in dir(cls):
        raw = inspect.getattr_static(cls, name)
        function = getattr(raw, "__func__", raw)  # of a class method or a static one
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        if function.__module__.startswith("loopwright."):
            yield name, function


PUBLIC = public()


def documentation(thing: object) -> str:
    """Its own docstring, not that of its base class or of its type."""
    doc = getattr(thing, "__doc__", None)
    return inspect.cleandoc(doc) if doc else ""


def has_example(thing: object) -> bool:
    return "Example:\n" in documentation(thing)


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if has_example(thing)])
def test_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = documentation(PUBLIC[name]).partition("Example:\n")[2]
    names = {"lw": lw, "te": lw.te, "np": np}
    test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    assert test.examples, "an example in words is none"
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)


def test_every_public_callable_has_an_example() -> None:
    missing = [n for n, thing in PUBLIC.items() if not has_example(thing) and n not in EXEMPT]
    assert not missing, f"{len(missing)} of {len(PUBLIC)} need one"


def test_exceptions_are_few_and_true() -> None:
    assert set(EXEMPT) <= set(PUBLIC)
    assert not [name for name in EXEMPT if has_example(PUBLIC[name])]
    assert len(EXEMPT) < len(PUBLIC) / 5
