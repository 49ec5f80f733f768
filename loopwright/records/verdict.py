"""Verdicts: comparisons of a winner with the default configuration, and their sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum

from loopwright.errors import RecordError
from loopwright.records.line import Json


class Outcome(StrEnum):
    """Possible outcomes of a comparison.

    Example:
        >>> print([outcome.value for outcome in lw.records.Outcome])
        ['faster', 'tie', 'slower', 'not compared']
    """

    FASTER = "faster"  # the whole interval of the gain lies above what counts as a gain
    TIE = "tie"  # the interval holds gains too small to count, or none
    SLOWER = "slower"  # the whole interval lies below, by as much
    NOT_COMPARED = "not compared"  # the default could not be measured beside it


@dataclass(frozen=True)
class Verdict:
    """Comparison of the winner of a playoff with the default configuration.

    Attributes:
        gain: relative gain in speed, such as 0.031 for 3.1 % faster; negative where it is slower.
        margin: half the width of the 95 % interval of the gain.
        rounds: number of paired samples that the interval rests on.
        default: ``Record.candidate`` of the default configuration; empty when not compared.
        peak: the limit of the machine that was sampled in the same rounds, such as
            ``"FMA peak (AVX2)"``; empty where none was.
        of_peak: fraction of it that the winner reached; 0 where none was sampled.
        is_default: the winner is the default itself, or has its code: there was nothing to compare.

    Example:
        >>> verdict = lw.records.Verdict(lw.records.Outcome.FASTER, gain=0.31, margin=0.02)
        >>> print(verdict.text())
        the best beats the default by 31.0 % +- 2.0 %
    """

    outcome: Outcome
    gain: float = 0.0
    margin: float = 0.0
    rounds: int = 0
    default: str = ""
    peak: str = ""
    of_peak: float = 0.0
    is_default: bool = False

    @property
    def is_gain(self) -> bool:
        """Whether the winner is measurably faster than the default."""
        return self.outcome is Outcome.FASTER

    @property
    def is_compared(self) -> bool:
        """Whether the winner and the default were sampled in the same rounds."""
        return self.outcome is not Outcome.NOT_COMPARED

    @property
    def nothing_faster(self) -> bool:
        """Whether the default is at least as fast as the winner, so that the default is built."""
        return self.outcome in (Outcome.TIE, Outcome.SLOWER)

    def text(self, winner: str = "", default: str = "the default") -> str:
        """The verdict as a sentence, worded as in every command; an empty name of the winner is
        "the best", except for one that is slower.
        """
        slower = self.outcome is Outcome.SLOWER
        winner = winner or ("the fastest other configuration" if slower else "the best")
        if self.outcome is Outcome.NOT_COMPARED:
            return f"{winner} was not compared with {default}"
        share = self.of_peak / (1.0 + self.gain)
        remark = f"{default} has {share * 100:.0f} % of the {self.peak}" if self.peak else ""
        if self.is_default:
            more = f"; {remark}" if remark else ""
            return f"{winner} is {default} itself: nothing faster was found{more}"
        return compared(self.outcome, self.gain, self.margin, winner, default, remark)

    def to_json(self) -> dict[str, Json]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Verdict:
        """Read the form of a record; unknown fields are ignored. RecordError where a field is
        missing or malformed.
        """
        readers = {item.name: _READERS[str(item.type)] for item in fields(cls)}
        try:
            named = {
                name: read(data[name])
                for name, read in readers.items()
                if name in data or name not in _OPTIONAL
            }
        except (KeyError, TypeError, ValueError, OverflowError) as exc:
            raise RecordError("field 'verdict' is malformed") from exc
        return cls(**named)


def verdict_of(value: Json) -> Verdict | None:
    """The verdict of a record; None where it has none, or one that `records validate` reports."""
    try:
        return None if value is None else Verdict.from_json(value)
    except RecordError:
        return None


#: Readers of the fields of a verdict by their types.
_READERS: dict[str, Callable[[Json], Json]] = {
    kind.__name__: kind for kind in (Outcome, float, int, str, bool)
}
_OPTIONAL = ("peak", "of_peak", "is_default")  # fields that the first version of a verdict lacked


#: A gain from which on it is said as a factor: "a factor of 5.12" is easier to grasp than "412 %".
FACTOR = 1.0
#: The verdict where there was no playoff, or none with the default.
NOT_COMPARED = Verdict(Outcome.NOT_COMPARED)


def compared(
    outcome: Outcome,
    gain: float,
    margin: float,
    one: str = "the best",
    other: str = "the default",
    known: str = "",
) -> str:
    """Comparison of two kernels as a sentence, by the relative gain of the one over the other, and
    half the width of its interval; ``known`` is further text on the other, added without a gain.

    Example:
        >>> print(lw.records.compared(lw.records.Outcome.FASTER, gain=0.31, margin=0.02))
        the best beats the default by 31.0 % +- 2.0 %
    """
    figures = f"{_percent(abs(gain), margin)} +- {_percent(margin, margin)}"
    if gain >= FACTOR:
        figures = f"a factor of {1.0 + gain:.2f} +- {margin:.2f}"
    # Where samples lie far apart the interval is not symmetric: both its ends may lie on one
    # side although half of its width is more than the gain.
    amount = figures if margin < abs(gain) else f"an uncertain amount ({figures})"
    match outcome:
        case Outcome.FASTER:
            return f"{one} beats {other} by {amount}"
        case Outcome.SLOWER:
            return f"{one} is slower than {other} by {amount}"
        case Outcome.TIE if known:
            return f"no measurable gain: {known}"
        case Outcome.TIE:
            return f"tie: {one} and {other} differ by {figures}"
    return f"{one} was not compared with {other}"


def _percent(share: float, margin: float) -> str:
    """A fraction as a percentage with as many digits as its margin has."""
    return f"{share * 100:.{1 if margin < 0.1 else 0}f} %"
