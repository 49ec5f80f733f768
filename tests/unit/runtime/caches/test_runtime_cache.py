"""Values in memory by bytes: against a list that keeps the order of use, and from many threads."""

from __future__ import annotations

import gc
import random
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from loopwright.errors import UsageError
from loopwright.runtime import RuntimeCache
from loopwright.runtime.caches import DEFAULT_LIMIT, cache_totals

KEYS = st.sampled_from("abcdef")
LIMIT = 20


class LeastRecentlyUsed(RuleBasedStateMachine):
    """A cache beside a plain list of ``[key, value, bytes]``, the latest use at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: RuntimeCache[object] = RuntimeCache(LIMIT)
        self.model: list[tuple[str, object, int]] = []
        self.hits = self.misses = self.evictions = 0

    @rule(key=KEYS, size=st.integers(0, LIMIT + 5))
    def put(self, key: str, size: int) -> None:
        value = object()
        self.model = [entry for entry in self.model if entry[0] != key]
        assert self.cache.put(key, value, size) == (size <= LIMIT)
        if size > LIMIT:
            return
        while sum(n for _, _, n in self.model) + size > LIMIT:
            self.model.pop(0)
            self.evictions += 1
        self.model.append((key, value, size))

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        entry = next((entry for entry in self.model if entry[0] == key), None)
        assert self.cache.get(key) is (entry[1] if entry else None)
        self.hits += entry is not None
        self.misses += entry is None
        if entry:
            self.model.remove(entry)
            self.model.append(entry)

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        assert self.cache.remove(key) == any(entry[0] == key for entry in self.model)
        self.model = [entry for entry in self.model if entry[0] != key]

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.model = []

    @invariant()
    def agrees(self) -> None:
        assert {key for key in "abcdef" if key in self.cache} == {entry[0] for entry in self.model}
        seen = self.cache.statistics()
        total = sum(n for _, _, n in self.model)
        assert (seen.entries, seen.nbytes, seen.limit) == (len(self.model), total, LIMIT)
        counts = (self.hits, self.misses, self.evictions)
        assert (seen.hits, seen.misses, seen.evictions) == counts


LeastRecentlyUsed.TestCase.settings = settings(max_examples=30, deadline=None)
TestLeastRecentlyUsed = LeastRecentlyUsed.TestCase


def test_a_key_that_is_put_again_counts_once() -> None:
    cache: RuntimeCache[bytes] = RuntimeCache(10)
    for _ in range(5):
        assert cache.put("a", b"12345678")
    assert (cache.nbytes, len(cache)) == (8, 1)
    assert cache.put("a", b"12")
    assert cache.nbytes == 2
    assert cache.statistics().evictions == 0


def test_what_is_too_large_is_skipped_and_takes_its_stale_value_along() -> None:
    cache: RuntimeCache[bytes] = RuntimeCache(4)
    assert cache.put("a", b"old")
    assert cache.put("b", b"1")
    assert not cache.put("a", b"larger")
    assert cache.get("a") is None, "the value before this one is out of date"
    assert cache.get("b") == b"1", "nothing else had to go for it"


def test_a_value_that_was_got_stays_longer() -> None:
    cache: RuntimeCache[bytes] = RuntimeCache(3)
    for key in "abc":
        cache.put(key, b"1")
    cache.get("a")
    cache.put("d", b"1")
    assert [key in cache for key in "abcd"] == [True, False, True, True]


@pytest.mark.parametrize("value", [b"1234", bytearray(4), np.zeros(4, "int8")])
def test_bytes_of_a_value(value: Any) -> None:
    cache: RuntimeCache[Any] = RuntimeCache()
    cache.put(0, value)
    assert cache.nbytes == 4
    assert cache.limit == DEFAULT_LIMIT == 1 << 30


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.put("a", None), "keeps no None"),
        (lambda c: c.put("a", object()), "an? object does not tell its bytes; pass nbytes"),
        (lambda c: c.put("a", b"", -1), "nbytes is -1"),
        (lambda c: c.put("a", b"", True), "nbytes is True"),
        (lambda c: RuntimeCache(-1), "limit is -1"),
        (lambda c: RuntimeCache(1.5), "limit is 1.5"),
    ],
)
def test_what_cannot_be_counted_is_refused(call: Any, message: str) -> None:
    cache: RuntimeCache[Any] = RuntimeCache(10)
    cache.put("a", b"kept")
    with pytest.raises(UsageError, match=message):
        call(cache)
    assert cache.get("a") == b"kept"


def test_a_cache_that_is_not_counted_leaves_nothing() -> None:
    before = cache_totals()
    cache: RuntimeCache[int] = RuntimeCache(2, counted=False)
    cache.get("a")
    assert cache.statistics().misses == 1
    assert cache_totals() == before


def test_threads_together_keep_the_limit_and_lose_no_count() -> None:
    cache: RuntimeCache[bytes] = RuntimeCache(200)
    wrong: list[object] = []

    def work(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(2000):
            key = draw.randrange(12)
            value = cache.get(key)
            if value is not None and value[:1] != bytes([key]):
                wrong.append(value)
            cache.put(key, bytes([key]) * draw.randrange(1, 60))
            if not 0 <= cache.nbytes <= 200:
                wrong.append(cache.nbytes)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    seen = cache.statistics()
    assert seen.hits + seen.misses == 4 * 2000
    assert seen.nbytes == sum(len(cache.get(key) or b"") for key in range(12))


def test_a_value_is_made_once_for_all_threads_that_wait_for_it() -> None:
    cache: RuntimeCache[bytes] = RuntimeCache()
    made: list[int] = []
    results: list[bytes] = []
    begin = threading.Barrier(4)

    def make() -> bytes:
        made.append(1)
        time.sleep(0.05)
        return b"value"

    def work() -> None:
        begin.wait()
        results.append(cache.get_or_make("key", make))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), results) == (1, [b"value"] * 4)


def test_making_one_key_holds_up_no_other_and_a_failure_keeps_nothing() -> None:
    cache: RuntimeCache[bytes] = RuntimeCache()

    def outer() -> bytes:
        other = threading.Thread(target=cache.put, args=("other", b"1"))
        other.start()
        other.join(timeout=10)
        assert not other.is_alive()
        return cache.get_or_make("inner", lambda: b"2")

    assert cache.get_or_make("outer", outer) == b"2"

    def fail() -> bytes:
        raise ValueError("no compiler")

    with pytest.raises(ValueError, match="no compiler"):
        cache.get_or_make("bad", fail)
    assert cache.get_or_make("bad", lambda: b"3") == b"3"


def test_counts_of_all_caches_outlive_them() -> None:
    hits, misses = cache_totals()
    first: RuntimeCache[bytes] = RuntimeCache()
    second: RuntimeCache[bytes] = RuntimeCache()
    first.put("a", b"1")
    first.get("a")
    second.get("a")
    assert cache_totals() == (hits + 1, misses + 1)
    del first
    gc.collect()
    assert cache_totals() == (hits + 1, misses + 1)
    second.get("a")
    assert cache_totals() == (hits + 1, misses + 2)
