"""One expression: derived, tuned, built, compared with the answer in float64, and timed in turns
with other libraries."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import loopwright as lw
from benchmarks.expressions.cases import Expression
from benchmarks.expressions.peers import Peer, PeerError
from benchmarks.expressions.sides import numpy_calls
from benchmarks.expressions.sides.side import sample
from loopwright import dtypes
from loopwright.runtime import pinned
from loopwright.task import Task
from loopwright.tuner import DEFAULT_TUNER, find_tuner

Array = npt.NDArray[Any]
#: Rounds in which all ways take turns; and the seconds that one of them may take of them.
ROUNDS, PATIENCE_S = 7, 2.0
#: Ways to call ours, in the order of the table.
OURS = ("default", "tuned")
#: Ways to call the other libraries.
PEERS = ("numpy", "torch", "compiled")


def row(
    e: Expression, peers: Sequence[Peer], trials: int, threads: int, seed: int = 0
) -> dict[str, Any]:
    """Measure one expression.

    Args:
        e: the expression.
        peers: libraries that are still alive.
        trials: valid records of the search; 0: none, and no best.
        threads: of all.
        seed: of the tuner.

    Returns:
        A row of the table: ``seconds`` and ``errors`` by way, ``wrong`` ways, ``problems`` of ways
        that cannot be called, and what the search was like.
    """
    tensors = e.tensors()
    inputs = e.inputs(tensors)
    right = numpy_calls.call(e.call)(*map(exact, inputs))
    found: dict[str, Any] = {"what": e.name, "one_call": e.one_call, "problems": {}}
    task = _derived(tensors, threads, found)
    configs = {"default": task.config(task.config_space.default_index)}
    if trials:
        configs["tuned"] = _best(task, trials, seed, found)
    found["chosen"] = {way: str(config) for way, config in configs.items()}
    arrays = [lw.nd.array(x) for x in (*inputs, np.zeros(right.shape, _dtype(tensors[-1])))]
    calls, errors = {}, {}
    for way, config in configs.items():
        calls[way] = _call(task, config, arrays)
        calls[way]()
        errors[way] = error_of(arrays[-1].numpy(), right)
    errors |= _asked(e, peers, inputs, right, found["problems"])
    with pinned(threads):
        found["seconds"] = _in_turns(calls, peers, [w for w in PEERS if w in errors])
    found["errors"] = errors
    found["wrong"] = sorted(way for way, error in errors.items() if not error <= e.tolerance)
    return found


def prepared(e: Expression, peers: Sequence[Peer]) -> tuple[dict[str, float], dict[str, str]]:
    """Have the libraries call an expression once; errors by way, and problems."""
    inputs, problems = e.inputs(e.tensors()), dict[str, str]()
    right = numpy_calls.call(e.call)(*map(exact, inputs))
    return _asked(e, peers, inputs, right, problems), problems


def _dtype(t: Any) -> np.dtype[Any]:
    return np.dtype(dtypes.check(t.dtype))


def _derived(tensors: Sequence[Any], threads: int, found: dict[str, Any]) -> Task:
    """The task of an expression; what its space is, and took, is entered."""
    begin = time.perf_counter()
    task = lw.create_task(list(tensors), target=f"llvm -num-threads={threads}")
    derived = time.perf_counter()
    found["structures"] = len(task.structures)  # type: ignore[attr-defined]
    found["points"] = task.config_space.range_length
    found["default_index"] = task.config_space.default_index
    found |= {"derive_s": derived - begin, "rank_s": time.perf_counter() - derived}
    return task


def exact(x: Array) -> Array:
    """An input of the answer that all are compared with."""
    is_float = not np.issubdtype(x.dtype, np.integer)
    return x.astype("float64") if is_float else x


def _call(task: Task, config: Any, arrays: Sequence[Any]) -> Callable[[], object]:
    f = lw.build(*task.instantiate(config), task.target, name="f").get_function("f")
    return lambda: f(*arrays)


def error_of(answer: Array, right: Array) -> float:
    """The largest difference of two answers, relative to the largest element of the right one; of
    answers of different shapes, and of those that are no numbers, infinity."""
    if answer.shape != right.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        error = float(np.max(np.abs(answer.astype("float64") - right)) / np.max(np.abs(right)))
    return error if error == error else float("inf")


def _best(task: Task, trials: int, seed: int, found: dict[str, Any]) -> Any:
    """The best configuration of a search; what it took is entered."""
    begin = time.perf_counter()
    summary = find_tuner(DEFAULT_TUNER)(task, seed=seed).tune(n_trial=trials)
    found["tune_s"] = time.perf_counter() - begin
    found["measured"] = summary.measured
    found["failures"] = {kind: f.count for kind, f in summary.failures.items()}
    assert summary.best_config is not None, "a run without a result raises"
    return summary.best_config


def _asked(
    e: Expression,
    peers: Sequence[Peer],
    inputs: Sequence[Array],
    right: Array,
    problems: dict[str, str],
) -> dict[str, float]:
    """Have all libraries prepare an expression; errors of their answers by way."""
    errors: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for peer in peers:
            errors |= _opened(peer, e, inputs, right, Path(folder), problems)
    return errors


def _opened(
    peer: Peer,
    e: Expression,
    inputs: Sequence[Array],
    right: Array,
    folder: Path,
    problems: dict[str, str],
) -> dict[str, float]:
    """Have a library prepare an expression; errors of its answers by way."""
    stored, answers = folder / "inputs.npz", f"{folder}/{peer.library}."
    raw = [x.view("uint16") if x.dtype.name == "bfloat16" else x for x in inputs]
    np.savez(stored, *raw)
    dtypes_of = [x.dtype.name for x in inputs]
    try:
        said = peer.ask("open", name=e.call, inputs=str(stored), dtypes=dtypes_of, answers=answers)
    except PeerError as error:
        problems[peer.library] = str(error)
        return {}
    problems |= {way: text for way, text in said.items() if text}
    well = [way for way, text in said.items() if not text]
    return {way: error_of(np.load(f"{answers}{way}.npy"), right) for way in well}


def _in_turns(
    calls: Mapping[str, Callable[[], object]], peers: Sequence[Peer], ways: Sequence[str]
) -> dict[str, list[float]]:
    """Seconds of a call of each way, one round after the other."""
    takers: dict[str, Callable[[], float]] = {}
    for peer in peers:
        own = [w for w in ways if (w == "numpy") == (peer.library == "numpy")]
        takers |= {way: lambda p=peer, w=way: p.ask("sample", way=w) for way in own}  # type: ignore[misc]
    takers |= {way: lambda c=call: sample(c) for way, call in calls.items()}  # type: ignore[misc]
    seconds: dict[str, list[float]] = {way: [] for way in takers}
    spent = dict.fromkeys(takers, 0.0)
    for _ in range(ROUNDS):
        for way, taken in takers.items():
            if spent[way] < PATIENCE_S:
                begin = time.perf_counter()
                seconds[way].append(taken())
                spent[way] += time.perf_counter() - begin
    return seconds


def medians(found: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of a call by way."""
    return {way: statistics.median(taken) for way, taken in found["seconds"].items()}
