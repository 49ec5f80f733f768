"""``python -m loopwright.autotvm.record``: AutoTVM's script; ``loopwright records`` does more."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import islice

from loopwright.compat.autotvm import Pair, load_from_file, split_workload
from loopwright.driver import build
from loopwright.errors import LoopwrightError
from loopwright.lowering import lower
from loopwright.records import pick_best


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script; returns 0, or 1 with one line on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m loopwright.autotvm.record",
        description="Read, pick or split a log, as AutoTVM's script does.",
    )
    modes = ("read", "pick", "split")
    parser.add_argument("--mode", choices=modes, default="read", help="what to do; default read")
    parser.add_argument("--i", required=True, help="the log")
    parser.add_argument("--o", help="pick: the file to write; default the log with .best.log")
    parser.add_argument("--begin", type=int, default=0, help="read: the first record, from 0")
    parser.add_argument("--end", type=int, default=5, help="read: the record behind the last")
    parser.add_argument("--ir", action="store_true", help="read: print the loop nest, too")
    parser.add_argument("--code", action="store_true", help="read: print the code, too")
    options = parser.parse_args(argv)
    begin, end = max(options.begin, 0), max(options.end, 0)
    try:
        if options.mode == "pick":
            pick_best(options.i, options.o or f"{options.i}.best.log")
        elif options.mode == "split":
            print(*split_workload(options.i), sep="\n")
        else:
            for pair in islice(load_from_file(options.i), begin, end):
                _show(pair, options.ir, options.code)
    except LoopwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _show(pair: Pair, ir: bool, code: bool) -> None:
    inp, result = pair
    print(f"{inp.target}  {inp.task}  {inp.config}")
    if result.error is not None:
        print(f"  failed: {result.error}")
    else:
        print(f"  {', '.join(f'{seconds:.6g}' for seconds in result.costs)} s")
    if not (ir or code):
        return
    s, args = inp.task.instantiate(inp.config)
    if ir:
        print(lower(s, args))
    if code:
        print(build(s, args, inp.target).get_source())


if __name__ == "__main__":
    sys.exit(main())
