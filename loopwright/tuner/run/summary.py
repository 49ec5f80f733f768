"""The result of a run: the best, the default, the speed-up, failures, and where the time went."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loopwright.errors import TuneError
from loopwright.measure import PairedGain, PlayoffResult
from loopwright.records import NOT_COMPARED, Json, Outcome, Verdict, compared, next_step
from loopwright.task import Refusal
from loopwright.tuner.run.budget import clock
from loopwright.tuner.run.state import Failure

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity


#: Number of paired samples that a verdict should rest on.
ROUNDS = 20
#: Share of the machine's limit from which on hardly anything is left to gain.
_NEAR_LIMIT = 0.85


def speedup_of(verdict: Verdict, best: float | None, default: float | None) -> float | None:
    """Factor by which the best is faster than the default: by the verdict, from paired samples,
    else by times in seconds; None without both."""
    if verdict.nothing_faster:
        return 1.0
    if verdict.is_compared:
        return 1.0 + verdict.gain
    return None if best is None or default is None else default / best


@dataclass(frozen=True)
class PlayoffTimes:
    """Median seconds per call of functions that the second part of a playoff sampled in turns."""

    best: float
    #: None where the default did not run.
    default: float | None
    #: Other functions that were sampled, by name.
    others: Mapping[str, float]
    #: Comparison of the best with the default in these rounds.
    verdict: Verdict


@dataclass(frozen=True)
class Summary:
    """The end of a run.

    Attributes:
        stopped: ``"n_trial"``, ``"timeout"``, ``"early_stopping"``, ``"target"``, ``"min_gain"``,
            ``"exhausted"``, ``"failures"``, ``"callback"`` or ``"interrupted"``.
        trials: valid trials of the task, those of the log included.
        from_log: number of them that the log held before.
        measured: valid trials of this run.
        failures: by kind, those of the log included.
        best_config: configuration to build: the best, or the default one where nothing is
            measurably faster; None where nothing ran.
        best_trial: its number in the log, or None.
        best_position: number of trials measured before it; its number in the log counts copies of
            programs as well.
        best_seconds: its median time per call.
        default_seconds: that of the default configuration, or None.
        playoff: samples of the final interleaved re-measuring, by trial number.
        verdict: comparison of the best with the default.
        peak: the limit of the machine that was sampled beside them; empty for none.
        of_peak: share of it that the best reached; 0 where none was sampled.
        beside: share by which the best is faster than other functions that were sampled, by name.
        in_turns: times of the minutes in which all were sampled side by side; None without a
            playoff.
        timing: seconds by the step that took them.
        most_trials: valid trials that the space has room for, or None where that is not known.
        title: the task for people; ``task`` is its key, by which logs name it.
    """

    task: str
    stopped: str
    reason: str
    trials: int
    from_log: int
    measured: int
    failures: Mapping[str, Failure]
    best_config: ConfigEntity | None
    best_trial: int | None
    best_seconds: float | None
    default_seconds: float | None
    best_gflops: float | None
    default_gflops: float | None
    playoff: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    verdict: Verdict = NOT_COMPARED
    peak: str = ""
    of_peak: float = 0.0
    beside: Mapping[str, PairedGain] = field(default_factory=dict)
    in_turns: PlayoffTimes | None = None
    timing: Mapping[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    log: str | None = None
    notes: tuple[str, ...] = ()
    most_trials: int | None = None
    best_position: int | None = None
    title: str = ""

    @property
    def speedup(self) -> float | None:
        return speedup_of(self.verdict, self.best_seconds, self.default_seconds)

    def lines(self) -> list[str]:
        failed = sum(failure.count for failure in self.failures.values())
        before = f", {self.from_log} of them from the log" if self.from_log else ""
        counts = f"trials:  {self.trials} valid{before}; {failed} failed"
        text = [f"stopped: {self.reason}", counts, *self.notes]
        text += self.results() if self.best_seconds is not None else ["best:    none"]
        text += failure_lines(self.failures)
        if self.timing:
            text.append(time_line(self.wall_s, self.timing))
        return text

    def _repr_html_(self) -> str:
        from loopwright.presenting import html_block, html_text

        return html_block(f"Tuned {self.title or self.task}", html_text("\n".join(self.lines())))

    def line(self) -> str:
        """The result in one line, for a run that nobody watches."""
        spent = f"{self.trials} trials, {clock(self.wall_s)}; stopped: {self.reason}"
        if self.best_seconds is None:
            return f"no valid result ({spent})"
        best = speed(self.best_seconds, self.best_gflops)
        return f"best {best}; {self.verdict.text()} ({spent})"

    def results(self) -> list[str]:
        """Lines of times, speeds and the verdict, all of the playoff where there was one: earlier
        times of the same kernels, of the peak or of NumPy are of another state of the machine."""
        of = self.in_turns
        best = self.best_seconds if of is None else of.best
        default = self.default_seconds if of is None else of.default
        if best is None:
            return []
        text = []
        if default is not None:
            text.append(f"default: {self._speed(default)}")
        if self.verdict.nothing_faster and default is not None:
            text.append("best:    the default (nothing faster)")
        else:
            which = f"trial {self.best_position}"
            if self.best_position != self.best_trial:
                which += f", number {self.best_trial} in the log"
            which += "" if self.verdict.is_compared else ", unverified"
            text.append(f"best:    {self._speed(best)}{self._ratio()} ({which})")
        if self.best_config is not None:
            lines = self.best_config.space.lines_of(self.best_config)
            text += [f"         {line}" for line in lines]
        others = {} if of is None else of.others
        text += [f"{name + ':':9}{self._speed(seconds)}" for name, seconds in others.items()]
        return [*text, *self.verdicts()]

    def _ratio(self) -> str:
        """Factor by which the best is faster; empty for a tie, or if samples of now and the verdict
        of the log differ."""
        ratio = self.speedup
        if ratio is None or self.verdict.outcome is Outcome.TIE or self._timed_again:
            return ""
        return f", {ratio:.2f} x the default"

    @property
    def _timed_again(self) -> bool:
        """True when the verdict is of an earlier run, and this one has sampled both again."""
        now = None if self.in_turns is None else self.in_turns.verdict
        return now is not None and (now.gain, now.rounds) != (
            self.verdict.gain,
            self.verdict.rounds,
        )

    def _speed(self, seconds: float) -> str:
        flop = (self.best_gflops or 0.0) * (self.best_seconds or 0.0)
        return speed(seconds, flop / seconds if flop else None)

    def verdicts(self) -> list[str]:
        text = [f"verdict: {self.verdict.text()}{_basis(self.verdict)}"]
        best = "the default" if self.verdict.nothing_faster else "the best"
        if self.in_turns is not None and self._timed_again:
            now = self.in_turns.verdict
            text = [f"{text[0]}, by the log", f"         measured now: {now.text()}{_basis(now)}"]
        share = f"{best} has {self.of_peak * 100:.0f} % of the {self.peak}"
        if self.peak and self.of_peak and share not in text[0]:
            near = ": there is little left to gain" if self.of_peak >= _NEAR_LIMIT else ""
            text.append(f"         {share}{near}")
        for name, gain in self.beside.items():
            line = compared(gain.outcome, gain.gain, gain.margin, best, name)
            text.append(f"         {line}")
        return text

    def to_json(self) -> dict[str, Json]:
        """The summary for scripts: times in seconds, speeds in GFLOP/s, shares as numbers."""
        best = None
        if self.best_config is not None:
            best = {
                "config": self.best_config.values,
                "trial": self.best_trial,
                "seconds": self.best_seconds,
                "gflops": self.best_gflops,
            }
        default = None
        if self.default_seconds is not None:
            default = {"seconds": self.default_seconds, "gflops": self.default_gflops}
        return {
            "task": self.task,
            "stopped": self.stopped,
            "reason": self.reason,
            "trials": self.trials,
            "from_log": self.from_log,
            "measured": self.measured,
            "failures": {kind: failure.count for kind, failure in self.failures.items()},
            "best": best,
            "default": default,
            "speedup": self.speedup,
            "verdict": {**self.verdict.to_json(), "text": self.verdict.text()},
            "peak": self.peak or None,
            "of_peak": self.of_peak or None,
            "beside": {
                name: {"gain": gain.gain, "margin": gain.margin, "rounds": gain.rounds}
                for name, gain in self.beside.items()
            },
            "timing": dict(self.timing),
            "wall_s": self.wall_s,
            "log": self.log,
            "notes": list(self.notes),
        }


def playoff_times(outcome: PlayoffResult) -> PlayoffTimes | None:
    if not outcome.best:
        return None
    others = {
        name: statistics.median(kept)
        for name, taken in outcome.beside.items()
        if (kept := [seconds for seconds in taken if not math.isnan(seconds)])
    }
    default = statistics.median(outcome.default) if outcome.default else None
    return PlayoffTimes(statistics.median(outcome.best), default, others, outcome.verdict())


def _basis(verdict: Verdict) -> str:
    if verdict.outcome is Outcome.NOT_COMPARED or verdict.is_default:
        return ""
    what = "within the noise" if verdict.outcome is Outcome.TIE else "95 % interval"
    few = "only " if verdict.rounds < ROUNDS else ""
    return f" ({what} of {few}{verdict.rounds} rounds)"


def time_line(wall_s: float, timing: Mapping[str, float]) -> str:
    parts = sorted(timing.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts if seconds >= 0.05)
    return f"time:    {wall_s:.1f} s{': ' + shown if shown else ''}"


def failure_lines(failures: Mapping[str, Failure]) -> list[str]:
    text = []
    for kind, failure in sorted(failures.items(), key=lambda item: -item[1].count):
        example = " ".join(failure.example.split())
        example = example if len(example) <= 200 else example[:197] + "..."
        text.append(f"failed:  {failure.count} x {kind}, first: {example}")
        if advice := next_step(kind, failure.example):
            text.append(f"         advice: {advice} (more: loopwright explain-error {kind})")
    return text


def speed(seconds: float, gflops: float | None) -> str:
    exponent = min(3, max(0, -math.floor(math.log10(seconds) / 3)))
    value = f"{seconds * 1000**exponent:.4g} {('s', 'ms', 'us', 'ns')[exponent]}"
    return f"{value}, {gflops:.1f} GFLOP/s" if gflops else value


class NothingRan(TuneError):
    """Error of a run in which no configuration could be measured; the message names each kind of
    failure, and the share of the space that the template or a filter refuses."""

    def __init__(self, summary: Summary, refused: Sequence[Refusal] = ()) -> None:
        why = [" ".join(line.split()) for line in failure_lines(summary.failures)]
        why += map(str, refused)
        task = summary.title or summary.task
        super().__init__(
            f"no configuration of {task} could be measured ({summary.reason})"
            + (f": {'; '.join(why)}" if why else "")
        )
        self.summary = summary
