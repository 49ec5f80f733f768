"""Parts of an exported kernel that are the same in every file."""

from __future__ import annotations

HEAD = '''\
#!/usr/bin/env python3
"""A kernel that loopwright has measured: running this file builds it, checks its answer, times it.

It needs loopwright and NumPy, but neither the log nor the template that the kernel is from. A
program that imports this file gets the kernel from `build()`.
"""

'''

IMPORTS = """\
from __future__ import annotations

import argparse
import json
import statistics
import sys
import zipfile

import numpy as np

import loopwright as lw
from loopwright import te
from loopwright.inspection import (
    EMITTED,
    Closeness,
    DataPlan,
    compare,
    emit,
    input_set,
    median_interval,
    poison,
)
"""

IMPORTS_FOR_DATA = """\
from loopwright.schedule import replay
from loopwright.schedule.steps import Step
from loopwright.te.dag import Dag
"""

FROM_PYTHON = '''\
def new_schedule():
    """A schedule of the program in which nothing is decided yet."""
    s = te.create_schedule(program())
    if s.dag.hash != DAG_HASH:
        raise lw.LoopwrightError(
            f"this loopwright makes another program of it ({s.dag.hash}, not {DAG_HASH}); "
            "export the record once more, with --as-data"
        )
    return s
'''

FROM_DATA = '''\
def new_schedule():
    """A schedule of the program in which nothing is decided yet."""
    return replay(Dag.from_json(DAG), [])


def schedule(s, *tensors):
    """Apply the steps of the record."""
    for step in TRACE:
        s.apply_step(Step.from_json(step))
    return s
'''

MAIN = '''\
def scheduled(naive=False):
    """The schedule and the arguments in calling order; naive: without any step."""
    s = new_schedule()
    if not naive:
        schedule(s, *s.tensors)
    return s, [s.tensor(i) for i in ARGUMENTS]


def build(target=None, naive=False):
    """Compile the kernel; called with NumPy arrays, it writes into those of the outputs. One for
    a device takes arrays there (`lw.nd.array`).

    Args:
        target: another target than TARGET, such as "llvm" for the CPU of this machine.
        naive: compile the same computation without any step of the schedule.
    """
    s, args = scheduled(naive)
    with lw.PassContext(**PASSES):
        return lw.build(s, args, target or TARGET)


def make_arrays(f, number=0, given=None):
    """The arrays of a call: inputs, and outputs in which an element left unwritten shows up.

    Args:
        f: the kernel.
        number: 0 for the data that it was timed on, 1 for other data; see INPUTS.
        given: inputs by the name of the argument instead.
    """
    args = f[f.entry_name].args
    if given is None and INPUTS is None:
        names = ", ".join(a.name for a in args if not a.output)
        raise lw.LoopwrightError(f"its template made the inputs: give {names} with --inputs")
    inputs = iter(input_set(INPUTS, args, SEED, None, number) if given is None else [])
    arrays = []
    for arg in args:
        if arg.output:
            array = np.empty(arg.shape, arg.dtype)
            poison(array)
        elif given is None:
            array = next(inputs)
        else:
            array = np.ascontiguousarray(given[arg.name], arg.dtype)
        arrays.append(array)
    return arrays


def placed(f, arrays):
    """Arrays as the kernel takes them: copies on its device, where that is not the CPU."""
    device = f[f.entry_name].device
    return arrays if device == lw.cpu() else [lw.nd.array(a, device=device) for a in arrays]


def call(f, arrays):
    """Call the kernel; returns what the arrays hold then."""
    taken = placed(f, arrays)
    f(*taken)
    return arrays if taken is arrays else [a.numpy() for a in taken]


def check(f, target=None, given=None):
    """Compare the kernel with the same computation without a schedule; returns it in words.

    Floats may differ by what rounding explains. Where INPUTS has a largest number, sums of the
    other data are exact, and answers must be equal.
    """
    # Without a schedule no loop is bound to threads of a device: that runs on the CPU.
    on_cpu = f[f.entry_name].device == lw.cpu()
    naive = build(target if on_cpu else "llvm", naive=True)
    worst = 0.0
    for number in (0, 1) if given is None else (0,):
        got = call(f, make_arrays(f, number, given))
        want = call(naive, make_arrays(naive, number, given))
        exact = number == 1 and INPUTS.largest > 0
        for arg, own, right in zip(f[f.entry_name].args, got, want):
            found = compare(arg.name, own, right, CLOSENESS._replace(exact=exact))
            if found.problem is not None:
                raise lw.LoopwrightError(f"wrong: {found.problem}")
            worst = max(worst, found.max_error)
    within = f" within {worst:.3g}" if worst else ""
    return f"right: equal to the naive schedule{within}"


def time(f, given=None):
    """Time the kernel; returns seconds per call of 20 samples."""
    timer = f.time_evaluator(f.entry_name, number=1, repeat=20, min_repeat_ms=10)
    with lw.runtime.pinned():
        return timer(*placed(f, make_arrays(f, 0, given))).results


def time_in_words(seconds):
    """The median of some samples with its interval of 95 %, beside what the log has."""
    low, high = median_interval(seconds)
    now = f"{statistics.median(seconds) * 1e3:.4g} ms"
    text = f"time:  {now} per call (95 %: {low * 1e3:.4g} to {high * 1e3:.4g} ms)"
    if RECORDED_S is not None:
        text += f"; the log has {RECORDED_S * 1e3:.4g} ms"
    return text


def main(argv=None):
    """Do what the command line says; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Build the kernel, check its answer against the same computation without a "
        "schedule, and time it."
    )
    parser.add_argument(
        "--target", help="another target, such as llvm for the CPU of this machine"
    )
    parser.add_argument("--inputs", metavar="FILE.npz", help="your own inputs, by argument's name")
    parser.add_argument("--no-check", action="store_true", help="time it only")
    parser.add_argument("--emit", choices=EMITTED, help="print this text of the kernel instead")
    parser.add_argument("--trace", action="store_true", help="print the steps as JSON instead")
    options = parser.parse_args(argv)
    try:
        if options.trace:
            print(json.dumps(scheduled()[0].trace_json()))
            return 0
        if options.emit:
            with lw.PassContext(**PASSES):
                print(emit(*scheduled(), lw.Target(options.target or TARGET), options.emit))
            return 0
        given = np.load(options.inputs) if options.inputs else None
        f = build(options.target)
        if not options.no_check:
            print(check(f, options.target, given), flush=True)
        print(time_in_words(time(f, given)))
    except (lw.LoopwrightError, OSError, LookupError, ValueError, zipfile.BadZipFile) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
'''
