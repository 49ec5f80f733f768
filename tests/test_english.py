"""Docstrings begin as an engineer of the field expects; exported names have one."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter
from pathlib import Path

import loopwright
from benchmarks.structure import FACADES
from tests.sources import read

ROOT = Path(__file__).parent.parent / "loopwright"
OPENERS = re.compile(r"(What|Which|Those|Where|How|By|Of)\b")
ROOMS = [path.parent.name for path in sorted(ROOT.glob("*/__init__.py"))]


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in ROOT.rglob("*.py")
        for line, text in read(path).docstrings
        if OPENERS.match(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_exported_names_have_docstrings() -> None:
    missing = []
    for room in ROOMS:
        module = importlib.import_module(f"{loopwright.__name__}.{room}")
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            ours = (getattr(thing, "__module__", "") or "").startswith(loopwright.__name__)
            text = inspect.getdoc(thing) or ""
            if callable(thing) and ours and (not text or text.startswith(f"{name}(")):
                missing.append(f"{room}.{name}")
    assert not missing, missing


#: Participles that say of an argument only that somebody had it before.
PARTICIPLES = {"found", "given", "known", "made", "told"}
#: Arguments that users may name: `records.compared`.
NAMED_BY_USERS = {("records/verdict.py", "known")}


def test_arguments_are_nouns_of_the_thing() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in ROOT.rglob("*.py")
        for line, name in read(path).arguments
        if name in PARTICIPLES and (path.relative_to(ROOT).as_posix(), name) not in NAMED_BY_USERS
    ]
    assert not wrong, "\n".join(wrong)


#: Class names that stand in several rooms, and why.
TWINS = {
    "nodes of both IRs, as in TVM": "Call Expr Function If Let Tuple Var",
    "documented names": "Match Prefetch Program Report State Step Store",
    "words of the field, in rooms that never meet": "Kernel Node Value",
}


def test_a_class_name_stands_once() -> None:
    files = [*ROOT.rglob("*.py"), *(ROOT.parent / "fuzzing").rglob("*.py")]
    ours = [path for path in files if path.relative_to(ROOT.parent).parts[1] not in FACADES]
    places = Counter(name for path in ours for name in read(path).classes)
    assert {name for name, n in places.items() if n > 1} == set(" ".join(TWINS.values()).split())
