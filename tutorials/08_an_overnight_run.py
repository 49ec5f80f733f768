"""Tutorial 08: a run over night, which is started, watched, interrupted, killed and resumed.

Run it with ``python tutorials/08_an_overnight_run.py``. It does in a minute what you would do with
a run of many hours, by the commands that you would type; each is printed before it runs. Set
``LOOPWRIGHT_TUTORIAL_SMALL=1`` for a quick run.
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

    # 1. In the evening. `--timeout` ends the run by the clock, whatever it has reached by then;
    #    with `nohup loopwright ... &` it goes on when you close the terminal.
    run += ["--timeout", str(SECONDS)]
    evening = start(*run, folder=folder)

    # 2. From another terminal, or another machine that sees the file: where does it stand? `watch`
    #    follows the log as it grows; `--once` says it and ends. It takes no lock.
    wait_for(log, 3, evening)
    finish(start("watch", log.name, "--once", folder=folder))

    # 3. Ctrl-C ends a run after the measurement that is under way. Nothing is lost: each trial is
    #    in the log before the tuner hears of it. The exit code is 130, as of any such program.
    evening.send_signal(signal.SIGINT)
    print("\n^C", flush=True)
    assert finish(evening, last=3) == 130

    # 4. The same command goes on. Now the machine loses power: `kill -9` is the nearest to it.
    before = len(lw.records.load(log))
    night = start(*run, folder=folder)
    wait_for(log, before + 2, night)
    night.kill()
    night.communicate()
    print("Killed")

    # 5. Once more the same command. What is in the log counts, and this time it may go on until its
    #    time is over: then the best ones and the default are measured again, in turns.
    assert finish(start(*run, folder=folder)) == 0

    # 6. What came of it: no trial was lost, and none is there twice.
    records = [r for r in lw.records.load(log).records if not r.phase and not r.same_as]
    numbers = [r.trial for r in records]
    assert len(set(numbers)) == len(numbers)
    print(f"\n{len(numbers)} programs were measured, in {len({r.run for r in records})} runs")

    # 7. The kernel, from the best record.
    finish(start("build", *WORKLOAD, "--history", log.name, "-o", "matmul.o", folder=folder))


if __name__ == "__main__":
    main()
