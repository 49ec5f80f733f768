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
    """Plan of a playoff.

    Attributes:
        default: the default configuration, which takes part whatever its speed; None where it
            cannot.
        places: number of other participants: distinct programs whose answer is right.
        seconds: time that it may take, building and checking included, unless the least number of
            rounds takes longer.
        timeout: seconds after which no round begins; None for no limit.
        flop: floating point operations of one call; 0 where there are none to count.
        beside: samplers of other programs for each round of the second part, by name.
    """

    default: ConfigEntity | None = None
    places: int = 8
    seconds: float = 0.0
    timeout: float | None = None
    flop: int = 0
    beside: Mapping[str, Sampler] = field(default_factory=dict)


@dataclass(frozen=True)
class FinalistResult:
    """Result of measuring one finalist again.

    Attributes:
        config: its configuration.
        times: seconds per call, one for each round of the first part that it took part in; empty
            where it failed.
        error: the error that excludes it, or None.
        checked: whether its answer was compared with the reference.
        check_reason: the reason why it was not; empty when it was.
        max_error: largest difference from the reference; None where nothing was compared.
    """

    config: ConfigEntity
    times: tuple[float, ...] = ()
    error: MeasureError | None = None
    checked: Checked = Checked.NO
    check_reason: str = ""
    max_error: float | None = None

    @property
    def order(self) -> tuple[bool, float]:
        """Sort key of finalists, the best first: the rule of `loopwright.records`."""
        return self.checked is not Checked.YES, statistics.median(self.times or [math.inf])


@dataclass(frozen=True)
class PlayoffResult:
    """The outcome of a playoff.

    Attributes:
        finalists: all participants, the best first; failed ones last.
        best: seconds per call of the best of them in the rounds of the second part.
        default: those of the default configuration; empty where it did not run.
        peak: name of the limit of the machine that was sampled beside them; empty for none.
        at_peak: seconds that a call would take at that limit, one for each sample.
        beside: seconds of the programs sampled beside them, by name; NaN where a sample failed.
        notes: remarks for people.
    """

    finalists: tuple[FinalistResult, ...]
    best: tuple[float, ...] = ()
    default: tuple[float, ...] = ()
    peak: str = ""
    at_peak: tuple[float, ...] = ()
    beside: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

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
        if not self.at_peak or not samples:
            return 0.0
        return statistics.median(self.at_peak) / statistics.median(samples)

    def gain_over(self, name: str, samples: Sequence[float] | None = None) -> PairedGain | None:
        """Gain of the winner, or of these samples of the default, over the program sampled beside
        it.
        """
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
        """Check and measure the fastest again, interleaved with the default; one that repeats a
        program, or is wrong, is replaced by the next.
        """

    def measure_again(self, configs: Sequence[ConfigEntity], windows: int) -> list[MeasureResult]:
        """Measure configurations once more, ``windows`` samples of each, without a race."""


@runtime_checkable
class KnowsCode(Protocol):
    """A measurer that does not run object code with known times."""

    def know(self, results: Mapping[str, MeasureResult]) -> None:
        """Use results, by `MeasureResult.code`, for candidates that are compiled to the same code;
        each names in ``times_of`` the record that it is from.
        """


@runtime_checkable
class TellsPhases(Protocol):
    """A measurer that reports its current phase."""

    def on_phase(self, listen: Callable[[str], object]) -> None:
        """Call ``listen`` with the innermost running phase, such as ``"build"``, whenever that
        changes; with the empty name where none runs.
        """


@runtime_checkable
class SharesPrograms(Protocol):
    """A measurer whose results name their programs, and which measures no program twice."""

    def measure_new(
        self,
        inputs: Sequence[MeasureInput],
        incumbent: float | None,
        known: Mapping[str, MeasureResult],
    ) -> Iterator[MeasureResult]:
        """Yield one result per input, in order.

        ``known`` has results by `MeasureResult.program`: a candidate of such a program gets a copy
        whose ``same_as`` is the program.
        """
