"""Bytes in a folder: whole or missing, whoever else writes, reads and removes there."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright.errors import UsageError
from loopwright.runtime import caches as programs
from loopwright.runtime.caches import FileStore, ProgramCache, content_key, program_cache

ROOT = Path(__file__).parents[4]
CHECKSUM = 65


def size_of(folder: Path, suffix: str = ".entry") -> int:
    return sum(path.stat().st_size for path in folder.glob(f"*{suffix}"))


def test_bytes_come_back_whatever_they_are(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "kept", 1 << 20)
    assert store.get("a") is None, "there is not even a folder"
    for body in (b"", b"\n", b"a\nb\n", bytes(range(256)), random.Random(0).randbytes(10_000)):
        store.put("a", body)
        assert store.get("a") == body
    assert oct((tmp_path / "kept").stat().st_mode)[-3:] == "700"


def test_any_damage_counts_as_missing(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "kept", 1 << 20)
    store.put("a", b"some bytes")
    whole = store.path("a").read_bytes()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1
        for damaged in (changed, whole[:at]):
            store.path("a").unlink()
            store.path("a").write_bytes(damaged)
            assert store.get("a") is None


@pytest.mark.parametrize("key", ["", "../a", "a/b", "a.b", "x" * 129, "ä", "a\n"])
def test_a_key_is_the_name_of_a_file_and_nothing_else(tmp_path: Path, key: str) -> None:
    store = FileStore(tmp_path / "kept", 1 << 20)
    for call in (lambda: store.get(key), lambda: store.put(key, b"")):
        with pytest.raises(UsageError, match="cannot name a file"):
            call()
    assert not (tmp_path / "kept").exists()


def test_what_is_larger_than_the_limit_is_not_kept_nor_what_it_replaces(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "kept", 100)
    store.put("a", b"1" * (100 - CHECKSUM))
    assert store.get("a") == b"1" * (100 - CHECKSUM)
    store.put("a", b"2" * (101 - CHECKSUM))
    assert store.get("a") is None


def test_one_process_keeps_the_folder_near_its_limit(tmp_path: Path) -> None:
    store, limit = FileStore(tmp_path / "kept", 10_000), 10_000
    for i in range(300):
        store.put(f"k{i}", b"x" * 500)
        assert size_of(store.folder) <= 1.1 * limit + 500 + CHECKSUM
    assert size_of(store.folder) > limit / 2
    assert store.get("k299") is not None


def test_stores_of_other_suffixes_share_a_folder_and_not_a_limit(tmp_path: Path) -> None:
    FileStore(tmp_path / "kept", 1 << 20, ".kernel").put("a", b"x" * 1000)
    FileStore(tmp_path / "kept", 200, ".program").put("a", b"y" * 100)
    assert FileStore(tmp_path / "kept", 1 << 20, ".kernel").get("a") == b"x" * 1000
    assert FileStore(tmp_path / "kept", 200, ".program").get("a") == b"y" * 100


# Each key has bytes that follow from it, of a length that differs from turn to turn, so that a
# mixture of two writings would be seen. A failure prints what came.
PROCESS = """
import hashlib, random, sys
from pathlib import Path
from loopwright.runtime.caches import FileStore
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
store, draw, got = FileStore(folder, 30_000), random.Random(seed), 0
for turn in range(200):
    key = f"k{draw.randrange(40)}"
    block = hashlib.sha256(key.encode()).digest()
    if draw.random() < 0.6:
        store.put(key, block * draw.randrange(1, 100))
    body = store.get(key)
    if body is not None:
        got += 1
        assert body and body == block * (len(body) // 32), (key, body[:64])
print(got)
"""


def test_several_processes_put_get_and_remove_at_the_same_time(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(folder), str(seed)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(3)
    ]
    outputs = [worker.communicate(timeout=240) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 3, outputs
    assert all(int(out) > 50 for out, _ in outputs), "so much was found that it says something"
    assert not list(folder.glob(".new-*"))
    # Each may have written a tenth of the limit since it looked, and one entry more.
    assert 0 < size_of(folder) <= 30_000 * 1.1 + 3 * (3_000 + 3_200 + CHECKSUM)
    FileStore(folder, 30_000).put("last", b"1")
    assert size_of(folder) <= 30_000
    for path in folder.glob("*.entry"):
        digest, _, body = path.read_bytes().partition(b"\n")
        assert hashlib.sha256(body).hexdigest().encode() == digest


def test_code_is_found_by_what_decides_it() -> None:
    facts = ("kernel void f() {}", "-O2", b"header", 3, None)
    assert content_key(*facts) == content_key(*facts)
    others = [
        ("kernel void f() { }", *facts[1:]),
        (*facts[:3], "3", None),
        (*facts[:3], 3, ""),
        (*facts[:2], "header", 3, None),
        facts[:4],
        ("kernel void f() {}-O2", "", *facts[2:]),
        (*facts[:3], 3, False),
    ]
    assert len({content_key(*facts), *(content_key(*o) for o in others)}) == len(others) + 1
    with pytest.raises(UsageError, match="a float is no part of a key"):
        content_key(1.5)  # type: ignore[arg-type]


def test_code_is_in_memory_and_on_disk_for_those_who_come_after(tmp_path: Path) -> None:
    key = content_key("source")
    first = ProgramCache(tmp_path / "kept")
    assert first.get_or_make(key, lambda: b"code") == b"code"
    assert (first.hits, first.misses) == (0, 1)
    second = ProgramCache(tmp_path / "kept")
    assert key not in second
    assert second.get(key) == b"code"
    assert (second.hits, second.misses, second.nbytes) == (1, 0, 4)
    (entry,) = (tmp_path / "kept").iterdir()
    entry.unlink()
    assert second.get(key) == b"code", "it is in memory now"
    assert ProgramCache(tmp_path / "kept").get(key) is None
    with pytest.raises(UsageError, match="is no text"):
        second.put(3, b"")


def test_code_too_large_for_the_memory_is_read_from_disk(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path / "kept", limit=3)
    assert not cache.put("a", b"code")
    assert cache.get("a") == b"code"
    assert cache.nbytes == 0


def test_the_cache_of_the_process_follows_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (None, tmp_path / "kept"):
        program_cache.cache_clear()
        monkeypatch.setattr(programs.env, "cache_folder", lambda folder=folder: folder)
        program_cache().put("a", b"code")
        assert (tmp_path / "kept").exists() == (folder is not None)
    program_cache.cache_clear()
