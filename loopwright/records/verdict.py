"""How the best configuration compares with the default one, as its record keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

from loopwright.errors import RecordError
from loopwright.records.json_value import Json


class Outcome(StrEnum):
    """The word of a verdict."""

    #: The interval of the gain lies above zero.
    FASTER = "faster"
    #: The interval holds zero.
    TIE = "tie"
    #: The interval lies below zero.
    SLOWER = "slower"
    #: The default could not be measured beside it.
    NOT_COMPARED = "not compared"


@dataclass(frozen=True)
class Verdict:
    """The winner of a playoff against the default configuration.

    Attributes:
        outcome: the word.
        gain: by which share it is faster, such as 0.031 for 3.1 %; negative where it is slower.
        margin: half of the width of the 95 % interval of the gain.
        rounds: how many paired samples the interval rests on.
        default: ``Record.candidate`` of the default configuration; empty when not compared.
    """

    outcome: Outcome
    gain: float = 0.0
    margin: float = 0.0
    rounds: int = 0
    default: str = ""

    def to_json(self) -> dict[str, Json]:
        """The form in a record."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Verdict:
        """Read the form of a record; fields that are not known are passed over.

        Raises:
            RecordError: a field is missing or malformed.
        """
        try:
            return cls(
                Outcome(data["outcome"]),
                float(data["gain"]),
                float(data["margin"]),
                int(data["rounds"]),
                str(data["default"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as exc:
            raise RecordError("field 'verdict' is malformed") from exc
