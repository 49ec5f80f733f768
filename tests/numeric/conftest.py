"""One guarded process for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loopwright.testing.differential import Checker


@pytest.fixture(scope="session")
def checker() -> Iterator[Checker]:
    checker = Checker()
    yield checker
    checker.close()
