"""Outputs are written whole or not at all, and never over a file that is not ours."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright.errors import RunError, UsageError
from loopwright.files import FileKind, Output, check, marked, replaced, write

OURS = FileKind("a note", marked(b"# a note of ours"))
NEW = b"# a note of ours: 2\n"


def _write(path: Path, **options: bool) -> None:
    write(Output(path, NEW, OURS), **options)


@pytest.mark.parametrize("before", [None, b"", b"# a note of ours: 1\n"])
def test_ours_and_empty_files_are_replaced(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "note"
    if before is not None:
        path.write_bytes(before)
        path.chmod(0o640)
    _write(path)
    assert path.read_bytes() == NEW
    assert [p.name for p in tmp_path.iterdir()] == ["note"]
    mask = os.umask(0o022)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == (0o666 & ~mask if before is None else 0o640)


def test_a_file_of_somebody_else_is_replaced_by_force_alone(tmp_path: Path) -> None:
    path, link = tmp_path / "thesis.py", tmp_path / "link"
    link.symlink_to(path)
    for content in (b"x = 1\n", b"\0" * 300_000, b"x" * 5000 + b"# a note of ours"):
        path.write_bytes(content)
        for named in (path, link):
            for refused in (_write, lambda p: check((p, OURS))):
                with pytest.raises(UsageError, match=r"not a note of loopwright.*--force"):
                    refused(named)
            assert path.read_bytes() == content
        with pytest.raises(UsageError, match=r"remove that$"):
            write(Output(path, NEW, OURS), force=None)
    _write(link, force=True)
    assert path.read_bytes() == NEW
    assert link.is_symlink()


@pytest.mark.parametrize("name", ["n" * 255, "語" * 85, "with\nlines"])
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    _write(tmp_path / name)
    _write(tmp_path / name)
    assert os.listdir(tmp_path) == [name]


def test_links_lead_to_where_they_point(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    dangling, astray, circle = (tmp_path / n for n in ("dangling", "astray", "circle"))
    dangling.symlink_to(tmp_path / "there" / "note")
    astray.symlink_to(tmp_path / "nowhere" / "note")
    circle.symlink_to(circle)
    _write(dangling)
    assert (tmp_path / "there" / "note").read_bytes() == NEW
    for path, why in ((astray, "there is no folder"), (circle, "symbolic links")):
        with pytest.raises(RunError, match=why):
            _write(path)
        assert path.is_symlink()


def test_what_is_no_file_is_refused_whatever_is_asked(tmp_path: Path) -> None:
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    ends = os.pipe()
    unnamed = Path(f"/dev/fd/{ends[1]}")  # as /dev/stdout is before a pipe
    for path in (folder, pipe, Path(os.devnull), unnamed):
        for force in (False, True):
            with pytest.raises(RunError, match=r"it is a .*; name a file"):
                _write(path, force=force)
    assert pipe.is_fifo()
    for end in ends:
        os.close(end)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write any file")
def test_a_file_that_may_not_be_written_stays(tmp_path: Path) -> None:
    path = tmp_path / "note"
    path.write_bytes(b"# a note of ours: 1\n")
    path.chmod(0o444)
    with pytest.raises(RunError, match="Permission denied"):
        _write(path, force=True)


def test_all_are_written_or_none(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"# a note of ours: 1\n")
    second.write_bytes(b"mine")
    with pytest.raises(UsageError):
        write(Output(first, NEW, OURS), Output(second, NEW, OURS))
    assert first.read_bytes() == b"# a note of ours: 1\n"
    write(Output(first, NEW, OURS), Output(second, NEW, OURS), force=True)
    assert first.read_bytes() == second.read_bytes() == NEW


def test_a_writer_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "note"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replaced(path) as file:
        file.write(b"half" + bytes(1 // int(path.read_bytes() == b"new")))
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["note"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    """A limit of the size of files fails in the middle of a write, as a full disk does."""
    path = tmp_path / "note"
    path.write_bytes(b"# a note of ours: 1\n")
    limit = resource.RLIMIT_FSIZE
    code = (
        f"import resource; resource.setrlimit({limit}, (4096, 4096))\n"
        "from loopwright.files import *; from pathlib import Path\n"
        "kind = FileKind('a note', marked(b'# a note of ours'))\n"
        f"write(Output(Path({str(path)!r}), b'# a note of ours' * 4096, kind))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 1
    assert f"RunError: cannot write {path}: File too large" in ran.stderr
    assert path.read_bytes() == b"# a note of ours: 1\n"
    assert [p.name for p in tmp_path.iterdir()] == ["note"]
