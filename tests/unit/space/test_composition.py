"""Structures of several kernels: what they have in common, and the best of each put together."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.space.derivation import structures
from loopwright.space.ranking import put_together, ranked
from loopwright.space.rules.several_cpu import Composed, combined, composition
from loopwright.space.structure import Sketch
from tests.unit.space.composed import COMPOSED

TARGET = "llvm -mcpu=x86-64-v3 -num-threads=2"


def two_products(rows: int = 48) -> list[te.Tensor]:
    X = te.placeholder((rows, 64), name="X")
    V, W = te.placeholder((64, 64), name="V"), te.placeholder((96, 64), name="W")
    H = lw.ops.matmul_compute(X, V, name="H")
    R = te.compute((rows, 64), lambda i, j: te.max(H[i, j], 0), name="R")
    return [X, V, W, lw.ops.matmul_compute(R, W, trans_b=True, name="Y")]


@pytest.mark.parametrize("name", ["attention", "gru_cell", "squared_distances", "cross_entropy"])
def test_what_is_scheduled_in_common_is_as_if_it_were_not(name: str) -> None:
    args = COMPOSED[name][0]()
    with lw.Target(TARGET):
        found = structures([args[-1]], args)
        program = found[0].composition
        for structure in found:
            sketch = program._begun()
            for number in range(len(program.kernels)):
                program._schedule(sketch, number, structure.chosen)
            alone = sketch.finished(structure.name)
            assert alone.config_space.space_hash == structure.config_space.space_hash
            assert alone.why == structure.why
            for index in alone.config_space.sample_ints(2, 0):
                one, other = (
                    s.instantiate(s.config_space.get(index))[0] for s in (alone, structure)
                )
                assert one.trace_json() == other.trace_json()


def test_a_copy_of_a_schedule_goes_its_own_way() -> None:
    X = te.placeholder((16, 32), name="X")
    Y = te.compute((16, 32), lambda i, j: X[i, j] + 1, name="Y")
    Z = te.compute((16, 32), lambda i, j: Y[i, j] * 2, name="Z")
    s = te.create_schedule(Z.op)
    cached = s.cache_write(Y, "local")
    i, _ = s[Y].split(Y.op.axis[0], factor=4)
    other = s.copy()
    s[Y].parallel(i)
    other[Y].vectorize(Y.op.axis[1])
    other[Z].unroll(Z.op.axis[1])
    again = te.create_schedule(Z.op)
    again.cache_write(Y, "local")
    again[Y].split(Y.op.axis[0], factor=4)
    again[Y].vectorize(Y.op.axis[1])
    again[Z].unroll(Z.op.axis[1])
    assert other.trace == again.trace
    assert str(lw.lower(other, [X, Z])) == str(lw.lower(again, [X, Z]))
    assert [step.kind for step in s.trace[2:]] == ["parallel"]
    other[cached].unroll(cached.op.axis[1])  # of the copy
    assert [step.kind for step in s.trace[2:]] == ["parallel"]


def test_a_copy_of_a_sketch_tells_its_knobs_apart() -> None:
    X = te.placeholder((64,), name="X")
    Y = te.compute((64,), lambda i: X[i] * 2, name="Y")
    Z = te.compute((64,), lambda i: Y[i] + 1, name="Z")
    first = Sketch([Z], [X, Z])
    width = first.number("width", [4, 8])
    _, lane = first.s[Y].split(Y.op.axis[0], factor=width)
    first.s[Y].vectorize(lane)
    second = first.copy()
    for sketch, sizes in ((first, [2, 16]), (second, [1, 32, 64])):
        sketch.s[Z].split(Z.op.axis[0], factor=sketch.number("of " + str(sizes[0]), sizes))
    for sketch, sizes in ((first, [2, 16]), (second, [1, 32, 64])):
        made = sketch.finished("made")
        points = [made.instantiate(made.config_space.get(n))[0] for n in range(2 * len(sizes))]
        chosen = [tuple(step.factor for step in s.trace if hasattr(step, "factor")) for s in points]
        assert sorted(chosen) == sorted(itertools.product([4, 8], sizes))


def test_the_best_of_each_kernel_is_put_together() -> None:
    """Held against all combinations of variants, where what a structure takes is a sum."""
    args = two_products()
    with lw.Target(TARGET):
        found = [s for s in structures(args[-1], args) if isinstance(s, Composed)]
    program = found[0].composition
    rng = np.random.default_rng(3)
    for _ in range(20):
        cost = {id(v): float(rng.random()) for vs in program.variants.values() for v in vs}
        for t, variant in program.base.items():
            if t.name == "H":
                cost[id(variant)] = 0.5
        seconds = {s: sum(cost[id(v)] for v in s.chosen.values()) for s in found}
        tried = {t: {id(s.chosen[t]) for s in found} for t in program.base}
        least = sum(min(cost[v] for v in own) for own in tried.values())
        choices = combined(seconds)
        made = [{**program.base, **{t: s.chosen[t] for t, s in c.items()}} for c in choices]
        sums = [sum(cost[id(v)] for v in chosen.values()) for chosen in made]
        assert sums == sorted(sums)
        assert min([*sums, *seconds.values()]) == pytest.approx(least)
        names = [tuple(sorted(v.name for v in chosen.values())) for chosen in made]
        assert len(set(names)) == len(names)
        assert all(len(c) > 1 for c in choices)


@pytest.mark.slow
def test_a_structure_that_was_put_together_is_searched_and_built() -> None:
    args = two_products()
    task = lw.create_task(args, target=TARGET)
    given = task.config_space.given
    added = task.structures[len(given) :]
    assert all(len(structure.others) > 1 for structure in added)
    with task.target:
        singly = ranked(given)
        together = put_together(singly)
    assert [r.structure.name for r in together] == [s.name for s in added]
    assert added, "the two products like the same variant less than others"
    assert together[0].speed >= 0.98 * singly[0].speed
    assert [task.config_space.place(i)[0] for i, _ in task.ranking] != list(range(len(given)))
    x, v, w = (np.random.default_rng(0).random(t.static_shape, "float32") for t in args[:3])
    y = np.empty((48, 96), "float32")
    for structure in added:
        space = structure.config_space
        for index in space.sample_ints(2, 1):
            lw.build(*structure.instantiate(space.get(index)), TARGET)(x, v, w, y)
            np.testing.assert_allclose(y, np.maximum(x @ v, 0) @ w.T, rtol=1e-3)
    # Names and hashes of what was given do not follow from what was added.
    record = task.config_space.get(task.config_space.offsets[-2])
    assert task.config_space.find(record.values) == task.config_space.offsets[-2]
    again = lw.create_task(two_products(), target=TARGET)
    assert again.config_space.names == task.config_space.names
    assert again.config_space.space_hashes == task.config_space.space_hashes


def test_a_task_is_known_without_a_look_at_its_points(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: object) -> None:
        raise AssertionError("ranked")

    monkeypatch.setattr("loopwright.space.tasks.ranked", looked)
    task = lw.create_task(two_products(), target=TARGET)
    assert task.key
    assert len(task.config_space.given) > 3
    X, V, _, _ = two_products()
    one = lw.create_task([X, V, lw.ops.matmul_compute(X, V)])
    assert len(one.config_space) > 0  # one kernel: there is nothing to put together


# ---------------------------------------------------------------- rules for kernels


@pytest.fixture
def stripes():
    """A rule for products: stripes of columns, and no more."""

    def columns(kernel: lw.space.Kernel) -> object:
        stage = kernel.single
        if stage is None or stage.kind is not lw.space.StageClass.CONTRACTION:
            return None
        asked.append(kernel.out.name)

        def schedule(sketch: Sketch) -> None:
            s, t = sketch.s, stage.tensor
            for other in kernel.tensors:
                if other not in (t, kernel.out):
                    s[other].compute_inline()
            width = sketch.number("width", [8, 16])
            stripe, lane = s[t].split(s[t].op.axis[-1], factor=width)
            s[t].reorder(stripe, *s[t].op.reduce_axis, lane)
            s[t].vectorize(lane)

        return lw.space.Variant("stripes", "to be compared with", schedule)

    asked: list[str] = []
    columns.asked = asked
    yield columns
    lw.space.remove_rule("test/stripes")


def test_a_rule_for_kernels_works_inside_of_a_chain(stripes) -> None:
    args = two_products()
    lw.space_rule("test/stripes", scope="kernel")(stripes)
    task = lw.create_task(args, target=TARGET)
    assert set(stripes.asked) == {"R", "Y"}
    first, *others = task.config_space.given
    assert first.name == "R: stripes; Y: stripes"
    assert {"R.width", "Y.width"} <= set(first.config_space.knobs)
    assert any("Y: stripes" in s.name and "R: stripes" not in s.name for s in others)
    x, v, w = (np.random.default_rng(0).random(t.static_shape, "float32") for t in args[:3])
    y = np.empty((48, 96), "float32")
    for index in range(4):
        lw.build(*first.instantiate(first.config_space.get(index)), TARGET)(x, v, w, y)
        np.testing.assert_allclose(y, np.maximum(x @ v, 0) @ w.T, rtol=1e-3)
    # Of an expression of one kernel it is a structure beside those of the other rules.
    X, V, _, _ = two_products()
    alone = [s.name for s in lw.create_task([X, V, lw.ops.matmul_compute(X, V)]).structures]
    assert alone[0] == "stripes"
    assert len(alone) > 3


def test_priority_and_stops_count_within_a_kernel(stripes) -> None:
    args = two_products()
    lw.space_rule("test/stripes", scope="kernel", priority=-1)(stripes)
    with lw.Target(TARGET):
        last = [v.name for v in composition([args[-1]], args).variants[args[-1]]]
        assert last[-1] == "stripes"
        lw.space_rule("test/stripes", scope="kernel", stops=True)(stripes)
        names = [s.name for s in structures(args[-1], args)]
    assert names == ["R: stripes; Y: stripes"]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (lambda kernel: 1 / 0, "'test/stripes' .* failed for 'Y': ZeroDivisionError"),
        (lambda kernel: "stripes", r"returned 'stripes'; a rule for kernels returns .*Variant"),
        (
            lambda kernel: lw.space.Variant("v", "", lambda sketch: sketch.s["no such"]),
            "'test/stripes' .* failed for 'Y': schedule: expected a tensor",
        ),
        (
            lambda kernel: lw.space.Variant("v", "", lambda sketch: next(itertools.cycle([])), 1),
            "'test/stripes' .* failed for 'Y': TypeError",
        ),
    ],
)
def test_a_rule_for_kernels_that_fails_is_named(stripes, result, text) -> None:
    lw.space_rule("test/stripes", scope="kernel")(result)
    with pytest.raises(lw.errors.SpaceError, match=text) as raised:
        lw.create_task(two_products(), target=TARGET)
    assert "\n" not in str(raised.value)


def test_a_variant_that_never_ends_is_ended(stripes, monkeypatch) -> None:
    def schedule(sketch: Sketch) -> None:
        while True:
            pass

    monkeypatch.setattr("loopwright.space.derivation.TEMPLATE_S", 0.2)
    lw.space_rule("test/stripes", scope="kernel")(
        lambda kernel: lw.space.Variant("endless", "", schedule)
    )
    with pytest.raises(lw.errors.SpaceError, match=r"'test/stripes' .* took longer than 0\.2 s"):
        lw.create_task(two_products(), target=TARGET)


def test_scopes_are_two_and_kernels_those_of_cpus(stripes) -> None:
    lw.space_rule("test/stripes", scope="kernel")(stripes)
    with pytest.raises(lw.errors.SpaceError, match=r"unknown scope 'kernels' .did you mean"):
        lw.space_rule("test/other", scope="kernels")
    with pytest.raises(lw.errors.SpaceError, match="asked on CPUs, not for gpu"):
        lw.space_rule("test/other", scope="kernel", targets="gpu")


# ---------------------------------------------------------------- templates written by hand


@pytest.mark.slow
def test_a_template_joins_the_structures_of_rules(tmp_path) -> None:
    A, B = te.placeholder((24, 16), name="A"), te.placeholder((16, 32), name="B")
    C = lw.ops.matmul_compute(A, B)
    by_hand = lw.create_task("matmul", (24, 32, 16), TARGET)
    task = lw.create_task([A, B, C], target=TARGET, templates=[("matmul", 24, 32, 16)])
    assert len(task.structures) == 1 + len(lw.create_task([A, B, C], target=TARGET).structures)
    own, space = task.structures[-1], task.config_space
    assert own.name == f"template {by_hand}"
    assert own.config_space.range_length == by_hand.config_space.range_length
    begin = space.offsets[-2]
    for index in (*by_hand.config_space.sample_ints(3, 0), by_hand.config_space.default_index):
        one, other = by_hand.instantiate(index)[0], task.instantiate(begin + index)[0]
        assert one.trace_json() == other.trace_json()
    assert own.config_space.default_index == by_hand.config_space.default_index
    assert "structure" not in by_hand.config_space.knobs
    # It is tuned beside the others, and its records go on and apply.
    log = tmp_path / "log.jsonl"
    option = lw.measure_option(lw.LocalBuilder(n_parallel=1), lw.LocalRunner(number=1, repeat=1))
    lw.auto_schedule(task, n_trial=12, log=log, tuner="random", measure_option=option)
    records = lw.records.load(str(log)).records
    mine = [r for r in records if r.config["structure"] == own.name]
    assert mine
    assert {r.space for r in mine} == {own.config_space.space_hash}
    assert all(space.find(r.config) is not None for r in records)
    with lw.apply_history_best(mine) as history:
        lw.build([A, B, C], TARGET)
    assert history.report()[0].record in mine


def test_templates_that_do_not_fit_are_refused() -> None:
    A, B = te.placeholder((24, 16), name="A"), te.placeholder((16, 32), name="B")
    args = [A, B, lw.ops.matmul_compute(A, B)]
    cases: list[tuple[object, str]] = [
        ([("matmul", 24, 32, 8)], "does not compute this expression of .* but another one of"),
        ([lw.create_task("matmul", (24, 32, 16), "llvm")], "is for the target llvm"),
        (["matmul"], r"expected tasks or \(name, \*arguments\), got 'matmul'"),
        ([5], r"expected tasks or \(name, \*arguments\), got 5"),
        ([()], r"expected tasks or \(name, \*arguments\), got \(\)"),
        ([("matmul", 24)], "takes"),
        ([("mat mul", 24)], "unknown template 'mat mul'"),
        (5, "expected a list of them, got 5"),
        ("matmul", "expected a list of them, got 'matmul'"),
        ([lw.create_task(args, target=TARGET)], "is derived from its expression, no template"),
    ]
    for templates, text in cases:
        with pytest.raises(lw.LoopwrightError, match=text):
            lw.create_task(args, target=TARGET, templates=templates)
    with pytest.raises(lw.LoopwrightError, match="'matmul' is a template; others join the space"):
        lw.create_task("matmul", (24, 32, 16), TARGET, templates=[("matmul", 24, 32, 16)])
