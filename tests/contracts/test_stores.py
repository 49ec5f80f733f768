"""The log of records keeps to the contract of stores."""

from __future__ import annotations

from loopwright.records import Store, load
from loopwright.testing.store_contract import StoreContract


class TestFileStore(StoreContract):
    open = Store
    read = staticmethod(load)
