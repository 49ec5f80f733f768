"""The interface between the tuning loop and a measurer: batches, playoffs, what else it offers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from loopwright.measure.paired_ratios import PairedGain, paired_gain
from loopwright.measure.result import MeasureError, MeasureInput, MeasureResult
from loopwright.records import NOT_COMPARED, Checked, Verdict

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity


#: Takes one sample of something that kernels are compared with: seconds of one call, or None.
Sampler = Callable[[], float | None]


@dataclass(frozen=True)
class PlayoffPlan:
    """Plan of a playoff."""

    #: The default configuration, which takes part whatever its speed; None where it cannot.
    default: ConfigEntity | None = None
    places: int = 8  #: number of other participants: distinct programs whose answer is right
    #: Time that it may take, building and checking included, unless the least number of rounds
    #: takes longer.
    seconds: float = 0.0
    timeout: float | None = None  #: seconds after which no round begins; None for no limit
    flop: int = 0  #: floating point operations of one call; 0 where there are none to count
    #: Samplers of other programs for each round of the second part, by name.
    beside: Mapping[str, Sampler] = field(default_factory=dict)


@dataclass(frozen=True)
class FinalistResult:
    """Result of measuring one finalist again."""

    config: ConfigEntity
    #: Seconds per call, one for each round of the first part that it took part in; empty where it
    #: failed.
    times: tuple[float, ...] = ()
    error: MeasureError | None = None  #: the error that excludes it
    checked: Checked = Checked.NO  #: whether its answer was compared with the reference
    check_reason: str = ""  #: the reason why it was not; empty when it was
    max_error: float | None = None  #: largest difference; None where nothing was compared

    @property
    def order(self) -> tuple[bool, float]:
        """Sort key of finalists, the best first: the rule of `loopwright.records`."""
        return self.checked is not Checked.YES, statistics.median(self.times or [math.inf])


def share_of_peak(at_peak: Sequence[float], samples: Sequence[float]) -> float:
    """Share of a limit, by seconds of a call there and measured; 0 where either has none."""
    if not at_peak or not samples:
        return 0.0
    return statistics.median(at_peak) / statistics.median(samples)


@dataclass(frozen=True)
class PlayoffResult:
    """The outcome of a playoff."""

    finalists: tuple[FinalistResult, ...]  #: all participants, the best first; failed ones last
    best: tuple[float, ...] = ()  #: seconds per call of the best in the rounds of the second part
    default: tuple[float, ...] = ()  #: those of the default configuration; empty if it did not run
    peak: str = ""  #: name of the limit of the machine sampled beside them; empty for none
    at_peak: tuple[float, ...] = ()  #: seconds of a call at that limit, one for each sample
    #: Seconds of the programs sampled beside them, by name; NaN where a sample failed.
    beside: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  #: remarks for people

    @property
    def winner(self) -> FinalistResult | None:
        """The best finalist; None when all failed."""
        return next((f for f in self.finalists if f.times), None)

    def verdict(self) -> Verdict:
        """Comparison of the winner with the default; ``Verdict.default`` is left to the caller.

        The winner is chosen by the first part and judged by the second alone: having been the
        fastest of many by luck makes it no faster here, so the gain needs no correction for the
        choice (Cox, "A note on data-dependent hypothesis testing", Biometrika 62, 1975).
        """
        gain = paired_gain(self.default, self.best) if self.default and self.best else None
        if gain is None:
            return NOT_COMPARED
        return Verdict(
            gain.outcome,
            gain.gain,
            gain.margin,
            gain.rounds,
            peak=self.peak,
            of_peak=self.of_peak,
            # Only shared samples are equal: those of one finalist, or of two of equal code.
            is_default=self.best == self.default,
        )

    @property
    def of_peak(self) -> float:
        """Share of the limit of the machine that the winner reached; 0 where none was sampled."""
        return self.of_peak_by(self.best)

    def of_peak_by(self, samples: Sequence[float]) -> float:
        """As `of_peak`, for samples of the winner or of the default."""
        return share_of_peak(self.at_peak, samples)

    def gain_over(self, name: str, samples: Sequence[float] | None = None) -> PairedGain | None:
        """Gain of the winner, or of the default's samples, over a program beside it."""
        pairs = zip(self.beside.get(name, ()), samples or self.best, strict=False)
        kept = [(other, own) for other, own in pairs if not math.isnan(other)]
        return paired_gain([other for other, _ in kept], [own for _, own in kept])


def played(
    candidates: Sequence[ConfigEntity],
    plan: PlayoffPlan,
    times: Callable[[ConfigEntity], Sequence[float]],
) -> PlayoffResult:
    """A playoff of known samples, for measurers that do not measure; no samples are a failure."""
    others = [c for c in candidates if c != plan.default][: plan.places]
    configs = others if plan.default is None else [plan.default, *others]
    results = [FinalistResult(config, tuple(times(config))) for config in configs]
    ranked = sorted(results, key=lambda r: r.order)
    best = ranked[0].times if ranked else ()
    default = () if plan.default is None else results[0].times
    rounds = min(len(best), len(default))
    return PlayoffResult(tuple(ranked), best[:rounds], default[:rounds])


def ignore(text: str) -> None:
    """Do nothing: the listener where nobody watches."""


class MeasurerLike(Protocol):
    """Measures candidates: `Measurer` on this machine, `Replay` from a file, or one of your own."""

    @property
    def timing(self) -> Mapping[str, float]:
        """Seconds by phase and counts of events so far; may be empty."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: float | None = None
    ) -> Iterator[MeasureResult]:
        """Yield one result per input, in order; ``incumbent``: best time, seconds per call."""

    def playoff(self, candidates: Sequence[ConfigEntity], plan: PlayoffPlan) -> PlayoffResult:
        """Check and measure the fastest, which come first, in turns with the default; one that
        repeats a program, or is wrong, is replaced by the next.
        """

    def measure_again(self, configs: Sequence[ConfigEntity], windows: int) -> list[MeasureResult]:
        """Measure configurations once more, ``windows`` samples of each, without a race."""


@runtime_checkable
class KnowsCode(Protocol):
    """A measurer that does not run object code with known times."""

    def know(self, results: Mapping[str, MeasureResult]) -> None:
        """Use results of this hardware, by `MeasureResult.code`; ``times_of`` names the record."""


@runtime_checkable
class TellsPhases(Protocol):
    """A measurer that reports its current phase."""

    def on_phase(self, listen: Callable[[str], object]) -> None:
        """Call ``listen`` with the innermost running phase, empty for none, on each change."""


@runtime_checkable
class SharesPrograms(Protocol):
    """A measurer whose results name their programs, and which measures no program twice."""

    def measure_new(
        self,
        inputs: Sequence[MeasureInput],
        incumbent: float | None,
        results: Mapping[str, MeasureResult],
    ) -> Iterator[MeasureResult]:
        """As `MeasurerLike.measure`; programs share ``results``, as ``same_as`` tells."""
