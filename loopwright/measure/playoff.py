"""The playoff: the fastest candidates are checked and measured again, in turns with the default.

It has two parts. In the first all finalists are sampled in turns, which finds the best; in the
second the best, the default configuration, the limit of the machine and the caller's programs are
sampled in turns, which finds the gain. A drift of the machine hits all alike.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from loopwright.errors import BuildError, CodegenError, LowerError, RunError, UsageError
from loopwright.measure.building import Build
from loopwright.measure.interfaces import FinalistResult, PlayoffPlan, PlayoffResult, share_of_peak
from loopwright.measure.machine_limit import (
    MachineLimit,
    arithmetic_roof,
    bytes_of,
    limit_of,
    time_out_of_reach,
)
from loopwright.measure.options import PLAYOFF_WINDOW_S, WINDOW_S
from loopwright.measure.paired_ratios import FEWEST_ROUNDS, SMALLEST_GAIN, paired_gain
from loopwright.measure.result import MeasureError, MeasureResult
from loopwright.measure.session import NOT_CHECKED, MeasureSession
from loopwright.runtime import Artifact, get_num_threads

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity


#: A finalist leaves the first part when it was slower than the leader by this factor in each round
#: so far, of which there were at least so many.
LOSING, LOSES_AFTER = 1.1, 3


class Finalist:
    """One configuration in the playoff; slot 0 of the runner belongs to ordinary trials."""

    def __init__(self, slot: int, config: ConfigEntity) -> None:
        self.slot, self.config = slot, config
        self.build: Build | None = None
        # Another finalist whose code is equal to the byte; it is measured for both.
        self.twin: Finalist | None = None
        # Seconds of its first run.
        self.first = 0.0
        # Number of the runner process that holds its code.
        self.launched = -1
        # Seconds per call, one for each round: of the first part, and of the second.
        self.times: list[float] = []
        self.judged: list[float] = []
        # Whether it left the first part before its end. Its times are then of fewer rounds, perhaps
        # of faster minutes of the machine, so that it wins against none that stayed.
        self.left = False
        self.error: MeasureError | None = None
        self.check = MeasureResult()

    @property
    def built(self) -> Build:
        assert self.build is not None
        return self.build

    @property
    def code(self) -> bytes | None:
        outcome = None if self.build is None else self.build.outcome
        return outcome.objects if isinstance(outcome, Artifact) else None

    @property
    def order(self) -> tuple[bool, bool, bool, float]:
        result = self.result()
        unchecked, median = result.order
        return result.error is not None, unchecked, (self.twin or self).left, median

    def result(self) -> FinalistResult:
        of = self.twin or self
        error = self.error or of.error
        return FinalistResult(
            self.config,
            () if error else tuple(of.times or of.judged),
            error,
            of.check.checked,
            of.check.check_reason,
            of.check.max_error,
        )


def may_win(finalists: Sequence[Finalist]) -> list[Finalist]:
    """Finalists that neither failed nor were clearly slower than the leader in every round."""
    playing = [f for f in finalists if f.error is None]
    leader = min(playing, key=lambda f: statistics.median(f.times), default=None)
    return [
        f
        for f in playing
        if leader is not None
        and any(own <= LOSING * best for own, best in zip(f.times, leader.times, strict=True))
    ]


#: Rounds of the first part, and of the second: as many as there is time for between these.
CHOOSING = (5, 20)
JUDGING = (20, 60)
#: Rounds of the first part that even the slowest kernels get.
_FEWEST_CHOOSING = 2
#: Share of the time of the playoff at which the first part ends, where there is a choice.
_CHOOSING_SHARE = 0.5
#: Seconds that the rounds of a part may take before fewer than the least count are made.
_PATIENCE_S = 2.5
#: Note where there is no limit to compare with, followed by the reason.
_UNKNOWN = "how near the best is to the limit of its device is not known"
#: Note where a second measurement confirms a share of the limit above 100 %.
_DOUBT = (
    "{:.0%} of the {}, measured twice: it is no limit for this kernel (which computes less than "
    "its definition, or stays in a cache), or it was disturbed both times"
)
#: The reason where tensor cores multiply and memory is not the limit.
_TENSOR_CORES = "its products are made by tensor cores, whose peak is not measured"


class Playoff:
    def __init__(self, session: MeasureSession, plan: PlayoffPlan) -> None:
        self.session, self.plan = session, plan
        self.started = time.perf_counter()
        self.finalists: list[Finalist] = []
        self.limit: MachineLimit | None = None
        self.at_peak: list[float] = []
        self.beside: dict[str, list[float]] = {name: [] for name in plan.beside}
        self.notes: list[str] = []
        self._no_limit = False

    def hold(self, candidates: Sequence[ConfigEntity]) -> PlayoffResult:
        """Let the right and distinct candidates play; the fastest come first."""
        if self.plan.default is not None:
            self._enter([self.plan.default])
        # The others are checked in the given order until enough are right.
        waiting = iter([c for c in candidates if c != self.plan.default])
        while not self._late():
            placed = sum(f.config != self.plan.default for f in self._playing)
            batch = list(islice(waiting, max(0, self.plan.places - placed)))
            if not batch:
                break
            self._enter(batch)
        if len(self._playing) > 2 or self._default is None:
            self._choose()
        best = self._judge_best()
        ranked = sorted(self.finalists, key=lambda f: f.order)
        default = self._default
        return PlayoffResult(
            tuple(f.result() for f in ranked),
            () if best is None else tuple(best.judged),
            () if default is None else tuple(default.judged),
            "" if self.limit is None else self.limit.name,
            tuple(self.at_peak),
            {name: tuple(taken) for name, taken in self.beside.items()},
            tuple(self.notes),
        )

    # -- who takes part -----------------------------------------------------------------------

    @property
    def _default(self) -> Finalist | None:
        if self.plan.default is None or self.finalists[0].error is not None:
            return None
        return self.finalists[0]

    @property
    def _playing(self) -> list[Finalist]:
        """Finalists that are measured: not excluded, and one of each program."""
        return [f for f in self.finalists if f.error is None and f.twin is None]

    def _enter(self, configs: Sequence[ConfigEntity]) -> None:
        first = len(self.finalists) + 1
        fresh = [Finalist(first + i, config) for i, config in enumerate(configs)]
        builds = self.session.enqueue(configs)
        self.session.wait_for(builds)
        self.session.take_devices()
        for f, build in zip(fresh, builds, strict=True):
            f.build = build if isinstance(build, Build) else None
            outcome = build.outcome if isinstance(build, Build) else build
            if isinstance(outcome, MeasureError):
                self._fail(f, outcome)
            else:
                self._admit(f)
            self.finalists.append(f)

    def _admit(self, f: Finalist) -> None:
        """Check a finalist, unless one with equal code was checked already."""
        distinct = (o for o in self.finalists if o.twin is None)
        f.twin = next((o for o in distinct if o.code == f.code), None)
        if f.twin is not None:
            return
        if not self.session.option.runner.check:
            f.check = NOT_CHECKED
            return

        def check() -> MeasureResult:
            problem = self._load(f)
            if problem is not None:
                return MeasureResult(error=problem)
            return self.session.check(f.built.candidate, f.built.artifact, slot=f.slot)

        f.check = self.session.runner.undisturbed(check)
        if f.check.error is not None:
            self._fail(f, f.check.error)

    # -- the two parts ------------------------------------------------------------------------

    def _choose(self) -> None:
        """The first part: all in turns, each as often as the others while it may still win."""
        finalists = self._playing
        for turn in self._rounds(CHOOSING, _FEWEST_CHOOSING, _CHOOSING_SHARE):
            if turn >= LOSES_AFTER:
                staying = may_win(finalists)
                for f in finalists:
                    f.left = f not in staying
                finalists = staying
            if turn >= LOSES_AFTER and len(finalists) < 2:
                return
            for f in self._in_turn(finalists, turn):
                f.times += self._sample(f, PLAYOFF_WINDOW_S)

    def _judge_best(self) -> Finalist | None:
        """Judge the best; where it fails now, the next one. None when all failed."""
        while (best := self._best()) is not None:
            self._judge(best)
            if best.error is None and self._best() is best and self._of_peak(best) > 1:
                self._judge(best)
                if self._of_peak(best) > 1 and self.limit is not None:
                    self.notes.append(_DOUBT.format(self._of_peak(best), self.limit.name))
            if best.error is None:
                return self._best()
        return None

    def _best(self) -> Finalist | None:
        playing = [f for f in self._playing if f.times or f.judged or not self._chosen]
        return min(playing, key=lambda f: f.order, default=None)

    @property
    def _chosen(self) -> bool:
        return any(f.times for f in self.finalists)

    def _judge(self, best: Finalist) -> None:
        """The second part: the best, the default and all yardsticks in turns.

        It ends early when the interval is narrow enough, which favours neither side (Chow and
        Robbins, "On the asymptotic theory of fixed-width sequential confidence intervals", Ann.
        Math. Stat. 36, 1965). Two finalists alone need no first part: both are judged.
        """
        pair = [f for f in self._playing if f in (best, self._default) or not self._chosen]

        def is_narrow() -> bool:
            if len(pair) < 2:
                return True
            gain = paired_gain(pair[0].judged, pair[1].judged)
            return gain is not None and gain.margin <= SMALLEST_GAIN

        for f in self.finalists:
            f.judged = []
        self.beside = {name: [] for name in self.plan.beside}
        self.at_peak = []
        self._find_limit(best.built)
        for turn in self._rounds(JUDGING, FEWEST_ROUNDS, 1.0, is_narrow):
            if self.limit is not None and self.limit.each_round:
                self._sample_limit(self.limit)
            for name, sample in self.plan.beside.items():
                # Every other round is enough once intervals are possible.
                seconds = None if turn >= FEWEST_ROUNDS and turn % 2 else sample()
                self.beside[name].append(math.nan if seconds is None else seconds)
            for f in self._in_turn(pair, turn):
                f.judged += self._sample(f, WINDOW_S)
            if any(f.error for f in pair):
                return
        for f in pair if self.session.on_cpu else ():
            error = time_out_of_reach(self.session.task.target, f.built.candidate, f.judged)
            if error is not None:
                self._fail(f, error)
        if self.limit is not None and not self.limit.each_round:
            self._sample_limit(self.limit)

    def _find_limit(self, best: Build) -> None:
        if self.limit is not None or self._no_limit:
            return
        session, dag, flop = self.session, best.candidate.dag, self.plan.flop
        target = session.task.target
        if session.on_cpu:
            threads = target.canonical.get("num_threads") or get_num_threads()
            roof = arithmetic_roof(target, dag)
            self.limit = limit_of(bytes_of(best.artifact), flop, threads, roof)
            return
        from loopwright.measure import device_limit

        on_tensor_cores = device_limit.uses_tensor_cores(best.candidate.trace)
        rate = device_limit.in_runner(session.runner)
        try:
            self.limit = device_limit.device_limit(
                *(best.artifact, dag, flop, target, session.devices[0], rate),
                on_tensor_cores=on_tensor_cores,
            )
        except (BuildError, CodegenError, LowerError, RunError, UsageError) as error:
            self._give_up_limit(str(error))
        if self.limit is None and on_tensor_cores:
            self._give_up_limit(_TENSOR_CORES)

    def _give_up_limit(self, why: str) -> None:
        self.limit = None
        if not self._no_limit:
            self.notes.append(f"{_UNKNOWN}: {why}")
        self._no_limit = True

    def _sample_limit(self, limit: MachineLimit) -> None:
        try:
            self.at_peak.append(limit.sample())
        except RunError as error:
            self.at_peak = []
            self._give_up_limit(str(error))

    def _of_peak(self, best: Finalist) -> float:
        return share_of_peak(self.at_peak, best.judged)

    def _rounds(
        self,
        counts: tuple[int, int],
        fewest: int,
        share: float,
        enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[int]:
        """Number the rounds of a part: the least count, and more while there is time.

        ``counts`` are the least and the most, ``fewest`` is for kernels so slow that there is no
        time for the least. ``share`` of the playoff's time, and after the first round of its time
        limit, may have passed by the end, so that there is time for a verdict. ``enough`` ends it
        after the least count.
        """
        least, most = counts
        begun = time.perf_counter()
        for turn in range(most):
            spent = time.perf_counter() - begun
            needed = turn < fewest or (turn < least and spent < _PATIENCE_S)
            in_time = time.perf_counter() - self.started < share * self.plan.seconds
            spare = in_time and not (turn >= least and enough())
            if self._late(share if turn else 1.0) or not (needed or spare):
                return
            yield turn

    def _late(self, share: float = 1.0) -> bool:
        timeout = self.plan.timeout
        return timeout is not None and time.perf_counter() - self.started >= share * timeout

    def _in_turn(self, finalists: Sequence[Finalist], turn: int) -> list[Finalist]:
        """Each round begins with another one: nobody always follows the same neighbour."""
        start = turn % max(1, len(finalists))
        return [*finalists[start:], *finalists[:start]]

    def _sample(self, f: Finalist, window_s: float) -> list[float]:
        """Seconds per call, as a list of one; empty where it fails."""
        if f.error is not None:
            return []

        def window() -> tuple[float, ...] | MeasureError:
            return self._load(f) or self.session.runner.sample(
                f.first, slot=f.slot, windows=1, window_s=window_s
            )

        with self.session.clock.phase("run"):
            times = self.session.runner.undisturbed(window)
        if isinstance(times, MeasureError):
            self._fail(f, times)
            return []
        return [statistics.median(times)]

    def _load(self, f: Finalist) -> MeasureError | None:
        """Make the present runner process hold its code; returns the error, if any."""
        worker = self.session.runner.worker
        worker.start()
        if f.launched == worker.launched:
            return None
        race = self.session.runner.load_and_race(f.built.artifact, None, slot=f.slot, race=False)
        if isinstance(race, MeasureError):
            return race
        f.first, f.launched = race.first, worker.launched
        return None

    def _fail(self, f: Finalist, error: MeasureError) -> None:
        f.error = error
        self.session.announce(f"playoff: a finalist is out ({error})")
