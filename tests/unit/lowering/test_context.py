"""`PassContext`, `Sequential` and passes of a user."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te, transform
from loopwright.errors import LowerError, UsageError
from loopwright.ir.expr import const
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Func, Store
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule
from loopwright.transform import PassContext, Sequential, func_pass, pass_order
from tests.unit.lowering.passes import blank, half, program


def running() -> list[str]:
    return [name for phase in pass_order() for name in phase]


def test_the_innermost_context_counts_alone() -> None:
    assert PassContext.current().opt_level == 2
    with PassContext(opt_level=3, disabled_pass=["UnrollLoop"]) as outer:
        assert PassContext.current() is outer
        with PassContext(opt_level=0):
            assert PassContext.current().opt_level == 0
            assert "UnrollLoop" in running()
        assert PassContext.current() is outer
        assert "UnrollLoop" not in running()
    assert PassContext.current().opt_level == 2


def test_a_context_may_be_entered_again_and_leaves_on_errors() -> None:
    context = PassContext(opt_level=1)
    with pytest.raises(KeyError), context, context:
        raise KeyError
    assert PassContext.current().opt_level == 2


def test_other_threads_have_their_own() -> None:
    seen = []
    with PassContext(opt_level=0):
        t = threading.Thread(target=lambda: seen.append(PassContext.current().opt_level))
        t.start()
        t.join()
    assert seen == [2]


def test_a_disabled_pass_does_not_run() -> None:
    s, args = program()
    assert "unrolled" in str(lower(s, args))
    with PassContext(disabled_pass=["tir.UnrollLoop"]):
        assert "unrolled" not in str(lower(s, args))


def test_a_required_pass_runs_at_any_level() -> None:
    assert "Blank" not in [p.name for p in (blank,) if PassContext(opt_level=1).enabled(p)]
    assert PassContext(opt_level=1, required_pass=["Blank"]).enabled(blank)
    assert not PassContext(required_pass=["Blank"], disabled_pass=["Blank"]).enabled(blank)


def test_sequential_skips_by_level_and_a_direct_call_does_not() -> None:
    f = lower(*program())
    both = Sequential([blank], name="both")
    with PassContext(opt_level=1):
        assert both(f) is f
        assert str(blank(f)).endswith(":\n  pass")
    assert str(both(f)).endswith(":\n  pass")
    assert repr(both) == "both[Blank]"
    assert repr(blank) == "Blank(opt_level=2)"
    assert both.passes[0] is blank


@pytest.mark.parametrize("key", ["add_lower_pass", "tir.add_lower_pass"])
@pytest.mark.parametrize("phase", [0, 1, 2, 3])
def test_a_users_pass_runs_after_its_phase(key: str, phase: int) -> None:
    s, args = program()
    with PassContext(config={key: [(phase, half)]}):
        assert pass_order()[phase][-1] == "half"
        f = lower(s, args)
    out = np.zeros((4, 4), "float32")
    interpret(f, [np.ones((4, 4), "float32"), out])
    assert out[0, 0] == 0.5
    assert out[3, 3] == 2


def test_a_users_pass_is_compiled_in() -> None:
    s, args = program()
    with PassContext(config={"add_lower_pass": [(1, half)]}):
        f = lw.build(s, args)
    out = np.zeros((4, 4), "float32")
    f(np.ones((4, 4), "float32"), out)
    assert out[0, 0] == 0.5


@pytest.mark.parametrize("options", [{"opt_level": 1}, {"disabled_pass": ["Blank"]}])
def test_level_and_disabled_hold_for_added_passes_too(options: dict[str, Any]) -> None:
    s, args = program()
    with PassContext(config={"add_lower_pass": [(1, blank)]}, **options):
        assert "Blank" not in running()
        assert "for i in" in str(lower(s, args))
    with PassContext(config={"add_lower_pass": [(1, blank)]}):
        assert "Blank" in running()
        assert "for i in" not in str(lower(s, args))


def test_a_pass_made_of_a_mutator() -> None:
    class Doubled(transform.StmtMutator):
        def visit_Store(self, store: Store) -> Store:
            return Store(store.buffer, store.indices, store.value * 2.0)

    def doubled(f: Func) -> Func:
        return f.with_body(Doubled().visit(f.body))

    s, args = program()
    with PassContext(config={"add_lower_pass": [(1, doubled)]}):
        f = lw.build(s, args, "interp")
    out = np.zeros((4, 4), "float32")
    f(np.ones((4, 4), "float32"), out)
    assert (out == 4).all()


def test_a_pass_takes_a_function() -> None:
    s, _ = program()
    with pytest.raises(LowerError, match=r"pass Simplify: takes a Func, .* got a Schedule"):
        transform.Simplify(s)  # type: ignore[arg-type]


def test_settings_for_other_processes() -> None:
    assert PassContext(required_pass=["Blank"], config={"verify": True}).to_json() == {}
    off = {"tir.disable_vectorize": False, "unroll_max_step": 0, "add_lower_pass": []}
    assert PassContext(config=off).to_json() == {}
    made = PassContext(
        3,
        required_pass=["tir.UnrollLoop", "Simplify"],
        disabled_pass=["StorageRewrite", "Blank"],
        config={"tir.partition_cap": 0, "unroll_max_step": 4},
    )
    said = {
        "opt_level": 3,
        "required_pass": ["Simplify", "UnrollLoop"],
        "disabled_pass": ["StorageRewrite"],
        "config": {"partition_cap": 0, "unroll_max_step": 4},
    }
    assert made.to_json() == said
    assert PassContext.from_json(said).to_json() == said


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"instruments": [transform.PassTimingInstrument()]}, "its instruments live in this"),
        ({"config": {"add_lower_pass": [(1, blank)]}}, "its passes of add_lower_pass live in this"),
    ],
)
def test_functions_do_not_travel(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what + " process, .* tune outside of this context"):
        PassContext(**options).to_json()


def test_simple_mode_runs_no_pass() -> None:
    s, args = program()
    with PassContext(config={"add_lower_pass": [(0, blank)]}):
        assert "for i in range(4)" in str(lower(s, args, simple_mode=True))


def test_verify_finds_what_a_pass_breaks() -> None:
    def broken(f: Func) -> Func:
        i = f.body.children()[0]
        return f.with_body(Store(f.params[1], (i, i), const(0.5, "float32")))

    s, args = program()
    text = "verify after pass broken: function 'main': variable 'i' is used where it is not defined"
    with (
        PassContext(config={"add_lower_pass": [(0, broken)], "verify": True}),
        pytest.raises(LowerError, match=text),
    ):
        lower(s, args)
    with PassContext(config={"add_lower_pass": [(0, broken)], "verify": False}):
        assert "B[i, i] = 0.5" in str(lower(s, args))


def test_a_pass_must_return_a_function() -> None:
    def forgetful(f: Func) -> Any:
        return None

    s, args = program()
    with (
        PassContext(config={"add_lower_pass": [(2, forgetful)]}),
        pytest.raises(LowerError, match="pass forgetful: gave a NoneType; a pass takes a Func"),
    ):
        lower(s, args)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"opt_level": 4}, "PassContext: opt_level 4 is not 0, 1, 2 or 3"),
        ({"opt_level": True}, "PassContext: opt_level True is not"),
        ({"disabled_pass": "UnrollLoop"}, "disabled_pass is a list of names, got the text"),
        (
            {"disabled_pass": ["UnrolLoop"]},
            r"unknown pass 'UnrolLoop' \(did you mean 'UnrollLoop'\?\); passes are .*LoopPartition",
        ),
        ({"required_pass": ["tir.Nothing"]}, "unknown pass 'tir.Nothing'"),
        (
            {"config": {"tir.verifi": True}},
            r"unknown config key 'tir.verifi' \(did you mean 'verify'\?\); keys are add_lower_pass",
        ),
        ({"config": {"verify": 1}}, "config 'verify' must be True or False, got 1"),
        ({"config": {"partition_cap": -1}}, "'partition_cap' must be a whole number of 0 or more"),
        (
            {"config": {"add_lower_pass": [(4, blank)]}},
            r"'add_lower_pass' must be a list of \(phase 0 to 3, pass\)",
        ),
        ({"config": ["verify"]}, r"config is a dictionary of settings, got \['verify'\]"),
        ({"opt_level": 2.0}, "opt_level 2.0 is not 0, 1, 2 or 3"),
        ({"config": {"add_lower_pass": [(True, blank)]}}, r"must be a list of \(phase 0 to 3"),
        ({"instruments": 3}, r"PassContext: instruments is a list, got 3; write \[3\]"),
        ({"disabled_pass": 5}, r"PassContext: disabled_pass is a list, got 5; write \[5\]"),
        ({"instruments": [3]}, "PassContext: 3 is no instrument; derive a class from"),
        (
            {"instruments": [transform.PassTimingInstrument]},
            "PassTimingInstrument'> is no instrument; .* and give an object of it",
        ),
    ],
)
def test_what_does_not_exist_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        PassContext(**options)


def test_a_context_that_an_instrument_refuses_is_not_entered() -> None:
    class Late(transform.PassInstrument):
        def enter_pass_ctx(self) -> None:
            raise RuntimeError("not now")

    with (
        pytest.raises(RuntimeError, match="not now"),
        PassContext(opt_level=0, instruments=[Late()]),
    ):
        pass
    assert PassContext.current().opt_level == 2


def test_pass_names() -> None:
    with pytest.raises(UsageError, match="func_pass: 'UnrollLoop' is a pass of loopwright"):
        func_pass(opt_level=1, name="UnrollLoop")(lambda f: f)
    with pytest.raises(UsageError, match="func_pass: opt_level 9"):
        func_pass(opt_level=9)
    with pytest.raises(UsageError, match="7 is not a pass; use a function from Func to Func"):
        Sequential([7])  # type: ignore[list-item]
    first = func_pass(opt_level=1, name="Again")(lambda f: f)
    second = func_pass(opt_level=3, name="Again")(lambda f: f)
    assert (first.opt_level, second.opt_level) == (1, 3)


def test_a_pass_of_a_function_without_a_module_is_no_part_of_the_key() -> None:
    """As of functions that are made by ``exec``."""
    before = PassContext().to_json()
    scope: dict[str, Any] = {"__name__": None}
    exec("def unnamed(f):\n    return f", scope)
    assert scope["unnamed"].__module__ is None
    func_pass(opt_level=1, name="Unnamed")(scope["unnamed"])
    assert PassContext().to_json() == before


def test_a_context_shows_what_it_is() -> None:
    context = PassContext(3, disabled_pass=["Blank"], config={"tir.partition_cap": 8})
    assert repr(context) == (
        "PassContext(opt_level=3, required_pass=[], disabled_pass=['Blank'], "
        "config={'partition_cap': 8})"
    )


# ---------------------------------------------------------------- configuration


def partitioned() -> tuple[Schedule, list[te.Tensor]]:
    a = te.placeholder((10,), name="A")
    b = te.compute((10,), lambda i: a[i] + 1.0, name="B")
    s = create_schedule(b)
    _, inner = s[b].split(b.op.axis[0], factor=4)
    s[b].unroll(inner)
    return s, [a, b]


@pytest.mark.parametrize(
    ("options", "copies"),
    [
        ({}, 2),
        ({"config": {"partition_cap": 4}}, 2),
        ({"config": {"partition_cap": 3}}, 1),
        ({"config": {"partition_cap": 0}}, 1),
        ({"disabled_pass": ["LoopPartition"]}, 1),
        ({"opt_level": 0}, 1),
    ],
)
def test_partition_can_be_limited_and_switched_off(options: dict[str, Any], copies: int) -> None:
    s, args = partitioned()
    with PassContext(**options):
        f = lower(s, args)
    assert len(re.findall("unrolled", str(f))) == copies
    a, out = np.arange(10, dtype="float32"), np.zeros(10, "float32")
    interpret(f, [a, out])
    np.testing.assert_array_equal(out, a + 1)


def test_a_limit_of_unrolling_without_pragmas() -> None:
    a = te.placeholder((6, 4), name="A")
    b = te.compute((6, 4), lambda i, j: a[i, j] + 1.0, name="B")
    s = create_schedule(b)
    with PassContext(config={"unroll_max_step": 4}):
        assert "for j in unrolled(4)" in str(lower(s, [a, b]))
    assert "unrolled" not in str(lower(s, [a, b]))


def test_public_names() -> None:
    assert lw.PassContext is PassContext
    assert lw.transform is transform
    assert all(hasattr(transform, name) for name in transform.__all__)
