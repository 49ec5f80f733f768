"""Tutorial 08: a run over night, which is started, watched, interrupted, killed and resumed.

Run it with ``python tutorials/08_an_overnight_run.py``. It does in a minute or two what you would
do with a run of many hours, by the commands that you would type; each is printed before it runs,
under a line that says where in the night we are. Set ``LOOPWRIGHT_TUTORIAL_SMALL=1`` for a quick
run. Several workloads are tuned by ``loopwright tune-tasks``, which is interrupted and resumed
alike.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import loopwright as lw

SMALL = bool(os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL"))
SIZE, TRIALS, SECONDS = (48, 5000, 12) if SMALL else (512, 5000, 60)
WORKLOAD = ["matmul", f"M={SIZE}", f"N={SIZE}", f"K={SIZE}"]
# A script that was started in the background may have Ctrl-C ignored, and so would all that it
# starts; at a terminal `loopwright` alone is enough.
PROGRAM = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from loopwright.cli import main; sys.exit(main())"
)


def chapter(title):
    """Print where in the night we are."""
    print(f"\n== {title} ==", flush=True)


def start(*words, folder):
    """Start a command of loopwright, as a terminal would."""
    print(f"\n$ {shlex.join(['loopwright', *words])}", flush=True)
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process, last=None):
    """Wait for a command, and show what it said, or the last lines of it."""
    said = process.communicate()[0].splitlines()
    print("\n".join(said if last is None else said[-last:]), flush=True)
    return process.returncode


def wait_for(log, count, process):
    """Wait until a log holds so many trials; a run that ends before is waited for no longer."""
    while not log.exists() or len(lw.records.load(log)) < count:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.2)


def main():
    folder = Path(tempfile.mkdtemp())
    log = folder / "night.jsonl"
    run = ["tune", *WORKLOAD, "--log", log.name, "--trials", str(TRIALS)]

    # `--timeout` ends the run by the clock, whatever it has reached by then; `--timeout 8h` is a
    # night. With `nohup loopwright ... &` it goes on when you close the terminal.
    chapter("1. In the evening: start")
    run += ["--timeout", str(SECONDS)]
    evening = start(*run, folder=folder)

    # Where does it stand? `watch` follows the log as it grows, in another terminal or on another
    # machine that sees the file; with `--once` it prints one line and ends. It takes no lock, so
    # that it cannot hold the run up.
    wait_for(log, 3, evening)
    chapter("2. From another terminal: watch")
    finish(start("watch", log.name, "--once", folder=folder))

    # Ctrl-C in the first terminal. Nothing is lost: each trial is in the log before the tuner
    # hears of it. The exit code is 130, as of any program that Ctrl-C has ended.
    chapter("3. Interrupt: Ctrl-C")
    evening.send_signal(signal.SIGINT)
    print("^C", flush=True)
    assert finish(evening, last=3) == 130

    # The same command goes on where the log ends. Then the worst: `kill -9`, after which a program
    # can do nothing any more.
    chapter("4. Go on with the same command, and kill it")
    before = len(lw.records.load(log))
    night = start(*run, folder=folder)
    wait_for(log, before + 2, night)
    night.kill()
    night.communicate()
    print("Killed")

    # Once more the same command. What is in the log counts, and this time the run lasts until its
    # time is over. Up to a quarter of that is kept for the end, where the best ones and the default
    # are measured again, in turns. The verdict comes from there; a run of seconds, as the quick one
    # of this script, may end without one.
    chapter("5. Go on once more, to the end")
    assert finish(start(*run, folder=folder)) == 0

    # No trial was lost, and none is there twice. (A record with a `phase` is of a candidate that
    # was measured again; one with `same_as` shares the result of an equal program: both are none.)
    chapter("6. In the morning: what is there?")
    records = [r for r in lw.records.load(log).records if not r.phase and not r.same_as]
    numbers = [r.trial for r in records]
    assert len(set(numbers)) == len(numbers)
    print(f"{len(numbers)} programs were measured, in {len({r.run for r in records})} runs")
    finish(start("records", "best", log.name, folder=folder))

    # The kernel, from the best record. Tutorial 09 looks closer at a log.
    chapter("7. Build the best")
    finish(start("build", *WORKLOAD, "--history", log.name, "-o", "matmul.o", folder=folder))


if __name__ == "__main__":
    main()
