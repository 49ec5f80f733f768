from __future__ import annotations

import io
import json
import os
import platform
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from loopwright import records
from loopwright.cli import app
from loopwright.cli import tune as tune_module
from loopwright.cli.display import Display
from loopwright.testing.tuner_contract import FakeMeasurer, FakeSpace, FakeTask, bowl
from loopwright.tuner import GridSearchTuner, NothingRan, RandomTuner, RunState
from loopwright.tuner.run.budget import Budget
from loopwright.tuner.run.state import Failure
from tests.cli.conftest import TRIALS, WORKLOAD

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("usual_signals")
#: Without NumPy beside it, which takes a second to start.
ALONE = "import loopwright.cli.tune; loopwright.cli.tune._numpy = lambda *_: None; "
#: A run that goes on until it is ended; what the tuner learns and a second builder are not needed.
LONG = ("tune", *WORKLOAD, "--trials", "5000", "--tuner", "random", "--parallel", "1")
#: As ``nohup`` starts it.
NOHUP = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "


def spawn(*argv, folder, before="", **options):
    """The command line in a process of its own, after the statements ``before``."""
    main = "import sys; from loopwright.cli import main; sys.exit(main())"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [sys.executable, "-c", before + main, *argv],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        **{**pipes, **options},
    )


def workers_of(pid: int) -> list[int]:
    """Worker processes that this process has started; zombies do not count."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"loopwright.measure.workers.worker" in words and words[-2] == str(pid).encode():
            found.append(int(folder.name))
    return found


def test_tune_shows_everything_and_leaves_the_log(cli, tmp_path):
    ran = cli("tune", *WORKLOAD, "--trials", "4", "--seed", "3")
    assert ran.code == 0, ran.err
    out = ran.out
    assert "matmul(32, 32, 32" in out
    assert "on llvm -num-threads=1, 1 thread:" in out
    assert re.search(r"peak [\d.]+ GFLOP/s .*NumPy [\d.]+ GFLOP/s", out)
    assert "all 4 trials are measured" in out
    # The playoff samples the peak beside them: no share of an earlier one stands there.
    assert re.search(r"^default: [\d.]+ [mun]s, [\d.]+ GFLOP/s$", out, re.MULTILINE)
    best = r"([\d.]+ [mun]s, [\d.]+ GFLOP/s.* \(trial \d\)|the default \(nothing faster\))"
    assert re.search(rf"^best:    {best}$", out, re.MULTILINE)
    assert re.search(r"the (best|default) has \d+ % of the FMA peak", out)
    figures = r"([\d.]+ % \+- [\d.]+ %|a factor of [\d.]+ \+- [\d.]+)"
    assert re.search(rf"the (best|default) .*NumPy.* by (an uncertain amount \()?{figures}", out)
    assert len(re.findall(r"^NumPy:   [\d.]+ [mun]s, [\d.]+ GFLOP/s$", out, re.MULTILINE)) == 1
    assert re.search(r"time:    [\d.]+ s: .*(build|run|playoff) [\d.]+ s", out)
    log = records.load(tmp_path / "matmul_32x32x32.jsonl")
    assert [r.trial for r in log if not r.phase] == [0, 1, 2, 3]
    assert log.headers[0]["seed"] == 3
    best = records.best(log)
    assert best.phase == "playoff"
    verdict = records.Verdict.from_json(best.verdict)
    default = next(r for r in log if r.trial == 0)
    assert verdict.default == default.candidate
    assert f"verdict: {verdict.text()}" in out


def test_the_same_command_again_times_the_winner_and_says_how_to_go_on(cli, tuned):
    before = tuned.read_text()
    argv = ["tune", *WORKLOAD, "--trials", str(TRIALS), "--log", str(tuned)]
    ran = cli(*argv)
    assert ran.code == 0, ran.err
    assert f"resuming: the log has {TRIALS} trials, which count" in ran.out
    assert f"nothing left to measure: {TRIALS} trials are in {tuned}" in ran.out
    assert "the winner was timed again" in ran.out
    base = "loopwright tune matmul M=32 N=32 K=32 --threads 1 --log"
    assert re.search(rf"continue: +{re.escape(base)} {re.escape(str(tuned))} --trials 12", ran.out)
    assert re.search(
        rf"start over: +{re.escape(base)} \S+\.fresh\.jsonl --trials {TRIALS}", ran.out
    )
    assert tuned.read_text() == before
    verdict = records.Verdict.from_json(records.best(records.load(tuned)).verdict)
    assert re.search(rf"^verdict: {re.escape(verdict.text())}", ran.out, re.MULTILINE)
    # Both were sampled again, so that the verdict of the log stands beside what they say now.
    if not verdict.is_default:
        assert re.search(r"^verdict: .*, by the log$", ran.out, re.MULTILINE)
        assert "measured now: " in ran.out


def test_a_summary_for_scripts_and_an_exit_code_for_no_gain(cli, tmp_path):
    log = str(tmp_path / "one.jsonl")
    argv = ["tune", *WORKLOAD, "--tuner", "random", "--trials", "2", "--log", log, "--json"]
    ran = cli(*argv, "--fail-without-gain")
    said = json.loads(ran.out)
    assert ran.code == (0 if said["verdict"]["outcome"] == "faster" else 4), ran.err
    assert (said["trials"], said["stopped"], said["log"]) == (2, "n_trial", log)
    assert said["verdict"]["outcome"] in ("faster", "tie", "slower")
    assert said["verdict"]["rounds"] >= 6
    assert said["default"]["seconds"] > 0
    assert said["of_peak"] > 0
    assert said["beside"]["NumPy"]["rounds"] >= 6
    assert "verdict:" in ran.err
    assert "--trials 4" not in ran.out
    assert f"--log {log} --tuner random --json --fail-without-gain --trials 4" in ran.err


@pytest.mark.usefixtures("instant")
def test_a_tie_exits_with_the_code_for_no_gain(cli, tmp_path, monkeypatch):
    tie = records.Verdict(records.Outcome.TIE, 0.001, 0.004, 20, "", "FMA peak", 0.94)
    monkeypatch.setattr("loopwright.measure.PlayoffResult.verdict", lambda self: tie)
    log = str(tmp_path / "tie.jsonl")
    argv = ["tune", *WORKLOAD, "--tuner", "random", "--trials", "2", "--log", log]
    ran = cli(*argv)
    assert ran.code == 0, ran.err
    assert "verdict: no measurable gain: the default has 94 % of the FMA peak" in ran.out
    assert cli(*argv, "--fail-without-gain").code == 4


def test_usage_errors(cli):
    for options, text in (
        (
            ["--tuner", "gird"],
            "unknown tuner 'gird' (did you mean 'grid'?); there are random, grid, ga, xgb",
        ),
        (["-O", "plan_size"], "--option 'plan_size': write it as name=value"),
        (
            ["-O", "plansize=3"],
            "the tuner xgb has no option 'plansize' (did you mean 'plan_size'?); it takes "
            "plan_size, feature_type, loss_type,",
        ),
        (["--tuner", "ga", "-O", "pop_size=1"], "pop_size must be an integer >= 2, got 1"),
        (["--tuner", "ga", "-O", "pop_size=8", "-O", "pop_size=9"], "pop_size is given twice"),
        (["-O", "analytical=maybe"], "analytical must be True or False, got 'maybe'"),
        (["--tuner", "grid", "-O", "range_idx=5"], "range_idx must be two integers (first, last)"),
        (
            ["--tuner", "random", "-O", "range_idx=a,b"],
            "range_idx must be two integers (first, last)",
        ),
        (["-O", "loss_type=rnak"], "unknown loss_type 'rnak' (did you mean 'rank'?)"),
        (["--trials", "0"], "--trials must be an integer above zero, got 0"),
        (["--trials", "many"], "Invalid value for '--trials'"),
        (["--timeout", "8x"], "timeout '8x' is not a duration"),
        (["--seed", "-1"], "seed must be an integer >= 0"),
        (["--threads", "0"], "Invalid value for '--threads'"),
        (["--threads", "100000"], "100000 is not in the range 1<=x<=1023"),
        (["--gflops", "0"], "the target speed must be in GFLOP/s, above zero, got 0"),
        (["--min-gain", "much"], "min_gain 'much' is not a gain per minute; give a share"),
        (["--early-stopping", "0"], "--early-stopping must be an integer above zero"),
    ):
        ran = cli("tune", *WORKLOAD, *options)
        assert ran.code == 2, options
        assert text in ran.error


@pytest.mark.parametrize(
    ("valid", "failed", "said"),
    [
        (3, 0, "the log has 3 trials, which count"),
        (2, 1, "the log has 2 trials, which count, and 1 failed trial, not tried again"),
        (1, 2, "the log has 1 trial, which counts, and 2 failed trials, not tried again"),
        (0, 3, "the log has 3 failed trials, not tried again"),
    ],
)
def test_failed_trials_of_the_log_are_not_said_to_count(valid, failed, said):
    with open(os.devnull, "w") as file:
        console = Console(file=file, record=True, width=100)
        state = RunState(0, None, Budget())
        state.from_log = valid
        state.failures = {"COMPILE": Failure(failed, "")} if failed else {}
        Display(console, None, None).started(RandomTuner(FakeTask()), state)
        assert console.export_text() == f"resuming: {said}\n"


@pytest.mark.usefixtures("instant")
def test_all_budgets_together_and_the_first_that_is_spent_is_named(cli, tmp_path):
    options = ["--trials", "50", "--timeout", "5m", "--early-stopping", "40", "--min-gain", "0.1%"]
    ran = cli("tune", *WORKLOAD, *options, "--gflops", "0.001", "--log", str(tmp_path / "a.jsonl"))
    assert ran.code == 0, ran.err
    assert re.search(r"stopped: the best reached [\d.]+ of 0.001 GFLOP/s", ran.out)
    assert "--gflops 0.001 --min-gain 0.1%" in ran.out
    header = records.load(tmp_path / "a.jsonl").headers[0]
    assert (header["n_trial"], header["target_gflops"], header["min_gain"]) == (50, 0.001, 0.001)


@pytest.mark.usefixtures("instant")
@pytest.mark.parametrize(
    ("tuner", "option", "noted"),
    [
        ("random", "range_idx=0,50", [0, 50]),
        ("grid", "range_idx=10,50", [10, 50]),
        ("ga", "mutation_prob=0.2", 0.2),
        ("xgb", "analytical=false", False),
        ("droplet", "restarts=none", None),
        ("droplet", "pvalue=0.1", 0.1),
    ],
)
def test_every_tuner_and_its_options(cli, tmp_path, tuner, option, noted):
    log = tmp_path / "a.jsonl"
    ran = cli(
        "tune", *WORKLOAD, "--trials", "18", "--tuner", tuner, "-O", option, "--log", str(log)
    )
    assert ran.code == 0, ran.err
    assert f"tuner {tuner}, log" in ran.out
    assert f"--log {log} --tuner {tuner} --option {option}" in ran.out
    header = records.load(log).headers[0]
    assert header["tuner"] == tuner
    assert header["options"][option.partition("=")[0]] == noted


def test_a_log_that_cannot_be_written(cli, tmp_path):
    ran = cli("tune", *WORKLOAD, "--log", "no/such/log.jsonl")
    assert ran.code == 2
    assert "cannot write the log 'no/such/log.jsonl': its directory does not exist" in ran.error
    assert "it is a directory" in cli("tune", *WORKLOAD, "--log", str(tmp_path)).error


@pytest.mark.usefixtures("instant")
def test_a_log_full_of_rubbish_is_counted_and_kept(cli, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"v": 99}\nhello\n{"v": 1, "task"')
    ran = cli("tune", *WORKLOAD, "--trials", "2", "--log", str(path))
    assert ran.code == 0, ran.err
    assert "3 lines skipped" in ran.out
    assert path.read_text().startswith('{"v": 99}\nhello\n{"v": 1, "task"\n')
    assert len(records.load(path)) >= 2


def test_a_template_that_fails_everywhere(cli, tmp_path):
    (tmp_path / "bad.py").write_text(
        "from loopwright import te\n"
        "from loopwright.schedule import create_schedule\n"
        "from loopwright.task import get_config, template\n"
        "@template('test/always_refused')\n"
        "def refused(n):\n"
        "    a = te.placeholder((n,), 'float32', name='a')\n"
        "    b = te.compute((n,), lambda i: a[i] * 2, name='b')\n"
        "    cfg = get_config()\n"
        "    cfg.define_knob('k', [1, 2, 3])\n"
        "    cfg.raise_error('this is never right')\n"
        "    return create_schedule(b.op), [a, b]\n"
    )
    ran = cli("tune", "bad.py:refused", "n=8", "--trials", "5")
    assert ran.code == 1
    assert "3 x INSTANTIATION" in ran.error
    assert "this is never right" in ran.error
    assert "narrow the knobs" in ran.error


def wait_for_trials(
    process: subprocess.Popen, log: Path, count: int, terminal: int | None = None
) -> None:
    """Return when a run has written so many records, or has ended; read its terminal meanwhile."""
    deadline = time.monotonic() + 100
    while process.poll() is None and time.monotonic() < deadline:
        if log.exists() and log.read_text().count('"trial"') >= count:
            return
        if terminal is not None and select.select([terminal], [], [], 0)[0]:
            os.read(terminal, 1 << 16)
        time.sleep(0.02)


@pytest.mark.parametrize("long", [LONG, pytest.param(LONG[:-4], marks=pytest.mark.slow)])
def test_ctrl_c_keeps_the_log_and_prints_the_command_that_resumes(tmp_path, long):
    """By night with the tuner and the builders that are there by default."""
    log = tmp_path / "log.jsonl"
    argv = [*long, "--seed", "4", "--log", "log.jsonl"]
    process = spawn(*argv, folder=tmp_path, start_new_session=True)
    wait_for_trials(process, log, 3)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to all of its processes
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "stopped: interrupted" in out
    resume = "loopwright tune matmul M=32 N=32 K=32 --threads 1 --log log.jsonl "
    resume += "--tuner random " * (long == LONG)
    assert re.search(rf"{resume}(.* )?--seed 4 (.* )?--trials 5000", out), out
    kept = records.load(log)
    assert len(kept) >= 3
    assert not kept.skipped
    assert {json.loads(line)["v"] for line in log.read_text().splitlines()} == {1}


def test_nohup_ignores_sighup_another_run_is_refused_and_sigterm_ends_it_as_ctrl_c_does(
    cli, tmp_path
):
    log = tmp_path / "log.jsonl"
    process = spawn(*LONG, "--log", "log.jsonl", folder=tmp_path, before=NOHUP + ALONE)
    wait_for_trials(process, log, 1)
    process.send_signal(signal.SIGHUP)
    ran = cli("tune", *WORKLOAD, "--trials", "3", "--log", "log.jsonl")
    assert ran.code == 1
    assert f"process {process.pid} (" in ran.error
    assert "peak" not in ran.out  # refused before anything is timed
    wait_for_trials(process, log, len(records.load(log)) + 3)
    assert process.poll() is None
    assert workers_of(process.pid)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "stopped: interrupted" in out
    assert re.search(r"^to continue:\n  .*tune ", out, re.MULTILINE)
    assert re.search(r"--log log\.jsonl --tuner random (.* )?--trials 5000", out), out
    assert not list(log.parent.glob("*.lock"))
    assert not workers_of(process.pid)
    assert not records.load(log).skipped


@pytest.mark.slow
def test_a_terminal_that_is_closed_ends_a_run_cleanly(tmp_path):
    """The hang-up comes from the system, and nothing can be printed any more."""
    log = tmp_path / "log.jsonl"
    ours, theirs = os.openpty()
    claim = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    files = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    before = claim + ALONE
    argv = [*LONG, "--log", "log.jsonl"]
    process = spawn(*argv, folder=tmp_path, before=before, start_new_session=True, **files)
    os.close(theirs)
    wait_for_trials(process, log, 2, ours)
    os.close(ours)
    assert process.wait(60) == 130
    assert not workers_of(process.pid)
    assert not list(tmp_path.glob("*.lock"))
    assert not records.load(log).skipped


def test_after_sighup_what_still_can_be_written_is(capfd):
    with pytest.raises(KeyboardInterrupt):
        app._interrupt(signal.SIGHUP, None)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # it may come twice
    os.write(1, b"to continue")
    os.write(2, b"stopped")
    assert capfd.readouterr() == ("to continue", "stopped")


def test_ctrl_c_before_the_first_trial_prints_the_command_too(cli, tmp_path, monkeypatch, tuned):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("loopwright.runtime.fma_peak", interrupt)
    log = str(tmp_path / "log.jsonl")
    ran = cli("tune", *WORKLOAD, "--trials", "7", "--log", log, "--pretrain", str(tuned))
    assert ran.code == 130
    words = f"--threads 1 --log {log} --trials 7 --pretrain {tuned}"
    assert f"loopwright tune matmul M=32 N=32 K=32 {words}" in ran.out


def test_the_display_on_a_terminal():
    with open(os.devnull, "w") as file:
        console = Console(file=file, force_terminal=True, record=True, width=100)
        fails = lambda i: "COMPILE" if i == 9 else None  # noqa: E731
        display = Display(console, peak=2.0, numpy=1.5, refresh_s=0.0)
        RandomTuner(FakeTask()).tune(
            n_trial=63, measure_option=FakeMeasurer(bowl, fails=fails), callbacks=[display]
        )
        display.close()
        text = console.export_text()
    assert "63/63" in text
    assert "ETA" in text
    assert "1.0 GFLOP/s (50% of the peak)" in text
    assert "1.5 GFLOP/s (75% of the peak)" in text
    assert "1 x COMPILE" in text
    assert "measuring 9 finalists again" in text


def test_the_display_where_every_configuration_fails():
    with open(os.devnull, "w") as file:
        console = Console(file=file, force_terminal=True, record=True, width=100)
        display = Display(console, peak=2.0, numpy=None, refresh_s=0.0)
        measurer = FakeMeasurer(bowl, fails=lambda i: "COMPILE")
        with pytest.raises(NothingRan):
            GridSearchTuner(FakeTask(FakeSpace((2, 2)))).tune(
                measure_option=measurer, callbacks=[display]
            )
        display.close()
        text = console.export_text()
    assert "trials   0/0" in text
    assert "4 x COMPILE" in text


@pytest.mark.parametrize("verb", ["tune", "tune-tasks"])
def test_code_that_cannot_run_here_is_refused_before_the_first_trial(cli, tmp_path, verb):
    """AMD's oldest CPUs with AVX have the one feature, Intel's servers of 2023 the other."""
    target = "llvm -mcpu=x86-64 -mattr=+xop,+avx512fp16"
    if platform.machine() != "x86_64":
        pytest.skip("features of x86")
    (tmp_path / "net.txt").write_text(f"{' '.join(WORKLOAD[:4])}\n")
    ran = cli(verb, *(WORKLOAD if verb == "tune" else ("net.txt",)), "--target", target)
    assert ran.code == 2
    assert "code for llvm -mcpu=x86-64 may use " in ran.error
    assert "which this machine's" in ran.error
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.txt"]


def test_lines_for_a_terminal_break_between_words_and_commands_stay_whole():
    told = "model:   " + "what it had not seen " * 8
    command = "  continue:     loopwright tune dense M=1 " + "N=1000 " * 20
    shown = Console(file=io.StringIO(), force_terminal=True, highlight=False, width=60)
    tune_module._print(shown, [told, command])
    *lines, last = shown.file.getvalue().splitlines()
    assert last == command
    assert [len(line) <= 60 for line in lines] == [True] * len(lines)
    assert " ".join(" ".join(lines).split()) == " ".join(told.split())
    assert all(line[:9].isspace() and line[9] != " " for line in lines[1:])
    piped = Console(file=io.StringIO(), highlight=False, width=60)
    tune_module._print(piped, [told])
    assert piped.file.getvalue() == f"{told}\n"
