from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from loopwright.task import TASKS, clear_fallback_cache

_spec = importlib.util.spec_from_file_location("fakes", Path(__file__).with_name("fakes.py"))
_fakes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fakes)


@pytest.fixture
def fakes():
    return _fakes


@pytest.fixture(autouse=True)
def registry():
    """Templates of one test are gone in the next, and everything is said again."""
    before = dict(TASKS)
    clear_fallback_cache()
    yield TASKS
    TASKS.clear()
    TASKS.update(before)


@pytest.fixture
def default_target():
    """What a template that is called directly is built for."""
    with _fakes.Target() as target:
        yield target
