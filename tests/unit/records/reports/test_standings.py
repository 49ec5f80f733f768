from __future__ import annotations

from loopwright.records import Checked
from loopwright.records.reports.neighbours import neighbours
from loopwright.records.reports.setups import hardware_names
from loopwright.records.reports.standings import default_record, standings
from tests.unit.records.reports.made_logs import record


def test_places_and_distances():
    trials = [
        record(0, 4e-3),
        record(1, 1e-3, checked=Checked.YES),
        record(2, 2e-3),
        record(3, None),
    ]
    again = record(1, 1.5e-3, phase="playoff", ts=2e9)
    other = record(0, 8e-3, env={"cpu": "Arm"})
    one, two = standings([*trials, again, other], 2)
    assert (one.candidates, two.candidates) == (3, 1)
    assert [place.record for place in one.places] == [again, trials[2]]
    assert [place.checked for place in one.places] == [True, False]
    assert [place.to_best.value for place in one.places] == [1.0, 2e-3 / 1.5e-3]
    assert [place.to_default.value for place in one.places] == [0.375, 0.5]
    assert (one.default, two.default) == (trials[0], other)
    (nothing,) = standings([record(0, None)])
    assert (nothing.candidates, nothing.places) == (0, ())


def test_the_default_is_the_one_that_a_verdict_names_else_the_first_trial():
    trials = [record(0, 4e-3), record(1, 2e-3)]
    assert default_record(trials) is trials[0]
    again = record(0, 3e-3, phase="playoff", ts=2e9)
    assert default_record([*trials, again]) is again
    verdict = {
        **{"outcome": "faster", "gain": 0.5, "margin": 0.01, "rounds": 9},
        "default": trials[1].candidate,
    }
    best = record(2, 1e-3, verdict=verdict)
    (found,) = standings([*trials, best])
    assert found.default is trials[1]
    assert found.verdict.gain == 0.5
    assert default_record([record(0, None)]) is None
    # AutoTVM names no run and numbers no trial.
    assert default_record([record(0, 1e-3, run="")]) is None


def test_neighbours_differ_in_one_knob():
    def at(tile, order, seconds):
        return record(0, seconds, config={"tile": tile, "order": order, "same": 1})

    own = at(8, "ij", 2e-3)
    records = [own, at(4, "ij", 3e-3), at(2, "ij", 1e-3), at(4, "ji", 1e-4), at(8, "kj", None)]
    tile, order = neighbours(own, records)
    assert (tile.knob, tile.count, tile.value, tile.ratio.value) == ("tile", 2, "2", 0.5)
    assert tile.fastest is records[2]
    assert (order.knob, order.count, order.fastest) == ("order", 0, None)
    assert neighbours(own, [own]) == []


def test_a_neighbour_that_gave_a_wrong_answer_later_is_none():
    own, fast = record(0, 2e-3, config={"tile": 8}), record(1, 1e-3, config={"tile": 4})
    error = {"kind": "WRONG_ANSWER", "text": "off by 1"}
    later = record(1, None, config={"tile": 4}, error=error, phase="playoff", ts=2e9)
    (tile,) = neighbours(own, [own, fast])
    assert tile.ratio.value == 0.5
    assert neighbours(own, [own, fast, later]) == []


def test_names_of_hardware_tell_what_differs():
    plain = "Zen 5 | avx2 fma | znver5 | "
    assert hardware_names([plain, plain, "Arm |  |  | "]) == {plain: "Zen 5", "Arm |  |  | ": "Arm"}
    isa = "Zen 5 | avx2 avx512f | znver5 | "
    assert hardware_names([plain, isa]) == {plain: "Zen 5 (fma)", isa: "Zen 5 (avx512f)"}
    less = "Zen 5 | avx2 | znver5 | "
    assert hardware_names([plain, less]) == {plain: "Zen 5 (fma)", less: "Zen 5 (none of these)"}
    other = "Zen 5 | avx2 fma | haswell | "
    assert list(hardware_names([plain, other]).values()) == ["Zen 5 (znver5)", "Zen 5 (haswell)"]
    mixed = [plain, other, isa]  # no single part tells these three apart
    assert hardware_names(mixed) == {text: text for text in mixed}
    assert hardware_names(["", " |  | skylake | "]) == {
        "": "unknown hardware",
        " |  | skylake | ": "skylake",
    }
