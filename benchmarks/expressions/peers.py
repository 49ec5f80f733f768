"""The processes of other libraries: asked by lines of JSON, stopped while others are timed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from loopwright.env import usable_cpus

_SIDE = Path(__file__).with_name("sides") / "side.py"
#: Settings that can halve the speed of OpenBLAS, which some environments export.
_HARMFUL = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONPATH")
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class PeerError(Exception):
    """A library's process ended, or did not answer in time."""


class Peer:
    """A library in a process of its own; a context manager.

    Args:
        library: ``"numpy"`` or ``"torch"``.
        python: the interpreter that has it.
        threads: of the library.
        patience: seconds to wait for an answer; compilers of libraries take long.
        script: what is run, with the library as its argument.

    Raises:
        PeerError: by every request, once the process has ended.
    """

    def __init__(
        self,
        library: str,
        python: str = sys.executable,
        threads: int = 1,
        patience: float = 150.0,
        script: Path = _SIDE,
    ) -> None:
        self.library, self._patience, self._threads = library, patience, threads
        self._process = subprocess.Popen(
            [python, str(script), library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(threads),
            start_new_session=True,
        )
        os.sched_setaffinity(self._process.pid, usable_cpus()[:threads])

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def ask(self, request: str, **given: Any) -> Any:
        """The answer to a request; the process runs only while it works on one.

        Raises:
            PeerError: there is none.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        if not self.alive:
            raise PeerError(f"{self.library} has ended with {self._process.returncode}")
        self._signal(signal.SIGCONT)
        stdin.write(json.dumps({"ask": request, **given}).encode() + b"\n")
        stdin.flush()
        ready, _, _ = select.select([stdout], [], [], self._patience)
        line = stdout.readline() if ready else b""
        if not line:
            why = "ended" if ready else f"did not answer within {self._patience:g} s"
            self.close()
            raise PeerError(f"{self.library} {why}, asked to {request} {given.get('name', '')}")
        self._signal(signal.SIGSTOP)
        return json.loads(line)

    def close(self) -> None:
        """End the process, and those that it started."""
        if self.alive:
            self._signal(signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                stream.close()

    def _signal(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)


def environment(threads: int, cpus: Sequence[int] | None = None) -> dict[str, str]:
    """The variables of a library's process.

    Args:
        threads: of the library.
        cpus: on which its threads are put, one on each; None: those that this process may use.
            Threads of OpenMP that spin on one CPU for seconds would else spoil what is timed.
    """
    kept = {k: v for k, v in os.environ.items() if k not in _HARMFUL}
    places = " ".join(map(str, (usable_cpus() if cpus is None else cpus)[:threads]))
    return {
        **kept,
        **dict.fromkeys(_THREADS, str(threads)),
        "GOMP_CPU_AFFINITY": places,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
