"""Instruments: what they are told about passes, and what they may decide."""

from __future__ import annotations

import io
import re
from typing import Any

from loopwright import transform
from loopwright.ir.stmt import Func
from loopwright.lowering import lower
from loopwright.transform import PassContext, Sequential, func_pass
from tests.unit.lowering.passes import blank, half, program


class Log(transform.PassInstrument):
    """Writes down every call; may veto one pass."""

    def __init__(self, veto: str = "") -> None:
        self.lines: list[str] = []
        self.veto = veto

    def enter_pass_ctx(self) -> None:
        self.lines.append("enter")

    def exit_pass_ctx(self) -> None:
        self.lines.append("exit")

    def should_run(self, f: Func, info: transform.Pass) -> bool:
        return info.name != self.veto

    def run_before_pass(self, f: Func, info: transform.Pass) -> None:
        self.lines.append(f"before {info.name}")

    def run_after_pass(self, f: Func, info: transform.Pass) -> None:
        self.lines.append(f"after {info.name}")


def test_instruments_are_called_around_every_pass() -> None:
    f, log = lower(*program()), Log()
    with PassContext(instruments=[log]):
        Sequential([half, blank])(f)
    assert log.lines == [
        "enter", "before half", "after half", "before Blank", "after Blank", "exit",
    ]  # fmt: skip


def test_an_instrument_can_veto() -> None:
    f, log = lower(*program()), Log("half")
    with PassContext(instruments=[transform.PassInstrument(), log]):
        Sequential([half, blank])(f)
    assert log.lines == ["enter", "before Blank", "after Blank", "exit"]


def test_timing() -> None:
    s, args = program()
    timing = transform.PassTimingInstrument()
    with PassContext(instruments=[timing]):
        lower(s, args)
        lower(s, args)
    assert timing.calls["UnrollLoop"] == 2
    assert timing.seconds["UnrollLoop"] > 0
    lines = timing.render().splitlines()
    assert any(re.fullmatch(r"UnrollLoop +2 +\d+\.\d{3} ms", line) for line in lines)
    assert re.fullmatch(r"total +\d+\.\d{3} ms", lines[-1])


def test_printing() -> None:
    f = lower(*program())
    before, after, changed = io.StringIO(), io.StringIO(), io.StringIO()
    same = func_pass(opt_level=0, name="Same")(lambda f: f)
    with PassContext(
        instruments=[
            transform.PrintBeforeAll(before),
            transform.PrintAfterAll(after),
            transform.PrintChanged(changed),
        ]
    ):
        Sequential([same, blank])(f)
    assert before.getvalue() == f"# before Same\n{f}\n# before Blank\n{f}\n"
    assert after.getvalue() == f"# after Same\n{f}\n# after Blank\n{blank(f)}\n"
    assert changed.getvalue() == f"# changed by Blank\n{blank(f)}\n"


def test_printing_goes_to_standard_output(capsys: Any) -> None:
    f = lower(*program())
    with PassContext(instruments=[transform.PrintAfterAll()]):
        blank(f)
    assert capsys.readouterr().out.startswith("# after Blank\ndef main(")
