"""Default schedules kept on disk: the same as without, found by all that decides them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import SpaceError, TargetError
from loopwright.records import Checked, Record, environment
from loopwright.space import kept, tasks
from loopwright.space.kept import KeptDefaults, kept_defaults, key_of
from loopwright.space.registry import SpaceRule
from loopwright.target import Target
from loopwright.task import SpaceUnion
from tests.unit.space.expressions import CONTRACTIONS, OTHERS, Make

ROOT = Path(__file__).parents[3]
TARGET = "llvm -num-threads=1"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptDefaults:
    """The kept defaults of this test alone."""
    cache = KeptDefaults(tmp_path / "kept")
    monkeypatch.setattr(tasks, "kept_defaults", lambda: cache)
    return cache


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The results of the expressions whose structures are derived."""
    names: list[str] = []
    derive = tasks.structures

    def watched(outputs, args):
        names.append(outputs[0].name)
        return derive(outputs, args)

    monkeypatch.setattr(tasks, "structures", watched)
    return names


def scaled(n: int = 64, factor: float = 2.0, name: str = "Y") -> list[te.Tensor]:
    X = te.placeholder((n,), name="X")
    return [X, te.compute((n,), lambda i: X[i] * factor, name=name)]


def sum_and_maximum() -> list[te.Tensor]:
    X = te.placeholder((5, 40), name="X")
    k, r = te.reduce_axis((0, 40), name="k"), te.reduce_axis((0, 40), name="r")
    total = te.compute((5,), lambda i: te.sum(X[i, k], axis=k), name="total")
    return [X, total, te.compute((5,), lambda i: te.max(X[i, r] * 2, axis=r), name="largest")]


def task_of(tensors: list[te.Tensor], target: str = TARGET) -> lw.Task:
    return lw.create_task(tensors, target=target)


def entry(cache: KeptDefaults) -> Path:
    (path,) = cache.store.folder.iterdir()
    return path


def ran(scheduled: tuple, n: int = 64) -> np.ndarray:
    y = np.empty(n, "float32")
    lw.driver.build(*scheduled, TARGET)(np.arange(n, dtype="float32"), y)
    return y


def same_with_and_without(make: Make, cache: KeptDefaults, derived: list[str]) -> None:
    alone = task_of(make())
    s, args = alone.instantiate(alone.fallback())  # which looks at no file
    assert not list(cache.store.folder.glob("*"))
    first = task_of(make()).default()
    times = len(derived)
    second = task_of(make()).default()
    assert len(derived) == times, "no structure is derived the second time"
    assert s.trace_json() == first[0].trace_json() == second[0].trace_json()
    assert s.trace == second[0].trace
    assert s.arg_ids(args) == second[0].arg_ids(second[1])
    assert str(lw.lower(s, args)) == str(lw.lower(*second))
    entry(cache).unlink()


def test_the_trace_is_the_same_and_no_structure_is_derived_again(cache, derived) -> None:
    for make in (scaled, OTHERS["transposed"][0]):
        same_with_and_without(make, cache, derived)


@pytest.mark.slow  # ranks 25 expressions
@pytest.mark.parametrize("target", [TARGET, "llvm -mcpu=x86-64-v3 -num-threads=8", "opencl"])
def test_kinds_of_expressions(cache, derived, target, monkeypatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "TARGET", target)
    others = {name: make for name, (make, _) in OTHERS.items()}
    for make in (CONTRACTIONS | others | {"two results": sum_and_maximum}).values():
        same_with_and_without(make, cache, derived)


def test_other_names_are_the_same_expression(cache, derived) -> None:
    task_of(scaled()).default()
    assert np.array_equal(ran(task_of(scaled(name="Z")).default()), np.arange(64) * 2)
    assert derived == ["Y"]


def test_all_ways_to_a_default_take_the_kept_trace(cache, derived) -> None:
    task_of(scaled()).default()
    derived.clear()
    lw.build(scaled(), TARGET)
    x = lw.graph.var("x", (64,))
    two = lw.graph.const(2.0)
    lw.graph.compile(lw.graph.IRModule.from_expr(lw.graph.op.multiply(x, two)), TARGET)
    model, count = len(derived), len(list(cache.store.folder.iterdir()))
    lw.graph.compile(lw.graph.IRModule.from_expr(lw.graph.op.multiply(x, two)), TARGET)
    assert (model, count) == (1, 2), "its scalar is a stage, so that it is another expression"
    assert len(derived) == model
    workload = lw.space.Workload("test/kept", scaled)
    with Target(TARGET):
        workload(64)
    assert len(derived) == model


