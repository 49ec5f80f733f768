"""The process of MetaSchedule: ``PYTHON side.py tvm``, driven by lines of JSON.

It is run by an interpreter that has apache-tvm (0.27 is known to work), and imports nothing of
loopwright.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import definitions
import numpy as np


def _shared() -> Any:
    """What this process has in common with those of other libraries."""
    path = Path(__file__).parents[1] / "expressions" / "sides" / "side.py"
    spec = importlib.util.spec_from_file_location("library_side", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class MetaScheduleSide:
    """Tunes one expression at a time, and calls the best that it found.

    Args:
        library_side: the module that knows how to sample.
    """

    def __init__(self, library_side: Any) -> None:
        self._library_side = library_side
        self._executable: Any = None
        self._call: Callable[[], Any] | None = None

    def tune(self, name: str, trials: int, target: dict[str, Any], seed: int) -> dict[str, Any]:
        """Search, as `tune_tir` does by default.

        Returns:
            ``seconds`` of the search, without the import of TVM, ``records``, and ``problem``:
            empty, or why there is no kernel.
        """
        import tvm
        from tvm import te
        from tvm.s_tir import meta_schedule as ms

        function = te.create_prim_func(definitions.tensors(te, name))
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        wanted = tvm.target.Target(target)
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            database = ms.tir_integration.tune_tir(
                mod=module,
                target=wanted,
                work_dir=folder,
                max_trials_global=trials,
                num_trials_per_iter=min(trials, 64),
                seed=seed,
            )
            seconds = time.perf_counter() - begin
            schedule = ms.tir_integration.compile_tir(database, module, wanted)
            found = {"seconds": seconds, "records": len(database.get_all_tuning_records())}
        if schedule is None:
            return {**found, "problem": "no candidate is valid"}
        self._executable = tvm.compile(schedule.mod, target=wanted)
        return {**found, "problem": ""}

    def open(self, inputs: str, answer: str) -> None:
        """Call the best once on inputs of a file; the answer goes to another."""
        import tvm

        with np.load(inputs) as stored:
            data = [stored[key] for key in stored.files]
        arrays = [tvm.runtime.tensor(x, tvm.cpu(0)) for x in data]
        main = self._executable["main"]
        self._call = lambda: main(*arrays)
        self._call()
        np.save(answer, arrays[-1].numpy())

    def sample(self) -> float:
        """Seconds of one call."""
        assert self._call is not None
        return self._library_side.sample(self._call)  # type: ignore[no-any-return]


def main() -> None:
    """Answer requests until there are no more."""
    library_side = _shared()
    library_side.end_with_the_parent()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    side = MetaScheduleSide(library_side)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = getattr(side, asked.pop("ask"))(**asked)
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
