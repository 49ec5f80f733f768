"""The primitives of `Stage` that choose at random and record what they chose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from loopwright.errors import ScheduleError
from loopwright.ir.expr import IterVar
from loopwright.schedule.apply import apply
from loopwright.schedule.bounds.infer import infer_bounds
from loopwright.schedule.rules import SampleCategorical, SampleComputeLocation, SamplePerfectTile
from loopwright.schedule.rules.sampling import Place, perfect_tiles
from loopwright.schedule.sampled import Sampled
from loopwright.schedule.surface.memory import plain
from loopwright.schedule.surface.view import StageView
from loopwright.schedule.validate import validate_bounds

#: Tiles among which one is chosen; more are not listed.
_MOST_TILES = 1 << 17


class SamplingPrimitives(StageView):
    """``sample_categorical``, ``sample_perfect_tile`` and ``sample_compute_location``."""

    def sample_categorical(
        self,
        candidates: Sequence[int],
        probs: Sequence[float] | None = None,
        decision: int | None = None,
    ) -> Sampled:
        """Choose one of some numbers, for a factor of `split` or the value of `pragma`.

        The step records the candidates and the choice; steps that use the number record that it
        comes from this step. So a trace is a space of its own: a replay of it with another decision
        makes another schedule (`loopwright.space.structure_of` makes knobs of decisions). The
        schedule's generator draws, which `Schedule.seed` sets. MetaSchedule's primitive of this
        name.

        Args:
            candidates: whole numbers.
            probs: their weights; None: all alike.
            decision: the choice, where it is made already.

        Returns:
            The number; everywhere it is an int.

        Raises:
            ScheduleError: there is no candidate, the probabilities do not fit, or the decision is
                none of the candidates.

        Example:
            >>> A = te.placeholder((32,), name="A")
            >>> B = te.compute((32,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[32], B: out float32[32]):
              for i in range(32):
                B[i] = A[i] + 1.0
            >>> factor = s[B].sample_categorical([4, 8], decision=8)
            >>> io, ii = s[B].split(B.op.axis[0], factor=factor)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[32], B: out float32[32]):
              for i.0 in range(4):
                for i.1 in range(8):
                  B[i.0 * 8 + i.1] = A[i.0 * 8 + i.1] + 1.0
            >>> trace = s.trace_json()
            >>> print(trace)
            [['sample_categorical', 1, [4, 8], 8], ['split', 1, 'a0', {'sampled': [0, 0]}, None]]
            >>> trace[0][3] = 4
            >>> again = lw.schedule.replay(s.dag, trace)
            >>> print(lw.lower(again, again.tensors))
            def main(A: float32[32], B: out float32[32]):
              for i.0 in range(8):
                for i.1 in range(4):
                  B[i.0 * 4 + i.1] = A[i.0 * 4 + i.1] + 1.0
        """
        who = self._who("sample_categorical")
        numbers = tuple(plain(x) for x in candidates)
        if not numbers or not all(type(x) is int for x in numbers):
            raise ScheduleError(f"{who}: candidates are whole numbers, got {list(candidates)}")
        if probs is not None and not _are_probabilities(probs, len(numbers)):
            raise ScheduleError(
                f"{who}: probs are {len(numbers)} numbers that are not negative, one for each "
                f"candidate, got {list(probs)}"
            )
        given = None if probs is None else tuple(map(float, probs))
        if decision is None:
            decision = self.schedule.random.choices(numbers, given)[0]
        t = self.schedule.apply_step(SampleCategorical(self.id, numbers, plain(decision), given))
        return Sampled(decision, t)

    def sample_perfect_tile(
        self,
        loop: IterVar,
        n: int,
        max_innermost_factor: int = 16,
        decision: Sequence[int] | None = None,
    ) -> tuple[Sampled, ...]:
        """Choose factors whose product is the extent of a loop, all such with equal probability.

        Nothing is split yet: `split` takes the factors, from the inside out. As with
        `sample_categorical` the trace tells the choice and what follows from it.

        Args:
            loop: a loop whose extent is known.
            n: number of factors.
            max_innermost_factor: the largest last factor.
            decision: the factors, where they are chosen already.

        Returns:
            The factors, outermost first.

        Raises:
            ScheduleError: the extent is not known, there are too many tiles to list them or none at
                all, or the decision is none of them.

        Example:
            >>> A = te.placeholder((64,), name="A")
            >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[64]):
              for i in range(64):
                B[i] = A[i] + 1.0
            >>> a, b, c = s[B].sample_perfect_tile(B.op.axis[0], 3, decision=[4, 2, 8])
            >>> outer, inner = s[B].split(B.op.axis[0], factor=c)
            >>> outer, middle = s[B].split(outer, factor=b)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[64], B: out float32[64]):
              for i.0.0 in range(4):
                for i.0.1 in range(2):
                  for i.1 in range(8):
                    B[i.0.0 * 16 + i.0.1 * 8 + i.1] = A[i.0.0 * 16 + i.0.1 * 8 + i.1] + 1.0
        """
        who, n, largest = "sample_perfect_tile", plain(n), plain(max_innermost_factor)
        x = self.loop_id(loop, who)
        if decision is None:
            extent = self.schedule.state.leaf(self._state, x, who).nominal
            decision = self._drawn_tile(extent, n, largest)
        chosen = tuple(plain(f) for f in decision)
        t = self.schedule.apply_step(SamplePerfectTile(self.id, x, n, largest, chosen))
        return tuple(Sampled(f, t, part) for part, f in enumerate(chosen))

    def _drawn_tile(self, extent: object, n: int, largest: int) -> tuple[int, ...]:
        if not isinstance(extent, int) or not 1 <= n <= 16 or largest < 1:
            raise ScheduleError(
                f"{self._who('sample_perfect_tile')}: expected a loop of known extent, 1 to 16 "
                f"factors and a largest one of at least 1, got {extent}, {n} and {largest}"
            )
        tiles = []
        for tile in perfect_tiles(extent, n, largest):
            tiles.append(tile)
            if len(tiles) > _MOST_TILES:
                break
        if not 1 <= len(tiles) <= _MOST_TILES:
            raise ScheduleError(
                f"{self._who('sample_perfect_tile')}: {extent} has "
                f"{'more tiles than can be listed' if tiles else 'no tile'} of {n} factors, the "
                f"last at most {largest}; take another n, or give the decision"
            )
        return self.schedule.random.choice(tiles)

    def sample_compute_location(
        self, decision: str | tuple[StageView, IterVar] | None = None
    ) -> None:
        """Compute the stage at a place that is chosen: at root, inline, or at a loop of a reader.

        All places that are legal now are equally likely. The step records the place and puts the
        stage there, as `compute_root`, `compute_inline` and `compute_at` do.

        Args:
            decision: ``"root"``, ``"inline"``, or a stage with its loop; None: it is drawn.

        Raises:
            ScheduleError: the stage is an input or an output, or the decision is illegal.

        Example:
            >>> A = te.placeholder((4, 8), name="A")
            >>> B = te.compute((4, 8), lambda i, j: A[i, j] + 1, name="B")
            >>> C = te.compute((4, 8), lambda i, j: B[i, j] * 2, name="C")
            >>> s = te.create_schedule(C.op)
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[4, 8], C: out float32[4, 8]):
              B = alloc(float32[4, 8], global)
              for i in range(4):
                for j in range(8):
                  B[i, j] = A[i, j] + 1.0
              for i_1 in range(4):
                for j_1 in range(8):
                  C[i_1, j_1] = B[i_1, j_1] * 2.0
            >>> s[B].sample_compute_location(decision=(s[C], C.op.axis[0]))
            >>> print(lw.lower(s, [A, C]))
            def main(A: float32[4, 8], C: out float32[4, 8]):
              for i in range(4):
                B = alloc(float32[1, 8], global)
                for j in range(8):
                  B[0, j] = A[i, j] + 1.0
                for j_1 in range(8):
                  C[i, j_1] = B[0, j_1] * 2.0
        """
        place = self._drawn_place() if decision is None else self._place(decision)
        self.schedule.apply_step(SampleComputeLocation(self.id, place))

    def _place(self, decision: object) -> Place:
        if decision == "root":
            return ("root",)
        if decision == "inline":
            return ("inline",)
        who = self._who("sample_compute_location")
        if isinstance(decision, tuple) and len(decision) == 2:
            sid = self.schedule.stage_id(decision[0], who)
            return ("at", sid, self.schedule.loop_id(sid, decision[1], who))
        raise ScheduleError(
            f"{who}: a place is 'root', 'inline' or a stage with its loop, got {decision!r}"
        )

    def _drawn_place(self) -> Place:
        legal = [place for place in self._places() if self._is_legal(place)]
        if not legal:
            apply(self.schedule.state, SampleComputeLocation(self.id, ("root",)))
            raise ScheduleError(
                f"{self._who('sample_compute_location')}: {self!r} cannot be moved; only stages "
                "that others read are"
            )
        return self.schedule.random.choice(legal)

    def _places(self) -> Iterator[Place]:
        state = self.schedule.state
        if self.id in state.outputs:
            return
        yield ("root",)
        yield ("inline",)
        for sid in state.consumers(self.id):
            yield from (("at", sid, x) for x in state.stages[sid].leaves)

    def _is_legal(self, place: Place) -> bool:
        try:
            new = apply(self.schedule.state, SampleComputeLocation(self.id, place))
            validate_bounds(new, infer_bounds(new))
        except ScheduleError:
            return False
        return True


def _are_probabilities(probs: Sequence[float], count: int) -> bool:
    return len(probs) == count and all(p >= 0 for p in probs) and sum(probs) > 0


_T = TypeVar("_T")


def sampled(v: _T) -> _T | int:
    """A number as a step takes it that keeps where the number comes from."""
    return v if isinstance(v, Sampled) else plain(v)