def test_a_record_applies_without_deriving(derived) -> None:
    task = task_of(scaled())
    config = task.config_space.get(0)
    schedule, _ = task.instantiate(config)
    record = Record(
        task=task.alias,
        op=task.name,
        args=[],
        target=task.target.canonical,
        config=config.values,
        times=(1e-6,),
        dag=task.dag_hash,
        trace=schedule.trace_json(),
        space="",
        env=environment(),
        ts=1.0,
        checked=Checked.YES,
    )
    derived.clear()
    with lw.apply_history_best([record]) as history:
        f = lw.build(scaled(), TARGET)
        assert "record" in str(history.report())
    y = np.empty(64, "float32")
    f(np.ones(64, "float32"), y)
    assert (y == 2).all()
    assert not derived


def test_the_space_is_derived_once_for_all_threads(derived) -> None:
    task = task_of(scaled())
    assert (task.flop, derived) == (64, [])
    with ThreadPoolExecutor(4) as pool:
        spaces = list(pool.map(lambda _: task.config_space, range(8)))
    assert len(set(map(id, spaces))) == 1
    assert task.ranking


def test_a_default_chosen_by_hand_is_taken(cache) -> None:
    task = task_of(scaled())
    task.default()
    for index in range(len(task.config_space)):
        task.config_space.set_default(index)
        assert task.default()[0].trace == task.instantiate(index)[0].trace


