"""Kernels kept on disk: found again by all that decides their code, and never when damaged."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopwright import env, te
from loopwright.codegen import build as building
from loopwright.codegen import kernel_cache
from loopwright.codegen.kernel_cache import KernelCache
from loopwright.driver import build
from loopwright.lowering.context import PassContext
from loopwright.runtime import Module
from loopwright.schedule import create_schedule
from loopwright.transform import PrintBeforeAll


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelCache:
    """A cache of this test alone, which `build` uses."""
    cache = KernelCache(tmp_path / "kernels")
    monkeypatch.setattr(building, "kernel_cache", lambda: cache)
    return cache


def double(n: int = 8, factor: float = 2.0, split: int = 4, **options: Any) -> Module:
    """Build ``b = factor * a`` with the cache."""
    a = te.placeholder((n,), "float32", name="a")
    b = te.compute((n,), lambda i: a[i] * te.const(factor, "float32"), name="b")
    s = create_schedule(b.op)
    s[b].split(b.op.axis[0], factor=split)
    return build(s, [a, b], **{"cache": True, **options})


def ran(module: Module, n: int = 8) -> list[float]:
    a, b = np.arange(n, dtype="float32"), np.zeros(n, "float32")
    module(a, b)
    return list(b)


def entry(cache: KernelCache) -> Path:
    (path,) = cache.folder.iterdir()
    return path


def test_the_second_build_compiles_nothing(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = double()
    with monkeypatch.context() as patch:
        patch.setattr(building, "_build", None)
        second = double()
        assert ran(second) == [2.0 * i for i in range(8)]
    assert second.artifact == first.artifact
    assert (cache.hits, cache.misses) == (1, 1)
    # Its texts are those of the first, and are written when asked for.
    for kind in ("ll", "asm", "ir"):
        assert second.get_source(kind) == first.get_source(kind)
    assert oct(cache.folder.stat().st_mode)[-3:] == "700"


@pytest.mark.parametrize(
    "other",
    [
        {"factor": 3.0},
        {"split": 2},
        {"n": 16},
        {"name": "another"},
        {"target": "llvm -num-threads=1"},
        {"target": "c"},
    ],
)
def test_what_decides_the_code_is_in_the_key(cache: KernelCache, other: dict[str, Any]) -> None:
    double()
    n, factor = other.get("n", 8), other.get("factor", 2.0)
    assert ran(double(**other), n) == [factor * i for i in range(n)]
    assert (cache.hits, cache.misses) == (0, 2)


def test_settings_of_the_passes_and_the_compiler_are_in_the_key(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    double()
    with PassContext(opt_level=0):
        double()
    monkeypatch.setattr(kernel_cache, "build_hash", lambda *args: "another compiler")
    double()
    monkeypatch.setattr(kernel_cache, "_sources", lambda: "other targets")
    double()
    monkeypatch.setattr(kernel_cache, "__version__", "9.9")
    double()
    assert (cache.hits, cache.misses) == (0, 5)
    with PassContext(instruments=[PrintBeforeAll()]):
        double()  # an instrument wants to see the passes
    assert (cache.hits, cache.misses) == (0, 5)


def test_not_kept_unless_asked_for_or_chosen_by_a_record(cache: KernelCache) -> None:
    double(cache=None)
    double(cache=False)
    double(target="interp")
    assert not cache.folder.exists()


@pytest.mark.parametrize("at", [0, 70, 300, -1])
def test_a_damaged_entry_is_built_again(cache: KernelCache, at: int) -> None:
    double()
    whole = bytearray(entry(cache).read_bytes())
    whole[at] ^= 1
    for damaged in (bytes(whole), bytes(whole[:at]), b""):
        entry(cache).write_bytes(damaged)
        before = cache.misses
        assert ran(double()) == [2.0 * i for i in range(8)]
        assert cache.misses == before + 1
        double()
        assert cache.misses == before + 1  # it has been mended


def test_the_folder_of_another_user_is_not_trusted(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    double()
    cache.folder.chmod(0o777)
    assert ran(double()) == [2.0 * i for i in range(8)]
    assert "others may write to it" in caplog.text
    cache.folder.chmod(0o700)
    # An entry that is a link, or belongs to somebody else, is not read either.
    real = entry(cache).rename(cache.folder.parent / "elsewhere")
    (cache.folder / real.name).symlink_to(real)
    double()
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    double()
    assert "it belongs to another user" in caplog.text
    assert cache.hits == 0


def test_a_folder_that_cannot_be_written_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    cache = KernelCache(tmp_path / "file" / "kernels")
    monkeypatch.setattr(building, "kernel_cache", lambda: cache)
    for _ in range(2):
        assert ran(double()) == [2.0 * i for i in range(8)]
    assert len(caplog.records) == 1
    assert "kernels cannot be kept" in caplog.text


def test_what_was_used_least_lately_goes_first(tmp_path: Path) -> None:
    artifact = double(cache=False).artifact
    cache = KernelCache(tmp_path / "kernels")
    cache.put("0", artifact)
    size = entry(cache).stat().st_size
    for key in "1234":
        cache.put(key, artifact)
    for age, name in enumerate(["0.kernel", "3.kernel", "2.kernel", "1.kernel", "4.kernel"]):
        os.utime(cache.folder / name, (1e9 - age, 1e9 - age))
    (cache.folder / "abandoned.partial").write_text("")
    os.utime(cache.folder / "abandoned.partial", (1e9, 1e9))
    (cache.folder / "fresh.partial").write_text("")
    assert cache.get("4") is not None  # used: it is the latest now
    KernelCache(cache.folder, 4 * size).put("5", artifact)
    assert {path.name for path in cache.folder.iterdir()} == {
        *("4.kernel", "5.kernel", "0.kernel"),
        "fresh.partial",
    }


def test_several_write_and_read_at_the_same_time(tmp_path: Path) -> None:
    artifact = double(cache=False).artifact
    alone = KernelCache(tmp_path / "alone")
    alone.put("0", artifact)
    limit = 2 * entry(alone).stat().st_size
    wrong, right = [], []

    def work() -> None:
        cache = KernelCache(tmp_path / "kernels", limit)
        for turn in range(40):
            cache.put(str(turn % 3), artifact)
            found = cache.get(str(turn % 3))
            if found is not None:
                (right if found == artifact else wrong).append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right
    assert not wrong
    assert not list((tmp_path / "kernels").glob(".new-*"))


@pytest.fixture
def clean_settings() -> Iterator[None]:
    env.settings.cache_clear()
    yield
    env.settings.cache_clear()


@pytest.mark.usefixtures("clean_settings")
@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"LOOPWRIGHT_CACHE": "0"}, None),
        ({"LOOPWRIGHT_CACHE": "/some/where"}, "/some/where"),
        ({"LOOPWRIGHT_CACHE": "1", "XDG_CACHE_HOME": "/c"}, "/c/loopwright/kernels"),
        (
            {"LOOPWRIGHT_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/h"},
            "/h/.cache/loopwright/kernels",
        ),
    ],
)
def test_where_it_is(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], folder: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert env.cache_folder() == (None if folder is None else Path(folder))


def test_another_process_finds_it(tmp_path: Path) -> None:
    script = (
        "from loopwright.codegen.kernel_cache import kernel_cache\n"
        "from tests.unit.driver.test_kernel_cache import double, ran\n"
        "assert ran(double())[3] == 6\n"
        "print(kernel_cache().hits)\n"
    )
    environ = {**os.environ, "LOOPWRIGHT_CACHE": str(tmp_path / "kernels")}
    hits = [
        subprocess.run(
            [sys.executable, "-c", script],
            env=environ,
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for _ in range(2)
    ]
    assert hits == ["0\n", "1\n"]
