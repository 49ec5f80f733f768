"""Instantiating: whatever a template raises costs one trial."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright.errors import InstantiationError
from loopwright.measure.building import instantiate
from loopwright.measure.result import ErrorKind, MeasureError


class Raising:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def instantiate(self, config: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(5), "SystemExit: 5"),
        (SystemExit("enough"), "SystemExit: enough"),
        (KeyError("k"), "KeyError: 'k'"),
        (GeneratorExit(), "GeneratorExit: "),
        (InstantiationError("too large"), "too large"),
    ],
)
def test_what_a_template_raises_is_an_instantiation_error(error: BaseException, text: str) -> None:
    assert instantiate(Raising(error), {}) == MeasureError(ErrorKind.INSTANTIATION, text)


def test_an_interrupt_passes() -> None:
    with pytest.raises(KeyboardInterrupt):
        instantiate(Raising(KeyboardInterrupt()), {})