@pytest.mark.parametrize("damage", ["flip", "half", "empty", "words", "json", "steps", "deep"])
def test_what_does_not_replay_counts_as_missing(cache, derived, damage) -> None:
    expected = task_of(scaled()).default()[0].trace_json()
    path, whole = entry(cache), entry(cache).read_bytes()
    if damage == "flip":
        path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    elif damage in ("half", "empty"):
        path.write_bytes(whole[: len(whole) // 2] if damage == "half" else b"")
    else:  # with a right checksum
        other = {
            "words": b"\xff no JSON",
            "json": b'{"a": [1, null]}',
            "steps": json.dumps([["split", 1, "a7", 4, None], ["no step", 3]]).encode(),
            "deep": b"[" * 100_000,
        }
        cache.store.put(path.stem, other[damage])
    again = task_of(scaled()).default()
    assert again[0].trace_json() == expected
    assert derived == ["Y", "Y"]
    assert path.read_bytes() == whole, "it is kept anew"


@pytest.mark.slow  # replays 100 traces
def test_every_mutation_of_a_trace_replays_or_is_derived(cache, derived) -> None:
    task = task_of(scaled())
    trace = task.default()[0].trace_json()
    strange = (None, True, -1, 10**30, 1.5, "", "a0", [], {}, [[[]]], float("nan"))
    for step, fields in enumerate(trace):
        for place in range(len(fields)):
            for value in strange:
                changed = json.loads(json.dumps(trace))
                changed[step][place] = value
                cache.put(entry(cache).stem, changed)
                fresh = task_of(scaled())
                fresh.config_space = task.config_space  # which is derived already
                fresh.config_space._default = None
                assert fresh.default()[0].dag.hash == task.dag_hash


def test_what_decides_the_default_is_in_the_key(monkeypatch) -> None:
    def keys() -> Iterator[str | None]:
        for target in (TARGET, "llvm -num-threads=2", "llvm -mcpu=x86-64-v2", "c", "opencl"):
            yield task_of(scaled(), target)._key_of_default
        for tensors in (scaled(65), scaled(factor=3.0), [*reversed(scaled())]):
            yield task_of(tensors)._key_of_default

    before = list(keys())
    assert None not in before
    assert before == list(keys())
    assert len(set(before)) == len(before)
    machine = kept.machine_of
    changes: list[tuple[str, Callable]] = [
        ("machine_of", lambda target: replace(machine(target), threads=77)),
        ("_sources", lambda: "an edit"),
        ("__version__", "9.9"),
        ("_FORMAT", 9),
    ]
    for name, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(kept, name, value)
            assert task_of(scaled())._key_of_default not in before
    task = lw.create_task(scaled(), target=TARGET, templates=[])
    assert task._key_of_default == before[0]


def key_with(function: Callable, **options: object) -> str | None:
    rule = SpaceRule("test/rule", function, **options)  # type: ignore[arg-type]
    return key_of("a hash", [(0, 0)], Target(TARGET), [rule])


WIDTH = 4


def helper(n: int) -> int:
    return n + WIDTH


def module_of(source: str, **names: object) -> FunctionType:
    """The function ``rule`` of a source, as a file or a cell of a notebook would define it."""
    scope: dict = {"lw": lw, "__name__": "__main__", **names}
    exec(source, scope)
    return scope["rule"]


SOURCES = [
    "def rule(outputs, args): return None",
    "def rule(outputs, args): return []",
    "def rule(outputs, args, n=1): return None",
    "def rule(outputs, args, n=2): return None",
    "def rule(outputs, args, *, n=1): return None",
    "def rule(outputs, args): return lw.space.Sketch(outputs, args)",
    "def rule(outputs, args): return [lw.space.Sketch(outputs, args) for _ in args]",
    "W = 4\ndef rule(outputs, args): return W",
    "W = 8\ndef rule(outputs, args): return W",
    "W = {'a': (1, 2)}\ndef rule(outputs, args): return W",
    "W = {'a': (1, 3)}\ndef rule(outputs, args): return W",
    "W = 4\ndef rule(outputs, args): return [W for _ in args]",
    "W = 8\ndef rule(outputs, args): return [W for _ in args]",
    "W = 8\ndef rule(outputs, args): return [W in {'a', 'b', 'c'} for _ in args]",
    "def f(n): return n\ndef rule(outputs, args): return f(1)",
    "def f(n): return -n\ndef rule(outputs, args): return f(1)",
    "def f(n): return g(n)\ndef g(n): return f(n)\ndef rule(outputs, args): return f(1)",
    "def f(n): return g(n)\ndef g(n): return f(-n)\ndef rule(outputs, args): return f(1)",
    "def make(n):\n def rule(outputs, args): return n\n return rule\nrule = make(1)",
    "def make(n):\n def rule(outputs, args): return n\n return rule\nrule = make(2)",
    "import functools\ndef f(n, o, a): return n\nrule = functools.partial(f, 1)",
    "import functools\ndef f(n, o, a): return n\nrule = functools.partial(f, 2)",
    "def rule(outputs, args):\n import math\n return math.pi",
]


def test_another_rule_is_another_key() -> None:
    keys = [key_with(module_of(source)) for source in SOURCES]
    assert None not in keys
    assert keys == [key_with(module_of(source)) for source in SOURCES]
    assert len(set(keys)) == len(keys)
    function = module_of(SOURCES[0])
    settings = [{}, {"priority": 3}, {"stops": True}, {"one_result": True}, {"scope": "kernel"}]
    assert len({key_with(function, **one) for one in settings}) == len(settings)
    assert key_of("a hash", [(0, 0)], Target(TARGET), []) not in keys
    assert key_with(helper) != key_with(replace_global(helper, WIDTH=5))


def replace_global(function: FunctionType, **names: object) -> FunctionType:
    return FunctionType(function.__code__, {**function.__globals__, **names})


class Rule:
    def __call__(self, outputs: object, args: object) -> None: ...


ENDLESS: list = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    "function",
    [
        Rule(),
        Rule().__call__,
        module_of("def rule(o, a): return x", x=object()),
        module_of("def rule(o, a): return x", x=np.zeros(3)),
        module_of("def rule(o, a): return x", x=sys.modules["pytest"]),
        module_of("def rule(o, a): return x", x=Rule),
        module_of("def rule(o, a): return x", x=ENDLESS),
        module_of("def rule(o, a):\n from pytest import mark\n return mark"),
        module_of("def make():\n def rule(o, a): return n\n return rule\n n = 1\nrule = make()"),
        partial(helper, Rule()),
    ],
)
def test_what_cannot_be_looked_into_is_not_kept(function) -> None:
    assert key_with(function) is None


def test_rules_of_users_are_asked_at_once_and_change_what_is_kept(cache, derived) -> None:
    plain = task_of(scaled()).default()[0].trace_json()

    def threads(parts: int, make: Callable = lw.space.Sketch) -> Callable:
        def rule(outputs, args):
            sketch = make(outputs, args)
            sketch.s[outputs[0]].split(outputs[0].op.axis[0], nparts=parts)
            return sketch.finished(f"{parts} parts")

        return rule

    def wrong(outputs, args):
        raise RuntimeError("no")

    for parts in (2, 4, 2):
        lw.space_rule("test/parts", stops=True)(threads(parts))
        task = task_of(scaled())
        lw.space.remove_rule("test/parts")
        assert task.default()[0].trace_json() == [["split", 1, "a0", None, parts]]
        assert [part.name for part in task.structures] == [f"{parts} parts"]
    assert len(list(cache.store.folder.iterdir())) == 3
    lw.space_rule("test/parts")(wrong)
    try:
        with pytest.raises(SpaceError, match=r"'test/parts'.*RuntimeError: no"):
            task_of(scaled())
    finally:
        lw.space.remove_rule("test/parts")
    derived.clear()
    assert task_of(scaled()).default()[0].trace_json() == plain
    assert not derived


def test_a_rule_that_comes_after_the_task_is_in_the_key(cache) -> None:
    plain = task_of(scaled()).instantiate(task_of(scaled()).fallback())[0].trace_json()
    task = task_of(scaled())

    @lw.space_rule("test/later", stops=True)
    def later(outputs, args):
        sketch = lw.space.Sketch(outputs, args)
        sketch.s[outputs[0]].split(outputs[0].op.axis[0], nparts=2)
        return sketch.finished("later")

    try:
        assert task.default()[0].trace_json() == [["split", 1, "a0", None, 2]]
    finally:
        lw.space.remove_rule("test/later")
    assert task_of(scaled()).default()[0].trace_json() == plain


def test_a_space_that_was_set_or_ranked_before_is_not_kept(cache) -> None:
    task = task_of(scaled())
    part = task.structures[-1]
    task.config_space = SpaceUnion([part])
    expected, _ = part.instantiate(part.config_space.get(part.config_space.default_index))
    assert task.default()[0].trace_json() == expected.trace_json()
    ranked = task_of(scaled())
    assert ranked.ranking  # by the number of threads of then
    ranked.default()
    assert not cache.store.folder.exists()


def test_errors_come_where_the_task_is_made(monkeypatch) -> None:
    monkeypatch.setattr("loopwright.space.derivation.rules_for", lambda keys: [])
    with pytest.raises(TargetError, match="no rule knows structures for the target llvm"):
        task_of(scaled())


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_read(cache, caplog, derived) -> None:
    expected = task_of(scaled()).default()[0].trace
    cache.store.folder.chmod(0o500)
    try:
        assert task_of(scaled()).default()[0].trace == expected
        assert derived == ["Y"], "what is there is read"
        assert task_of(scaled(32)).default()[0].trace
        assert len(caplog.messages) == 1
        assert "default schedules cannot be kept in" in caplog.text
    finally:
        cache.store.folder.chmod(0o700)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_that_others_may_write_to_is_not_used(cache, caplog, derived) -> None:
    expected = task_of(scaled()).default()[0].trace
    cache.store.folder.chmod(0o777)
    for _ in range(2):
        assert task_of(scaled()).default()[0].trace == expected
    assert derived == ["Y", "Y", "Y"]
    assert len(caplog.messages) == 1
    assert "default schedules" in caplog.text
    assert "others may write to it" in caplog.text


def test_a_full_disk_costs_a_sentence(cache, caplog, monkeypatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("loopwright.runtime.caches.replaced", full)
    assert task_of(scaled()).default()[0].trace == task_of(scaled()).default()[0].trace
    assert caplog.messages == [
        f"default schedules cannot be kept in {cache.store.folder}: No space left on device"
    ]


def test_it_is_bounded(tmp_path) -> None:
    cache = KeptDefaults(tmp_path / "kept", limit=10_000)
    for n in range(100):
        cache.put(f"key{n}", [["annotate", 1, "a0", "vectorized"]] * 10)
    assert sum(path.stat().st_size for path in cache.store.folder.iterdir()) <= 11_500
    assert cache.get("key99") is not None
    assert cache.get("key0") is None


def test_it_is_switched_off_with_the_cache() -> None:
    assert kept_defaults() is None, "tests run with LOOPWRIGHT_CACHE=0"
    assert task_of(scaled()).default()


PROCESS = """
import sys
import loopwright as lw
from loopwright import te
from loopwright.space import tasks
derived, derive = [], tasks.structures
tasks.structures = lambda *args: derived.append(1) or derive(*args)
for n in range(16, 16 + 4 * 40, 4):
    X = te.placeholder((n,), name="X")
    lw.build([X, te.compute((n,), lambda i: X[i] * 2, name="Y")], "llvm -num-threads=1")
print(len(derived))
"""


@pytest.mark.slow  # starts seven processes
def test_processes_share_a_folder_and_one_is_killed(tmp_path) -> None:
    environ = {**os.environ, "LOOPWRIGHT_CACHE": str(tmp_path / "c"), "PYTHONPATH": str(ROOT)}
    start = partial(
        subprocess.Popen,
        [sys.executable, "-c", PROCESS],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    workers = [start() for _ in range(4)]
    while not list((tmp_path / "c").glob("*.default")):
        assert workers[0].poll() is None
    workers[0].kill()
    outputs = [worker.communicate(timeout=240)[0] for worker in workers]
    assert [worker.returncode for worker in workers[1:]] == [0, 0, 0]
    assert all(int(out) <= 40 for out in outputs[1:])
    assert start().communicate(timeout=240)[0] == "0\n"
    machine = start(env={**environ, "LOOPWRIGHT_NUM_THREADS": "1", "LOOPWRIGHT_CACHE": "0"})
    assert machine.communicate(timeout=240)[0] == "40\n"
    assert len(list((tmp_path / "c").glob("*.default"))) == 40
