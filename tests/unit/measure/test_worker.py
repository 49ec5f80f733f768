"""The worker process: how it starts, what it imports, that it never outlives its parent."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopwright import env
from loopwright.errors import (
    CodegenError,
    InstantiationError,
    OutOfMemoryError,
    RunError,
    ScheduleError,
)
from loopwright.measure.options import LocalRunner
from loopwright.measure.result import ErrorKind
from loopwright.measure.runner import runner_process
from loopwright.measure.workers.process import (
    Outcome,
    Worker,
    WorkerFailure,
    WorkerProgram,
    take,
    wait_any,
)
from loopwright.measure.workers.protocol import Failed
from loopwright.measure.workers.worker import describe
from tests.unit.measure.echo import EchoReply, EchoRequest

ROOT = Path(__file__).parents[3]

SCRIPT = """
from loopwright.measure import LocalBuilder, LocalRunner, Measurer, measure_option
from tests.unit.measure.programs import MatmulTask
print("the main module ran", flush=True)
task = MatmulTask()
option = measure_option(LocalBuilder(n_parallel=1), LocalRunner(timeout=5))
with Measurer(task, option) as m:
    for r in m.measure(task.inputs(4, 8)):
        print("result", r.error, flush=True)
    pids = [w.pid for w in [*m.session.builds.workers, m.session.runner.worker]]
    print("pids", *pids, flush=True)
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def run(args: list[str], cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *args],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def state(pid: int) -> str:
    """As `ps` shows it; empty where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return text.rpartition(")")[2].split()[0]


def alive(pid: int) -> bool:
    """False for a zombie too: it is dead, its parent has not looked yet."""
    return state(pid) not in ("", "Z")


def all_dead(pids: list[int]) -> bool:
    for _ in range(300):
        if not any(alive(p) for p in pids):
            return True
        time.sleep(0.02)
    return False


def pids_of(text: str) -> list[int]:
    (line,) = [x for x in text.splitlines() if x.startswith("pids ")]
    return [int(p) for p in line.split()[1:]]


def test_script_without_main_guard_beside_files_that_shadow_modules(tmp_path: Path) -> None:
    (tmp_path / "resource.py").write_text("raise SystemExit('shadowed')")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    out = run([str(script)], tmp_path)
    assert out.count("the main module ran") == 1
    assert out.count("result None") == 2
    assert all_dead(pids_of(out))


def started(program: str, cwd: Path, *, leads: bool = False) -> subprocess.Popen[str]:
    """A parent, which prints the processes that it has started and then waits; ``leads``: in a
    process group of its own, as a terminal starts it."""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if leads else None,
        text=True,
        start_new_session=leads,
    )


WAITING = """
import os, signal, time
from loopwright.measure.workers.process import Worker, take
from loopwright.measure.workers.process import wait_any
from loopwright.measure.workers.process import WorkerProgram
from tests.unit.measure.echo import EchoRequest
worker = Worker("echo", 1 << 30, program=WorkerProgram("tests.unit.measure.echo"))
worker.submit(EchoRequest(names=("child",)), seconds=30)
wait_any([worker])
print("pids", worker.pid, *take(worker).values, flush=True)
time.sleep(60)
"""


@pytest.mark.usefixtures("usual_signals")
def test_parent_killed_with_kill_9(tmp_path: Path) -> None:
    """It is no file, but ``python -c``, beside a file that shadows a module."""
    (tmp_path / "resource.py").write_text("raise SystemExit('shadowed')")
    with started(f"{SCRIPT}    import time\n    time.sleep(60)\n", tmp_path) as parent:
        assert parent.stdout is not None
        lines = [parent.stdout.readline() for _ in range(4)]
        assert lines[1:3] == ["result None\n"] * 2
        pids = pids_of(lines[3])
        assert all(map(alive, pids))
        parent.kill()
    assert all_dead(pids)


@pytest.mark.parametrize("which", ["the worker", "its whole group"])
def test_a_stopped_worker_ends_with_its_parent(which: str, tmp_path: Path) -> None:
    with started(WAITING, tmp_path) as parent:
        assert parent.stdout is not None
        pids = pids_of(parent.stdout.readline())
        assert all(map(alive, pids))
        if which == "the worker":
            os.kill(pids[0], signal.SIGSTOP)
        else:
            os.killpg(pids[0], signal.SIGSTOP)
        while state(pids[0]) != "T":
            time.sleep(0.01)
        parent.kill()
    assert all_dead(pids)


def test_parent_killed_while_a_kernel_hangs(tmp_path: Path) -> None:
    program = """
from loopwright.measure.options import LocalRunner
from loopwright.measure.workers.process import wait_any
from loopwright.measure.runner import Runner
from tests.unit.measure import kernels
session = Runner(LocalRunner(timeout=60), wait_any)
session.load_and_race(kernels.built(kernels.GOOD), None)
print("pids", session.worker.pid, flush=True)
session.load_and_race(kernels.built(kernels.BUSY_HANG), None)
"""
    with started(program, tmp_path) as parent:
        assert parent.stdout is not None
        pids = pids_of(parent.stdout.readline())
        time.sleep(0.3)
        assert alive(pids[0])
        parent.kill()
    assert all_dead(pids)


@pytest.mark.usefixtures("usual_signals")
def test_interrupt_from_the_terminal_leaves_workers_to_the_parent(tmp_path: Path) -> None:
    """Ctrl-C goes to the foreground process group; workers lead sessions of their own."""
    with started(WAITING, tmp_path, leads=True) as parent:
        assert parent.stdout is not None
        pids = pids_of(parent.stdout.readline())
        assert [os.getpgid(p) for p in pids] == [pids[0]] * 2  # with what it has started itself
        os.killpg(parent.pid, signal.SIGINT)
        assert parent.stderr is not None
        assert "KeyboardInterrupt" in parent.stderr.read()
    assert all_dead(pids)


@pytest.mark.parametrize("role", ["builder", "runner"])
def test_workers_import_neither_templates_nor_operators(role: str, tmp_path: Path) -> None:
    program = f"""
