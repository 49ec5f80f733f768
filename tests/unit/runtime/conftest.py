"""Neither the disk nor objects of other tests are waited for."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _quick_files_and_collections() -> Iterator[None]:
    """A flush to the disk takes milliseconds, and so does a collection that looks at all objects.

    Files of tests need not outlive the machine, and what existed before a test is none of its.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        gc.freeze()
        yield
        gc.unfreeze()
