"""What all tests share: tiers, golden texts, Hypothesis profiles, CPU features, one checker."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fuzzing.differential import Checker
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
    "contracts/test_measurers.py",
    "unit/benchmarks/test_measuring.py",
    "unit/measure/test_building.py",
    "unit/measure/test_drift.py",
    "unit/measure/test_faults.py",
    "unit/measure/test_lock.py",
    "unit/measure/test_measurer.py",
    "unit/measure/test_playoff.py",
    "unit/measure/test_reference.py",
    "unit/measure/test_running.py",
    "unit/measure/test_sampling.py",
    "unit/measure/test_worker.py",
    "unit/measure/test_yardsticks.py",
    "unit/measure/test_wrong_kernels.py",
    "unit/runtime/test_device.py",
    "unit/runtime/test_peak.py",
    "unit/runtime/test_pool.py",
    "unit/runtime/test_timing.py",
    "unit/test_time_limit.py",
    "unit/tuner/test_stall.py",
)


#: Tests with many parameters that take minutes together. For every change one of so many of them
#: runs, the first among them; the others are `slow`, for `make nightly`.
SHARES = {
    "numeric/test_tuples.py::test_a_tuple_reduction_under_every_primitive": 2,
    "numeric/test_values.py::test_intrinsic_against_numpy_in_float64": 4,
    "numeric/test_values.py::test_intrinsic_at_the_edges": 4,
    "numeric/test_vector_math.py::test_error_bound_without_fma": 3,
    "numeric/test_vector_math.py::test_no_call_of_a_library": 6,
    "numeric/test_vector_math.py::test_the_result_does_not_depend_on_the_schedule": 4,
    "property/test_hostile_lines.py::test_every_verb_takes_it": 4,
    "property/test_passes.py::test_a_pass_keeps_the_meaning": 2,
    "property/test_symbolic.py::test_one_function_for_several_sizes": 4,
    "test_docs.py::test_tutorial_runs": 7,  # `make docs` runs all of them, too
    "unit/codegen/test_c_math.py::test_functions_are_those_of_llvm": 3,
    "unit/cost/test_extract.py::test_symbolic_rows_are_those_of_each_candidate": 4,
    "unit/cost/test_nest.py::test_touched_elements_are_those_that_are_counted": 3,
    "unit/lowering/test_tensor_cores.py::test_products": 4,
    "unit/lowering/test_tensorize.py::test_dot_products_agree_everywhere": 3,
    "unit/lowering/test_tensorize.py::test_dot_products_of_all_types_agree_everywhere": 3,
    "unit/lowering/test_threads.py::test_kernels": 2,
    "unit/lowering/test_vector_reduction.py::test_elements_of_a_tile_are_folded_together": 3,
    "unit/ops/test_gpu.py::test_defaults_and_random_points_are_right": 6,
    "unit/ops/test_gpu.py::test_points_of_large_shapes_are_within_the_limits": 6,
    "unit/ops/test_ops.py::test_conv2d_in_random_configurations": 4,
    "unit/ops/test_ops.py::test_halves_are_summed_as_float32": 3,
    "unit/ops/test_ops.py::test_rows_and_elementwise_in_random_configurations": 4,
    "unit/space/test_dot_instructions.py::test_sums_of_bytes_are_exact": 2,
    "unit/space/test_ranking.py::test_another_question_is_asked_anew": 2,
    "unit/space/test_structures.py::test_structures_compute_what_the_naive_schedule_does": 6,
    "unit/space/test_structures.py::test_structures_lower_at_their_default_and_elsewhere": 9,
    "unit/space/test_structures_gpu.py::test_defaults_and_random_points_are_right": 9,
    "unit/space/test_structures_gpu.py::test_points_are_within_the_limits_of_other_devices": 9,
    "unit/space/test_tensor_core_structures.py::test_products_of_halves_go_to_tensor_cores": 4,
    "unit/space/test_windows.py::test_structures_compute_what_numpy_does": 5,
    "unit/tuner/test_every_dtype.py::test_operators_are_tuned_in_a_dtype": 2,
    "unit/tuner/test_replayed_spaces.py::test_one_seed_one_sequence_in_another_process": 4,
    "unit/tuner/test_structures.py::test_real_structures_are_tuned_by_every_tuner": 5,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests the markers that `SERIAL` and `SHARES` ask for, before ``-m`` chooses."""
    seen: Counter[str] = Counter()
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        if name.startswith(SERIAL):
            item.add_marker("serial")
        test = name.partition("[")[0]
        if test in SHARES and item.get_closest_marker("slow") is None:
            if seen[test] % SHARES[test]:
                item.add_marker("slow")
            seen[test] += 1


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