import sys
from loopwright.measure.workers import worker
worker.make_role({role!r})
print(*sys.modules)
"""
    names = run(["-c", program], tmp_path).split()
    assert f"loopwright.measure.workers.{'build' if role == 'builder' else 'run'}_role" in names
    forbidden = {f"loopwright.{n}" for n in ("ops", "task", "tuner", "cli")}
    assert not forbidden & set(names)
    if role == "runner":
        assert not {f"loopwright.{n}" for n in ("schedule", "codegen", "driver")} & set(names)


def test_errors_become_kinds() -> None:
    default = ErrorKind.COMPILE
    assert describe(MemoryError(), default).kind == ErrorKind.MEMORY
    assert describe(OutOfMemoryError("no"), default).kind == ErrorKind.MEMORY
    refused = describe(ScheduleError("split: no"), default)
    assert refused == Failed(kind=ErrorKind.INSTANTIATION, text="split: no")
    assert describe(CodegenError("x"), default).kind == ErrorKind.COMPILE
    assert describe(InstantiationError("x"), ErrorKind.RUN_ERROR).kind == ErrorKind.RUN_ERROR


def test_unexpected_errors_say_where() -> None:
    try:
        [][1]
    except IndexError as e:
        found = describe(e, ErrorKind.COMPILE)
    assert found.text.startswith("IndexError: list index out of range (at test_worker.py:")


def test_a_program_has_the_variables_that_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LW_TEST_UNSET", "1")
    program = WorkerProgram("tests.unit.measure.echo", {"LW_TEST_UNSET": None, "LW_TEST_SET": "2"})
    worker = Worker("echo", 1 << 30, program=program)
    try:
        worker.submit(EchoRequest(names=("LW_TEST_UNSET", "LW_TEST_SET")), seconds=30)
        wait_any([worker])
        reply = take(worker)
    finally:
        worker.close()
    assert isinstance(reply, EchoReply)
    assert reply.values == (None, "2")
    assert reply.rss > 0


# ------------------------------------------------------------------ a folder of its own


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker with a folder of its own; this process works in an empty one."""
    temporary, here = tmp_path / "temporary", tmp_path / "here"
    temporary.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    program = WorkerProgram("tests.unit.measure.echo", own_folder=True)
    worker = Worker("echo", 1 << 30, program=program)
    yield worker
    worker.close()


def asked(worker: Worker, *names: str) -> Outcome:
    worker.submit(EchoRequest(names=names), seconds=30)
    wait_any([worker])
    return take(worker)


def test_what_a_worker_leaves_in_its_folder_goes_with_it(elsewhere: Worker) -> None:
    reply = asked(elsewhere, "drop", "kernel.dot")
    assert isinstance(reply, EchoReply)
    folder = Path(str(reply.values[0]))
    assert [p.name for p in folder.iterdir()] == ["kernel.dot"]
    assert folder.parent == Path(tempfile.gettempdir())
    assert not list(Path.cwd().iterdir())
    elsewhere.close()
    assert not list(folder.parent.iterdir())


def test_a_worker_that_crashed_has_an_empty_folder_again(elsewhere: Worker) -> None:
    failed = asked(elsewhere, "drop and crash", "kernel.dot")
    assert isinstance(failed, WorkerFailure)
    reply = asked(elsewhere, "drop", "other.dot")
    assert isinstance(reply, EchoReply)
    (folder,) = Path(tempfile.gettempdir()).iterdir()
    assert str(folder) == reply.values[0]
    assert [p.name for p in folder.iterdir()] == ["other.dot"]
    assert not list(Path.cwd().iterdir())


def test_no_room_for_its_folder_is_told(elsewhere: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryDirectory", full)
    with pytest.raises(RunError, match=r"cannot start a echo process: no temporary folder to work"):
        elsewhere.start()


def test_folders_that_variables_name_are_those_of_the_parent(
    elsewhere: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, absolute = str(Path.cwd()), str(ROOT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["mine", absolute]))
    monkeypatch.setenv("POCL_CACHE_DIR", "../kept")
    monkeypatch.setenv("LOOPWRIGHT_CACHE", "kernels")
    monkeypatch.setattr(env, "settings", lambda: env.Settings(cache="kernels"))
    names = ("PYTHONPATH", "POCL_CACHE_DIR", "LOOPWRIGHT_CACHE")
    reply = asked(elsewhere, *names)
    assert isinstance(reply, EchoReply)
    path, kept, kernels = map(str, reply.values)
    assert path.split(os.pathsep)[1:] == [f"{here}/mine", absolute]
    assert (kept, kernels) == (os.path.abspath("../kept"), f"{here}/kernels")


def test_a_cache_that_is_off_stays_off(elsewhere: Worker) -> None:
    assert os.environ["LOOPWRIGHT_CACHE"] == "0"
    reply = asked(elsewhere, "LOOPWRIGHT_CACHE")
    assert isinstance(reply, EchoReply)
    assert reply.values == ("0",)


def test_runners_of_devices_have_such_a_folder() -> None:
    assert runner_process(LocalRunner(), "opencl:0").program.own_folder
    assert not runner_process(LocalRunner(), "").program.own_folder
