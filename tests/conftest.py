"""What all tests share: tiers, golden texts, Hypothesis profiles, CPU features, one checker."""

from __future__ import annotations

import gc
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fuzzing.differential import Checker
from loopwright.env import usable_cpus
from tests.kernels import KERNELS
from tests.pretended_cpu import pretend_caches, pretend_cpu

TESTS = Path(__file__).parent

# Programs are checked after every pass, in this process and in builders; read when first needed.
os.environ.setdefault("LOOPWRIGHT_VERIFY", "1")
# Nothing is kept in the home of who runs the tests, and what counts as compiled is compiled.
os.environ["LOOPWRIGHT_CACHE"] = "0"
# Threads of XGBoost that wait do so asleep: where others need the CPUs, too, those that spin take
# ten times as long. Read when XGBoost is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


#: Folders, files and single tests that say something of times, or watch processes start, wait and
#: end. They run one after the other, with nothing beside them: `make test` runs them in a pass of
#: their own. A test that only has kernels timed, and takes whatever comes out, is not one of them.
SERIAL = (
    "contracts/test_measurers.py::TestLocalMeasurer::test_a_limit_is_kept",
    "unit/benchmarks/test_measuring.py",
    "unit/graph/test_finalists.py::test_what_is_slower_inside_is_not_built",
    "unit/graph/test_layout_choice.py::test_a_compiled_model_in_measured_layouts_computes_the_same",
    "unit/measure/test_faults.py::test_a_batch_of_faults",
    "unit/measure/test_playoff.py::test_a_winner_that_fails_while_it_is_judged",
    "unit/measure/test_playoff.py::test_playoff_goes_on_after_a_crash",
    "unit/measure/test_running.py::test_killed_from_outside",
    "unit/measure/test_sampling.py",
    "unit/measure/test_yardsticks.py::test_an_opencl_device",
    "unit/measure/test_wrong_kernels.py::test_a_right_kernel_passes_and_keeps_its_times",
    "unit/measure/test_wrong_kernels.py::test_what_looks_before_it_works",
    "unit/measure/test_wrong_kernels.py::test_results_say",
    "unit/runtime/test_device.py",
    "unit/runtime/test_peak.py",
    "unit/runtime/test_pool.py",
    "unit/runtime/test_timing.py",
    "unit/test_time_limit.py",
    "unit/tuner/test_stall.py::test_what_a_measurer_waits_for",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The pass of serial tests reads no other file."""
    alone = re.fullmatch(r"serial( and not \w+)*", config.option.markexpr)
    if not alone or collection_path.suffix != ".py" or not collection_path.is_relative_to(TESTS):
        return None
    name = collection_path.relative_to(TESTS).as_posix()
    return None if any(e.startswith(name) or name.startswith(e) for e in SERIAL) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests the marker that `SERIAL` asks for, before ``-m`` chooses."""
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(SERIAL):
            item.add_marker("serial")


def pytest_collection_finish() -> None:
    """Collections of garbage look at no object that was there before the first test."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are CPUs: many tests wait for processes of their own."""
    return len(usable_cpus()) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the texts of tests/golden anew instead of comparing with them",
    )
    parser.addoption("--cpu", help="run as on this CPU, by LLVM's name; it may lack, not add")
    parser.addoption("--caches", help="run as with data caches of these sizes: 32K,1M,8M")


def pytest_configure(config: pytest.Config) -> None:
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    # A flush to the disk takes milliseconds, and files of tests need not outlive the machine.
    patch.setattr(os, "fsync", lambda descriptor: None)
    # Peaks are measured at every round of a playoff: 20 ms each, which no test needs exactly.
    patch.setattr("loopwright.measure.machine_limit._SAMPLE_S", 0.002)
    if cpu := config.getoption("--cpu"):
        pretend_cpu(patch, cpu)
    if sizes := config.getoption("--caches"):
        folder = tempfile.TemporaryDirectory()
        config.add_cleanup(folder.cleanup)
        pretend_caches(patch, Path(folder.name), sizes)


class Golden:
    """Compares a text with the one stored for this test: ``golden(str(func))``."""

    def __init__(self, folder: Path, test: str, update: bool) -> None:
        self.folder = folder
        self.test = test
        self.update = update
        self.seen: set[Path] = set()

    def path(self, name: str | None) -> Path:
        stem = self.test if name is None else f"{self.test}-{name}"
        return self.folder / (re.sub(r"[^\w.-]+", "_", stem).strip("_") + ".txt")

    def __call__(self, text: str, name: str | None = None) -> None:
        """Assert that `text` is what the golden file holds.

        Args:
            text: what the test produced; trailing spaces and newlines at its end do not count.
            name: tells several texts of one test apart.
        """
        __tracebackhide__ = True
        path = self.path(name)
        assert path not in self.seen, f"{self.test} compares two texts with {path.name}: name them"
        self.seen.add(path)
        shown = path.relative_to(TESTS.parent) if path.is_relative_to(TESTS) else path
        text = text.rstrip() + "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden text {shown}: run this test with --update-golden, then read it")
        stored = path.read_text(encoding="utf-8")
        assert text == stored, f"differs from {shown}"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Texts of this test in ``tests/golden/<folders>/<module>/<test>.txt``."""
    module = request.path.relative_to(TESTS).with_suffix("")
    folder = TESTS / "golden" / module.parent / module.name.removeprefix("test_")
    test = request.node.nodeid.split("::", 1)[1].replace("::", ".")
    update = bool(request.config.getoption("--update-golden"))
    return Golden(folder, test, update)


@pytest.fixture(scope="session", autouse=True)
def _own_device_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nobody waits for what else is timed on this machine, be it by the tests beside this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        yield


@pytest.fixture(scope="session")
def checker() -> Iterator[Checker]:
    """One checker with one guarded process for all tests that leave the compiler as it is."""
    checker = Checker(KERNELS)
    yield checker
    checker.close()


@pytest.fixture
def fresh_checker() -> Iterator[Checker]:
    """A checker that compiles everything itself, for tests that plant mistakes in the compiler."""
    checker = Checker()
    yield checker
    checker.close()


@pytest.fixture
def processes_share_the_cpu(request: pytest.FixtureRequest) -> None:
    """Left out under ``--cpu``: a process that sees the real CPU takes what this one made."""
    if request.config.getoption("--cpu"):
        pytest.skip("another process would see the real CPU")


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """Signals as a terminal leaves them, here and in processes that the test starts.

    Under ``nohup`` SIGHUP is ignored in all that the tests start, behind a shell's ``&`` SIGINT.
    """
    usual = dict.fromkeys((signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM), signal.SIG_DFL)
    usual[signal.SIGINT] = signal.default_int_handler
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@cache
def _cpu_features() -> frozenset[str]:
    from llvmlite import binding

    return frozenset(name for name, on in binding.get_host_cpu_features().items() if on)


@pytest.fixture(autouse=True)
def _skip_without_isa(request: pytest.FixtureRequest) -> None:
    """Skip a test marked ``isa(...)`` on a CPU that lacks one of the features."""
    wanted = {name for mark in request.node.iter_markers("isa") for name in mark.args}
    if wanted and (missing := sorted(wanted - _cpu_features())):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
