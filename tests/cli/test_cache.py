"""``loopwright cache``: what is kept on disk, shown and cleared."""

from __future__ import annotations

import json
import os

import pytest

from loopwright import env
from loopwright.codegen import KernelCache
from loopwright.space import KeptDefaults


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "kept"
    monkeypatch.setattr(env, "cache_folder", lambda: folder)
    return folder


def test_it_shows_and_clears_what_is_kept(cli, folder):
    nothing = [
        str(folder),
        "  kernels: 0, 0.0 of 512 MiB",
        "  default schedules: 0, 0.0 of 64 MiB",
        "  programs: 0, 0.0 of 512 MiB",
    ]
    assert cli("cache").out.splitlines() == nothing
    assert cli("cache", "--clear") == (0, "\n".join([*nothing, ""]), "")
    assert not folder.exists(), "looking makes no folder"
    KernelCache(folder).store.put("a", b"x" * (3 << 19))
    for key in ("b", "c"):
        KeptDefaults(folder).put(key, [["annotate", 1, "a0", "vectorized"]])
    (folder / "notes.txt").write_text("a user's")
    assert cli("cache").out.splitlines()[1:3] == [
        "  kernels: 1, 1.5 of 512 MiB",
        "  default schedules: 2, 0.0 of 64 MiB",
    ]
    told = json.loads(cli("cache", "--json").out)
    assert told["folder"] == str(folder)
    assert [kind["entries"] for kind in told["kinds"]] == [1, 2, 0]
    assert told["kinds"][0]["bytes"] == sum(p.stat().st_size for p in folder.glob("*.kernel"))
    assert cli("cache", "--clear").out.splitlines() == nothing
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert KeptDefaults(folder).get("b") is None


def test_it_says_where_nothing_is_kept(cli, monkeypatch):
    monkeypatch.setattr(env, "cache_folder", lambda: None)
    assert cli("cache").out == "nothing is kept on disk, as LOOPWRIGHT_CACHE says\n"
    assert cli("cache", "--clear").code == 0
    assert json.loads(cli("cache", "--json").out) == {"folder": None, "kinds": []}


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_of_others_is_left_as_it_is(cli, folder):
    KeptDefaults(folder).put("b", [])
    folder.chmod(0o777)
    ran = cli("cache", "--clear")
    assert ran.code == 2
    assert "left as they are: others may write to it; chmod 700" in ran.error
    assert len(list(folder.iterdir())) == 1
    folder.chmod(0o700)
    (folder / "d.kernel").mkdir()
    ran = cli("cache", "--clear")
    assert ran.code == 2
    assert "cannot be removed" in ran.error


def test_a_file_in_place_of_the_folder(cli, folder):
    folder.write_text("a user's")
    assert cli("cache").code == 0
    assert "it is no folder" in cli("cache", "--clear").error
    assert folder.read_text() == "a user's"
