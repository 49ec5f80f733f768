"""Tutorial 09: what a log tells, on the command line, in Python and as a page.

Run it with ``python tutorials/09_inspect_and_report.py``. It tunes for a moment and then asks the
log what was gained, how sure that is, which knobs matter, and what failed. Set
``LOOPWRIGHT_TUTORIAL_SMALL=1`` for a quick run.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import loopwright as lw
from loopwright.errors import RecordError
from loopwright.records.reports.importance import importance
from loopwright.records.reports.setups import by_setup, task_text

SMALL = bool(os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL"))
SHAPE, TRIALS = ((1, 64, 48), 24) if SMALL else ((1, 1000, 512), 128)


def loopwright(*words, folder):
    """Run a command in a folder; what it prints is shown."""
    print(f"\n$ {shlex.join(['loopwright', *words])}", flush=True)
    subprocess.run([sys.executable, "-m", "loopwright", *words], cwd=folder, check=True)


def main():
    folder = Path(tempfile.mkdtemp())
    log = folder / "dense.jsonl"
    task = lw.create_task("dense", SHAPE, "llvm")
    lw.tuner.XGBTuner(task, seed=0).tune(
        n_trial=TRIALS,
        measure_option=lw.measure_option(builder=lw.LocalBuilder(), runner=lw.LocalRunner()),
        callbacks=[lw.callback.log_to_file(log)],
    )

    # The winner: how fast, how sure, whether this machine would use it, what each of its knobs
    # costs, and its schedule as Python.
    loopwright("records", "show", log.name, "best", folder=folder)

    # Who comes next, and which decisions make the difference to the default.
    loopwright("records", "top", log.name, "5", folder=folder)
    loopwright("records", "compare", log.name, "best", "default", folder=folder)

    # When it was found: would a shorter run have done?
    loopwright("records", "curve", log.name, folder=folder)

    # Which knobs matter. A knob that explains nothing can leave the space; one whose best value
    # stands at its edge wants a wider one.
    loopwright("records", "importance", log.name, folder=folder)

    # What failed, and the knob values that go with it.
    loopwright("records", "errors", log.name, folder=folder)

    # The same in Python: every verb asks a function. A log may hold several tasks, and records of
    # several machines; times of different ones are never compared, so they come apart first. Where
    # there are too few records for an answer, a `RecordError` says so.
    records = lw.records.load(log).records
    for own in by_setup(records).values():
        name = task_text(own[0].op, own[0].args)
        try:
            found = importance(own)
        except RecordError as error:
            print(f"\n{name}: {error}")
            continue
        shares = ", ".join(f"{knob.knob} {knob.share:.0%}" for knob in found.knobs)
        print(f"\n{name}: {shares}; combinations of knobs {found.together:.0%}")

    # A kernel that no template is needed for: it can be read, changed, and sent to a colleague.
    loopwright("records", "export", log.name, "best", "-o", "kernel.py", folder=folder)
    subprocess.run([sys.executable, "kernel.py"], cwd=folder, check=True)

    # All of it as one page, which opens without a network.
    loopwright("report", log.name, "-o", "report.html", folder=folder)
    print(f"\nopen {folder / 'report.html'}")


if __name__ == "__main__":
    main()
