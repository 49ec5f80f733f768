"""Slightly broken models, graphs, programs, logs and artifacts: read or refused, and nothing else.

``make fuzz-inputs`` takes many more, and the cases that come with the package onnx among them.
"""

from __future__ import annotations

import random

import pytest

from fuzzing import fuzz, inputs
from fuzzing.random.damage import damaged_json
from fuzzing.random.expr import Draw

#: By day, of each kind.
COUNT = 6


@pytest.mark.parametrize("kind", [kind for kind in inputs.KINDS if kind != "nodes"])
def test_inputs_are_read_or_refused(kind: str) -> None:
    run = fuzz.Fuzz()
    run.run_all(range(COUNT), kind)
    assert not run.failures, run.summary()
    assert sum(run.ends.values()) == COUNT


@pytest.mark.slow  # thousands of inputs, half a minute
@pytest.mark.parametrize("kind", inputs.KINDS)
def test_many_inputs_are_read_or_refused(kind: str) -> None:
    run = fuzz.Fuzz()
    run.run_all(range(100, 500), kind)
    assert not run.failures, run.summary()
    assert run.ends[kind, "taken"] > 20
    assert run.ends[kind, "refused"] > 100


def test_a_seed_decides_the_damage() -> None:
    data = {"a": [1, 2.5, {"b": "text"}], "c": None}
    first, second = (damaged_json(Draw.random(random.Random(7)), data) for _ in range(2))
    assert first == second
    assert data == {"a": [1, 2.5, {"b": "text"}], "c": None}


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda: 1 // 0, "ZeroDivisionError"),
        (lambda: bytes(200 << 20), "AssertionError: '200 MiB are taken for an input of 9 bytes"),
    ],
)
def test_other_ends_are_failures(read: object, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(inputs.KINDS, "graphs", lambda _: inputs.Input(9, read))
    monkeypatch.setattr(inputs, "_warm_up", lambda _: None)
    run = fuzz.Fuzz()
    assert not run.run(3, "graphs")
    assert run.failures[0].startswith("seed 3 (graphs): ")
    assert text in run.failures[0]
