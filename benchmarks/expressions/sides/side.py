"""The process of a library: ``PYTHON side.py LIBRARY``, driven by lines of JSON.

It is run by whatever interpreter has the library, and imports nothing of loopwright. A line asks
to ``open`` an expression, whose answers it writes to files, or to ``sample`` a way to call it; each
is answered by a line. What libraries print goes to the standard error.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

#: Seconds of calls before a sample, since the process was stopped, and of a sample.
WARM_UP_S, WINDOW_S = 0.02, 0.02


def seconds_of(call: Callable[[], object], number: int) -> float:
    """Seconds of some calls."""
    start = time.perf_counter()
    for _ in range(number):
        call()
    return time.perf_counter() - start


def sample(call: Callable[[], object], warm_up: float = WARM_UP_S) -> float:
    """Seconds of one call, over a window behind a warm-up."""
    until = time.perf_counter() + warm_up
    call()
    while time.perf_counter() < until:
        call()
    number = max(1, int(WINDOW_S / max(seconds_of(call, 1), 1e-9)))
    return seconds_of(call, number) / number


class NumpyLibrary:
    """NumPy: one way to call each expression."""

    def __init__(self) -> None:
        # A sigmoid far from zero overflows on its way, and is right all the same.
        np.seterr(over="ignore")

    def ways(self, name: str, arrays: list[Any]) -> dict[str, Callable[[], Any]]:
        """The calls of an expression, by way."""
        import numpy_calls

        function = numpy_calls.call(name)
        return {"numpy": lambda: function(*arrays)}

    def load(self, data: Any, dtype: str) -> Any:
        """An input."""
        if dtype != "bfloat16":
            return data
        import ml_dtypes

        return data.view(ml_dtypes.bfloat16)

    def answer(self, found: Any) -> Any:
        """An answer as NumPy knows it."""
        return np.asarray(found)


class TorchLibrary:
    """PyTorch: called as it is, and compiled."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        torch.set_grad_enabled(False)

    def ways(self, name: str, arrays: list[Any]) -> dict[str, Callable[[], Any]]:
        """The calls of an expression, by way."""
        import torch_calls

        self._torch._dynamo.reset()
        function = torch_calls.call(name)
        given = torch_calls.prepared(name, arrays)
        compiled = self._torch.compile(function)
        return {"torch": lambda: function(*given), "compiled": lambda: compiled(*given)}

    def load(self, data: Any, dtype: str) -> Any:
        """An input."""
        if dtype == "bfloat16":
            return self._torch.from_numpy(data.view("int16")).view(self._torch.bfloat16)
        return self._torch.from_numpy(data)

    def answer(self, found: Any) -> Any:
        """An answer as NumPy knows it."""
        return (found.float() if found.dtype == self._torch.bfloat16 else found).numpy()


class Side:
    """Answers requests about one expression at a time."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._calls: dict[str, Callable[[], Any]] = {}

    def open(self, name: str, inputs: str, dtypes: list[str], answers: str) -> dict[str, str]:
        """Call an expression in every way once.

        Args:
            name: of the expression.
            inputs: file of the inputs.
            dtypes: of the inputs.
            answers: the files of the answers begin so.

        Returns:
            By way, an empty text, or why it cannot be called.
        """
        with np.load(inputs) as stored:
            data = [stored[key] for key in stored.files]
        arrays = [self._library.load(x, d) for x, d in zip(data, dtypes, strict=True)]
        found = {}
        self._calls = {}
        for way, call in self._library.ways(name, arrays).items():
            found[way] = self._problem(way, call, answers)
        return found

    def _problem(self, way: str, call: Callable[[], Any], answers: str) -> str:
        """Call once; a library may raise anything, and that is the answer."""
        try:
            np.save(f"{answers}{way}.npy", self._library.answer(call()))
        except Exception as error:
            return f"{type(error).__name__}: {error}".partition("\n")[0][:200]
        self._calls[way] = call
        return ""

    def sample(self, way: str) -> float:
        """Seconds of one call."""
        return sample(self._calls[way])


LIBRARIES = {"numpy": NumpyLibrary, "torch": TorchLibrary}


def end_with_the_parent() -> None:
    """Have Linux end this process when the one that started it has ended, even where this one is
    stopped at that time."""
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def main() -> None:
    """Answer requests until there are no more."""
    end_with_the_parent()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    side = Side(LIBRARIES[sys.argv[1]]())
    for line in sys.stdin:
        asked = json.loads(line)
        answer = getattr(side, asked.pop("ask"))(**asked)
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
