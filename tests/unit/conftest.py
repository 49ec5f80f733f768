"""What all unit tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.measuring import quick_measuring


@pytest.fixture(scope="module", autouse=True)
def _quick_measuring() -> Iterator[None]:
    with quick_measuring():
        yield
