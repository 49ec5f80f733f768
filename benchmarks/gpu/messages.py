"""What the benchmark and its worker processes say to each other."""

from __future__ import annotations

from dataclasses import dataclass

from loopwright.measure.workers.protocol import Message, Reply


@dataclass(frozen=True, kw_only=True)
class GpuBuildRequest(Message):
    """Build one candidate; answered by `GpuBuilt`.

    Attributes:
        case: its name.
        small: whether sizes are those of a trial run.
        target: what it is built for.
        index: of the configuration.
        path: where the program goes.
    """

    case: str
    small: bool
    target: str
    index: int
    path: str


@dataclass(frozen=True, kw_only=True)
class GpuBuilt(Reply):
    """What became of a candidate.

    Attributes:
        outcome: "built"; "illegal": its schedule is not valid; "refused": it exceeds a limit of the
            device before anything is compiled; "failed": the compiler, or a limit after it.
        text: why.
        lower_s: seconds until the program was lowered and checked.
        compile_s: seconds of writing its code and compiling it.
        resources: by kernel what it takes, as JSON.
    """

    outcome: str
    text: str
    lower_s: float
    compile_s: float
    resources: str


@dataclass(frozen=True, kw_only=True)
class GpuDataRequest(Message):
    """Make the inputs of a case, on the device; answered by `GpuReady`.

    Attributes:
        case: its name.
        small: whether sizes are those of a trial run.
        seed: of the inputs.
        path: a program of the case; empty for a library.
    """

    case: str
    small: bool
    seed: int
    path: str


@dataclass(frozen=True, kw_only=True)
class GpuReady(Reply):
    """The inputs are there.

    Attributes:
        device: name of the device.
        problem: what is wrong with the answer of a library.
        note: what else is to be said of it.
    """

    device: str
    problem: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class GpuTrialRequest(Message):
    """Load a program, time it, and check its answer if it would be the best; answered by
    `GpuTrial`.

    Attributes:
        path: of the program.
        best: seconds of the best so far.
        samples: how many times are taken.
    """

    path: str
    best: float | None
    samples: int


@dataclass(frozen=True, kw_only=True)
class GpuTrial(Reply):
    """What one candidate gave.

    Attributes:
        times: seconds of one call each, with the second-level cache swept before.
        dropped: it was far behind after one call.
        checked: its answer was compared.
        problem: what is wrong with its answer, or where it wrote outside of its arrays.
    """

    times: tuple[float, ...]
    dropped: bool
    checked: bool
    problem: str


@dataclass(frozen=True, kw_only=True)
class GpuTurnRequest(Message):
    """Time once more what was loaded or prepared last; answered by `GpuTurn`.

    Attributes:
        samples: how many times are taken.
    """

    samples: int


@dataclass(frozen=True, kw_only=True)
class GpuTurn(Reply):
    """Times of a turn, in seconds of one call each."""

    times: tuple[float, ...]
