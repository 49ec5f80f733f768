"""Do verdicts hold: playoffs of equal kernels, and the same playoff many times.

``python -m benchmarks.verdicts`` measures

- the **false-winner rate**: a program plays against itself, as two finalists with two names. How
  often is there a winner by the verdict, and by what a mean of three samples says;
- the **spread of the winner**: the best kernel of a tuned log is measured again in several runs.
  How far do its times, and its gains over the default, lie apart.

Figures go to standard output, as text and as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import loopwright as lw
from loopwright import runtime
from loopwright.cli.workload import find_workload
from loopwright.measure import Measurer, PlayoffPlan, measure_option, paired_gain
from loopwright.measure.options import WINDOW_S
from loopwright.measure.paired_ratios import SMALLEST_GAIN
from loopwright.measure.playoff import JUDGING
from loopwright.measure.session import MeasureSession
from loopwright.records import Outcome
from loopwright.tuner import DEFAULT_TUNER, TUNERS
from loopwright.tuner.run.state import flop_of


def main() -> None:
    """Measure both and print them."""
    options = _options()
    workload = find_workload(options.workload, options.params, "llvm", options.threads)
    task = workload.task
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "log.jsonl")
        summary = TUNERS[DEFAULT_TUNER](task, seed=0).tune(
            n_trial=options.trials, callbacks=[lw.callback.log_to_file(log)]
        )
    best = summary.best_config
    assert best is not None
    with Measurer(task, measure_option()) as measurer:
        equal = [_equal(measurer, best) for _ in range(options.playoffs)]
        again = [_again(measurer, task, best) for _ in range(options.runs)]
    found = {
        "what": str(task),
        "threads": options.threads or runtime.get_num_threads(),
        "tuned": summary.verdict.text(),
        "equal_playoffs": len(equal),
        "false_winners_by_verdict": sum(one["verdict"] != Outcome.TIE for one in equal),
        "false_winners_by_mean_of_3": sum(abs(one["mean_of_3"]) > SMALLEST_GAIN for one in equal),
        "largest_gain_of_equals": max((abs(one["gain"]) for one in equal), default=0.0),
        "largest_mean_of_3": max((abs(one["mean_of_3"]) for one in equal), default=0.0),
        "runs": len(again),
        "spread_of_time": _spread([one["seconds"] for one in again]),
        "gains": [one["gain"] for one in again],
        "margins": [one["margin"] for one in again],
        "spread_of_ratio": _spread([1 + one["gain"] for one in again]),
    }
    for name, value in found.items():
        print(f"{name:28} {value}")
    print(json.dumps(found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__)
    parser.add_argument("workload", nargs="?", default="matmul")
    parser.add_argument("params", nargs="*", help="its parameters, such as M=512")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--trials", type=int, default=64, help="trials of the search [64]")
    parser.add_argument("--playoffs", type=int, default=20, help="playoffs of equal kernels [20]")
    parser.add_argument("--runs", type=int, default=10, help="runs that measure the winner [10]")
    options = parser.parse_args()
    if options.workload == "matmul" and not options.params:
        options.params = ["M=256", "N=256", "K=256"]
    return options


def _equal(measurer: Measurer, config: Any) -> dict[str, Any]:
    """One program against itself: what its verdict is, and what a mean of three says."""
    session = measurer.session
    first, second = [], []
    with _twice(session, config) as sample:
        for turn in range(JUDGING[0]):
            order = ((1, first), (2, second))
            for slot, times in order if turn % 2 else order[::-1]:
                times.append(sample(slot))
    gain = paired_gain(first, second)
    assert gain is not None
    means = [statistics.mean(times[:3]) for times in (first, second)]
    return {"verdict": gain.outcome, "gain": gain.gain, "mean_of_3": means[0] / means[1] - 1}


@contextmanager
def _twice(session: MeasureSession, config: Any) -> Iterator[Any]:
    """A program in two slots of the runner, and a function that samples one of them.

    A playoff itself never does this: it knows equal programs by their code, and plays one of them.
    """
    candidate = session.instantiate(config)
    build = session.builds.add(candidate)
    session.wait_for([build])
    session.take_devices()
    races = {
        s: session.runner.load_and_race(build.outcome, None, slot=s, race=False) for s in (1, 2)
    }

    def sample(slot: int) -> float:
        times = session.runner.sample(races[slot].first, slot=slot, windows=1, window_s=WINDOW_S)
        return statistics.median(times)

    try:
        yield sample
    finally:
        session.reset()


def _again(measurer: Measurer, task: Any, best: Any) -> dict[str, float]:
    """The winner once more beside the default."""
    default = task.config_space.get(task.config_space.default_index)
    result = measurer.playoff([best], PlayoffPlan(default, flop=flop_of(task)))
    verdict = result.verdict()
    return {
        "seconds": statistics.median(result.best),
        "gain": verdict.gain,
        "margin": verdict.margin,
    }


def _spread(values: list[float]) -> float:
    """The range of values as a share of their median."""
    return (max(values) - min(values)) / statistics.median(values) if values else 0.0


if __name__ == "__main__":
    main()
