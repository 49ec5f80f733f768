"""sdist and wheel hold what they should, and the wheel serves who has nothing else.

`make package` builds both, the wheel from the sdist, and runs these tests: the wheel is installed
in a virtual environment without development tools, and used from a folder without sources.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from packaging.metadata import Metadata

from loopwright.version import __version__

pytestmark = [pytest.mark.package, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
ASSETS = ROOT / "loopwright" / "inspection" / "report" / "assets"
DENSE = ("dense", "M=1", "N=64", "K=64")
LOG = "dense.jsonl"

#: Every module but the suites for those who write stores and targets, which need pytest.
IMPORT_ALL = """
import importlib, pkgutil, loopwright
for found in pkgutil.walk_packages(loopwright.__path__, "loopwright."):
    if not found.name.startswith("loopwright.testing") and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
print(loopwright.__file__)
"""


def built(pattern: str) -> Path:
    """The one file in ``dist/`` of a kind."""
    found = sorted(DIST.glob(pattern))
    if len(found) != 1:
        pytest.fail(f"dist/ holds {len(found)} of {pattern}: run `make package`, which builds them")
    return found[0]


@pytest.fixture(scope="module")
def wheel() -> Path:
    return built("loopwright-*.whl")


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Metadata:
    """What the wheel says of itself, with every field validated."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Metadata.from_email(archive.read(name))


class User:
    """Who installed the wheel, and nothing else, in an environment of their own.

    Args:
        wheel: what they install.
        folder: an empty one, where they work.
    """

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.programs = folder / "venv" / "bin"
        ours = ("PYTHON", "LOOPWRIGHT", "VIRTUAL_ENV")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        self.env["LOOPWRIGHT_CACHE"] = str(folder / "kernels")
        subprocess.run([sys.executable, "-m", "venv", self.programs.parent], check=True)
        self.does("python", "-m", "pip", "install", "--quiet", str(wheel))

    def does(self, program: str, *words: str) -> str:
        """Run a program of the environment, which has to succeed; what it printed."""
        done = subprocess.run(
            [self.programs / program, *words],
            cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, f"{program} {' '.join(words)}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def user(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> User:
    return User(wheel, tmp_path_factory.mktemp("user"))


@pytest.fixture(scope="module")
def verdict(user: User) -> str:
    """What a small run said, which left a log in the user's folder."""
    return user.does("loopwright", "tune", *DENSE, "--trials", "4", "--log", LOG)


def test_the_wheel_holds_the_files_of_the_package_and_no_others(wheel: Path) -> None:
    """Those that are no Python among them: parts of the report's page, LLVM IR, py.typed."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = (path for path in (ROOT / "loopwright").rglob("*") if path.is_file())
    wanted = {
        path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts
    }
    assert names == wanted
    assert {PurePosixPath(name).suffix for name in names} >= {".py", ".ll", ".js", ".css", ".typed"}


def test_the_wheel_holds_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/licenses/LICENSE"))
        assert archive.read(name) == (ROOT / "LICENSE").read_bytes()


def test_the_sdist_holds_the_files_of_the_repository_and_no_others() -> None:
    """No log, no cache, nothing generated; a new file is to be added to the repository first."""
    if not (ROOT / ".git").exists():
        pytest.skip("only a repository knows which files are its own")
    git = ["git", "ls-files", "-z"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = {name for name in listed.split("\0") if name and (ROOT / name).exists()}
    with tarfile.open(built("loopwright-*.tar.gz")) as archive:
        paths = [PurePosixPath(member.name) for member in archive if member.isfile()]
    names = {str(path.relative_to(path.parts[0])) for path in paths}
    added = {"PKG-INFO", "setup.cfg"}  # by setuptools, which writes its notes beside
    assert {name for name in names - added if ".egg-info/" not in name} == wanted


def test_what_the_package_says_of_itself(metadata: Metadata) -> None:
    from trove_classifiers import classifiers

    assert (metadata.name, str(metadata.version)) == ("loopwright", __version__)
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.summary
    assert metadata.description == (ROOT / "README.md").read_text(encoding="utf-8")
    assert metadata.description_content_type == "text/markdown"
    assert set(metadata.classifiers or ()) <= set(classifiers)
    assert "3.11" in (metadata.requires_python or ())


def test_the_command_is_that_of_the_wheel(user: User) -> None:
    assert user.does("loopwright", "--version") == f"loopwright, version {__version__}\n"
    assert user.does("python", "-m", "loopwright", "--version").endswith(f"{__version__}\n")


def test_every_module_is_imported_without_development_tools(user: User) -> None:
    """What is imported without being asked for stands among the dependencies."""
    place = Path(user.does("python", "-c", IMPORT_ALL).strip())
    assert place.is_relative_to(user.programs.parent)
    user.does("python", "-m", "pip", "check")


def test_the_machine_is_measured(user: User) -> None:
    assert "cpu(0)" in user.does("loopwright", "devices")


def test_a_kernel_is_tuned_built_and_run(user: User, verdict: str) -> None:
    """What is compiled, timed, logged and linked is all there."""
    assert "verdict:" in verdict
    assert "dense" in user.does("loopwright", "records", "best", LOG)
    user.does("loopwright", "build", *DENSE, "--history", LOG, "-o", "dense.o")
    assert "equal to the reference" in user.does("loopwright", "run", "dense.o")


@pytest.mark.usefixtures("verdict")
def test_a_report_has_its_style_and_its_script(user: User) -> None:
    user.does("loopwright", "report", LOG, "-o", "report.html")
    page = (user.folder / "report.html").read_text(encoding="utf-8")
    missing = [path.name for path in ASSETS.iterdir() if path.read_text("utf-8") not in page]
    assert not missing
