"""Kinds of failures of trials, with meaning, causes and remedies: the one source of these texts.

``loopwright explain-error`` and the summary of a run print them, and the page ``docs/errors.md`` is
made of them. The text of a failure tells the causes of its kind apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ErrorKind(StrEnum):
    """Kinds of failures of a trial; a record holds the name, and a newer version may know more.

    Example:
        >>> print(sorted(kind.value for kind in lw.measure.ErrorKind)[:3])
        ['BUILD_CRASH', 'BUILD_TIMEOUT', 'COMPILE']
    """

    INSTANTIATION = "INSTANTIATION"  # the template or the schedule refused the configuration
    COMPILE = "COMPILE"  # the compiler reported an error
    BUILD_TIMEOUT = "BUILD_TIMEOUT"
    BUILD_CRASH = "BUILD_CRASH"  # the builder process died
    RUN_TIMEOUT = "RUN_TIMEOUT"
    RUN_CRASH = "RUN_CRASH"  # the runner process died
    MEMORY = "MEMORY"  # the builder or the kernel needs more memory than there is
    RUN_ERROR = "RUN_ERROR"  # the kernel, or loading it, reported an error
    #: The outputs differ from the reference, or memory outside of the arguments was written.
    WRONG_ANSWER = "WRONG_ANSWER"


#: Failures of a kernel that had a time before: one in the playoff, or when it is measured again,
#: excludes it. Failures of a builder are no evidence against the kernel.
FAILED_AGAIN = frozenset(
    {
        *(ErrorKind.RUN_TIMEOUT, ErrorKind.RUN_CRASH, ErrorKind.MEMORY),
        *(ErrorKind.RUN_ERROR, ErrorKind.WRONG_ANSWER),
    }
)


#: The options that allow more, or take less, in the words of the command line and of Python.
_BUILD_TIME = "`--build-timeout` (in Python `LocalBuilder(timeout=...)`)"
_RUN_TIME = "`--run-timeout` (in Python `LocalRunner(timeout=...)`)"
_BUILDERS = "`--parallel` (in Python `LocalBuilder(n_parallel=...)`)"


@dataclass(frozen=True)
class Cause:
    """One cause of a kind of error.

    Attributes:
        what: the cause, in whole sentences.
        example: the text of such an error, as a record keeps it.
        next_step: the remedy; follows a colon in the same line, so it begins in lower case.
        phrases: phrases of an error text, each of which tells this cause from the others of its
            kind.

    Example:
        >>> cause = lw.records.error_help("RUN_TIMEOUT").causes[0]
        >>> print(len(cause.what) > 0, len(cause.next_step) > 0)
        True True
    """

    what: str
    example: str
    next_step: str
    phrases: tuple[str, ...] = ()

    def fits(self, text: str) -> bool:
        """Whether the text of an error indicates this cause."""
        return any(phrase in text for phrase in self.phrases)


@dataclass(frozen=True)
class ErrorHelp:
    """The help for one kind of error.

    Attributes:
        meaning: the event, in a sentence.
        next_step: the remedy where the text of an error does not show its cause.
        causes: the most frequent first.

    Example:
        >>> help = lw.records.error_help("RUN_CRASH")
        >>> print(len(help.meaning) > 0, len(help.next_step) > 0)
        True True
    """

    kind: ErrorKind
    meaning: str
    next_step: str
    causes: tuple[Cause, ...]


#: Shows the loop nest of a record.
_SHOW = "`loopwright records show LOG ID --ir` prints its loop nest"
#: Phrases of crash texts for the signals by which operators, batch systems and Linux kill.
_KILLED_PHRASES = tuple(f"killed by SIG{n}" for n in ("KILL", "TERM", "HUP", "INT", "QUIT"))


def _stopped(role: str) -> Cause:
    return Cause(
        f"Something outside stopped the {role} process twice (SIGSTOP, a debugger, job control, a "
        "frozen container) until its time was over. Nothing is wrong with the candidate.",
        f"the {role} was stopped by a signal from outside: no answer within 10 s; the {role} was "
        "killed",
        "find out what stops processes here; the candidate is not at fault and stays in the log as "
        "failed, so tune into a fresh log if many were hit",
        ("stopped by a signal from outside",),
    )


def _killed(role: str, remedy: str) -> Cause:
    return Cause(
        f"Something outside killed the {role} process twice: an operator, a batch system, or Linux "
        "itself, which does this when the memory of the machine or of the container runs out.",
        f"the {role} process was killed by SIGKILL, killed (the system does this when memory runs "
        "out)",
        f"see whether memory ran out (`dmesg`, `loopwright doctor`); if so, {remedy}",
        _KILLED_PHRASES,
    )


#: Exceptions that show a fault of the template.
_FAULTS = (
    *("AssertionError", "AttributeError", "IndexError", "KeyError", "NameError", "RuntimeError"),
    *("SystemExit", "TypeError", "ValueError", "ZeroDivisionError"),
)

_INSTANTIATION = ErrorHelp(
    ErrorKind.INSTANTIATION,
    "The template or a step of the schedule refused the configuration, before anything was built.",
    "narrow the knobs so that such points do not exist, or filter them out by `cfg.multi_filter`; "
    "a few such failures do no harm",
    (
        Cause(
            "The template calls `cfg.raise_error`, or makes a step that is illegal for these "
            "values.",
            "the tile is larger than the cache",
            "give the knobs only values that are legal, or filter the others out with "
            "`cfg.multi_filter`",
        ),
        Cause(
            "The template itself has a fault: Python raised an exception in it.",
            "matmul(64, 64) with tile=[-1, 8]: mine.py:12: KeyError: 'tile_x'",
            "run the template on this configuration with the traceback: "
            "`task.instantiate(task.config_space.get(index))`",
            tuple(f"{name}: " for name in _FAULTS),
        ),
        Cause(
            "The template took longer than a build may.",
            "the template took longer than 10 s",
            "make the template quicker (no measuring, no file or network in it), or allow more by "
            f"{_BUILD_TIME}",
            ("the template took longer than",),
        ),
    ),
)

_COMPILE = ErrorHelp(
    ErrorKind.COMPILE,
    "The schedule is legal, but no code could be made of it.",
    f"read the text, which names the loop or the buffer; {_SHOW}, if it has one",
    (
        Cause(
            "The loop nest cannot be lowered as it was scheduled.",
            "lower: 'C' is an argument, so it must be computed at root (it is computed inline)",
            "change the step of the template that the text names; `loopwright lower` shows the "
            "nest of the default configuration",
        ),
        Cause(
            "So much would be unrolled, vectorized or inlined that compiling it would take hours.",
            "lower: 'main' would be written out to more than 200000 nodes of the IR; most copies "
            "are made by the unrolled loop 'k' of 4096",
            "unroll, vectorize or inline less: cap the factor in the template",
            ("would be written out to more than",),
        ),
        Cause(
            "No device of the target could launch the kernel or hold what it needs: too many "
            "threads, too much memory of a block or of a thread, or too many registers.",
            "gpu limits: function 'main': a block has 2048 threads (threadIdx.x 2048 (loop C.i)), "
            "max_threads_per_block is 1024; bind smaller loops",
            "nothing, if a few candidates fail so: they cost no time on the device; else give the "
            "knobs only values within the limits that the text names",
            ("gpu limits:", "registers_per_block is", "max_spill_bytes is"),
        ),
        Cause(
            "A fault of loopwright or of LLVM.",
            "KeyError: 3 (at writer.py:120 < compiler.py:66)",
            "this is a fault of loopwright: please report it with the text and the record",
            (".py:",),
        ),
    ),
)

_BUILD_TIMEOUT = ErrorHelp(
    ErrorKind.BUILD_TIMEOUT,
    "Building took longer than `LocalBuilder(timeout=...)`, 10 s by default, and was killed.",
    "cap unrolling and vector lengths in the template; where the code has to be that large, "
    f"{_BUILD_TIME} gives more time",
    (
        Cause(
            "The loop nest is very large, nearly always by unrolling.",
            "no answer within 10 s; the builder was killed",
            "cap unrolling and vector lengths in the template; where the code has to be that "
            f"large, {_BUILD_TIME} gives more time",
        ),
        _stopped("builder"),
    ),
)

_BUILD_CRASH = ErrorHelp(
    ErrorKind.BUILD_CRASH,
    "The process that built the candidate died.",
    "cap unrolling and vector lengths in the template; if it happens again, please report it",
    (
        Cause(
            "LLVM crashed, mostly on huge or odd code.",
            "the builder process was killed by SIGSEGV, segmentation fault",
            "cap unrolling and vector lengths in the template; if it happens again, please report "
            "it with the record",
            ("SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGFPE"),
        ),
        _killed("builder", f"take fewer builders: {_BUILDERS}"),
    ),
)

_RUN_TIMEOUT = ErrorHelp(
    ErrorKind.RUN_TIMEOUT,
    "The kernel, or something that had to run for it, took longer than it may, and was killed.",
    "compare the limit in the text with the best time: a kernel that is 20 times slower than the "
    f"best needs no more time; else {_RUN_TIME} gives more",
    (
        Cause(
            "The candidate is at least 20 times slower than the best so far (and needs more than "
            "a second). It could not win.",
            "it ran longer than 1 s and was killed; its limit was 20 x the best so far, at least "
            "1 s",
            "nothing: the candidate is far slower than the best and cannot win; a higher timeout "
            "of the runner would not change this limit",
            ("its limit was 20 x the best",),
        ),
        Cause(
            "There is no faster candidate yet, or 20 times its time is more than the runner's "
            "timeout, which then is the limit.",
            "it ran longer than 10 s and was killed; its limit was the runner's timeout of 10 s",
            f"if the kernel may take that long, {_RUN_TIME} gives it more time; a "
            "smaller workload of the same kind is tuned sooner",
            ("its limit was the runner's timeout",),
        ),
        Cause(
            "Making the input data took longer than it may.",
            "making the input data took longer than 120 s and was ended",
            "tune a smaller workload of the same kind: the data are as large as its tensors, and "
            "the limit is fixed",
            ("making the input data took longer",),
        ),
        Cause(
            "An unscheduled kernel, which gives the right answers or looks for accesses outside "
            "of a tensor, took longer than it may.",
            "a run for its right answer took longer than 120 s and was ended",
            "give the task a NumPy `reference`, or check a smaller workload of the same kind",
            ("a run for its right answer took longer",),
        ),
        _stopped("runner"),
    ),
)

_RUN_CRASH = ErrorHelp(
    ErrorKind.RUN_CRASH,
    "The process that ran the kernel died.",
    "build the schedule under `PassContext(config={'instrument_bound_checkers': True})` and call "
    f"it: it names the access that leaves its array; {_SHOW}",
    (
        Cause(
            "The kernel touched memory that is not its own. Schedules alone do not do that; an "
            "index that depends on data, or a tensor intrinsic of one's own, can.",
            "the runner process was killed by SIGSEGV, segmentation fault",
            "build the schedule under `PassContext(config={'instrument_bound_checkers': True})` "
            f"and call it: it names the access that leaves its array; {_SHOW}",
            ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE"),
        ),
        Cause(
            "The kernel has an instruction that this CPU lacks.",
            "the runner process was killed by SIGILL, illegal instruction",
            "tune for this machine's CPU: leave -mcpu and -mattr out of the target",
            ("SIGILL",),
        ),
        _killed("runner", "end other programs, or tune a smaller workload"),
    ),
)

_MEMORY = ErrorHelp(
    ErrorKind.MEMORY,
    "The builder or the kernel needs more memory than there is, or than it may take.",
    "the text says who ran out: `LocalBuilder(memory_bytes=...)` or "
    "`LocalRunner(memory_bytes=...)` allows more, smaller tiles need less",
    (
        Cause(
            "The builder ran out of memory, nearly always by unrolling.",
            "the builder is out of memory: MemoryError",
            "cap unrolling in the template; `LocalBuilder(memory_bytes=...)` allows a builder "
            f"more, fewer builders ({_BUILDERS}) leave each more",
            ("the builder is out of memory", "LLVM ERROR: out of memory", "std::bad_alloc"),
        ),
        Cause(
            "The copies that the schedule makes (`cache_read`, `cache_write`, `compute_at` with "
            "large tiles) need a larger workspace than a call may take.",
            "the runner is out of memory: main needs 8589934592 bytes of workspace on 16 threads, "
            "over the limit of 4294967296; use smaller tiles, fewer threads, or raise "
            "LOOPWRIGHT_WORKSPACE_LIMIT",
            "use smaller tiles or fewer threads, or raise LOOPWRIGHT_WORKSPACE_LIMIT",
            ("of workspace on",),
        ),
        Cause(
            "The tensors and the workspace of the kernel do not fit into what the runner may take: "
            "half of the memory of the machine or of the container.",
            "the runner is out of memory: Unable to allocate 64.0 GiB for an array",
            "use smaller tiles or a smaller workload, or allow more by "
            "`LocalRunner(memory_bytes=...)`",
            ("the runner is out of memory",),
        ),
    ),
)

_RUN_ERROR = ErrorHelp(
    ErrorKind.RUN_ERROR,
    "The kernel was built, but loading or running it reported an error.",
    "read the text, which says what the kernel or the machine does not accept",
    (
        Cause(
            "The code was made for a CPU with instructions that this one lacks, or calls a "
            "function that is not there.",
            "the program was built for skylake-avx512 with avx512f, which this machine's znver3 "
            "lacks; build it on this machine, or for a CPU that both are",
            "leave -mcpu and -mattr out of the target to tune for this machine; link what the "
            "kernel calls",
            ("the program was built for", "linking "),
        ),
        Cause(
            "The function that makes the inputs (`make_inputs`) took too long.",
            "make_inputs of my_task took longer than 120 s",
            "make fewer or cheaper inputs",
            ("make_inputs",),
        ),
        Cause(
            "An index that depends on data left its tensor, and a check stopped the kernel.",
            "main: access outside A: index [40], shape [32]",
            "give the task `make_inputs` whose values are valid indices",
            ("access outside",),
        ),
        Cause(
            "It was timed as faster than the CPU can store its results or do its arithmetic: what "
            "was timed did not do the work, or the clock of the machine jumped.",
            "no machine is so fast: a call of 1 ns stores 1.05e+06 GB/s, where the first-level "
            "cache takes at most 400 GB/s",
            "look for a kernel that leaves work out when it is called again; if many fail so, "
            "measure on a machine whose clock is steady",
            ("no machine is so fast",),
        ),
        Cause(
            "The device refuses to launch the kernel: its blocks have too many threads, or take "
            "too many registers or too much shared memory.",
            "opencl(0): main_kernel0 has blocks of 512 threads, and the device takes 256; build it "
            "with -max-threads-per-block=256",
            "give the target the limits of the device, as `loopwright devices` prints them, so "
            "that such candidates are refused before they are compiled",
            ("and the device takes", "OUT_OF_RESOURCES"),
        ),
        Cause(
            "The kernel made the device unusable for its process, as by an access outside of all "
            "memory. A new process was started, and the device tried, before the next candidate.",
            "cuda(0): waiting failed: ILLEGAL_ADDRESS (700); this process has lost the device: "
            "start it again; the runner is started again",
            "nothing, if others succeed; if many fail so, look for an index that leaves its tensor "
            "in what the template computes",
            ("the runner is started again",),
        ),
    ),
)

_WRONG_ANSWER = ErrorHelp(
    ErrorKind.WRONG_ANSWER,
    "The kernel gives another answer than the reference, or touches memory that is not its own.",
    "suspect the NumPy `reference`, a tensor intrinsic of your own, then loopwright: primitives of "
    f"a schedule do not change results; {_SHOW}",
    (
        Cause(
            "The numbers differ. Primitives of a schedule do not change results, so it is the "
            "`reference` of the task, a tensor intrinsic of one's own, or a fault of loopwright.",
            "C[3, 17] is 12.5, expected 13.25 (error 0.75, allowed 0.00153); 96 of 1024 elements "
            "are wrong",
            "if every configuration fails so, mend the `reference`; if some do, suspect a tensor "
            f"intrinsic of your own, else please report it; {_SHOW}",
            ("elements are wrong",),
        ),
        Cause(
            "The kernel wrote beside its arrays.",
            "it wrote outside the memory of C",
            "build the schedule under `PassContext(config={'instrument_bound_checkers': True})` "
            "and call it: it names the access",
            ("it wrote outside the memory",),
        ),
        Cause(
            "An index that depends on data left its tensor: such a kernel is run once with all "
            "bounds checked. The text names the access.",
            "main: access outside A: index [40], shape [32] (load at i = 3)",
            "have the task's `make_inputs` give valid indices only, or clamp the index in the "
            "expression",
            ("access outside",),
        ),
        Cause(
            "The kernel leaves out work that it did in an earlier call: it trusts what its "
            "outputs held.",
            "it skips its work: called again after one element of each input had changed, it gave "
            "another answer than on fresh outputs",
            "set every element of the outputs in each call: a tensor intrinsic needs a `reset` "
            "that begins the sum",
            ("it skips its work", "called again on the outputs"),
        ),
        Cause(
            "The kernel ran when it was timed, and crashed or hung when it was checked, where its "
            "arrays lie against memory that cannot be touched.",
            "in its check, where memory around its arrays cannot be touched, the runner process "
            "was killed by SIGSEGV, segmentation fault",
            "build the schedule under `PassContext(config={'instrument_bound_checkers': True})` "
            "and call it: it names the access",
            ("in its check", "its check did not end"),
        ),
    ),
)

#: The help for each kind, in the order of `ErrorKind`.
HELP: dict[str, ErrorHelp] = {
    help.kind: help
    for help in (
        *(_INSTANTIATION, _COMPILE, _BUILD_TIMEOUT, _BUILD_CRASH, _RUN_TIMEOUT, _RUN_CRASH),
        *(_MEMORY, _RUN_ERROR, _WRONG_ANSWER),
    )
}

_INTRODUCTION = """# Why a trial failed

<!-- Made by `loopwright explain-error --markdown`; texts: loopwright/records/error_kinds.py -->

A trial that fails is no trouble as long as others succeed: it is recorded with its kind and its
text, the tuner learns from it, and the run goes on. The summary of a run counts the failures of
each kind; this page says for each kind what happened, how that comes about, and what to do. The
same texts are printed by `loopwright explain-error KIND`.
"""


def error_help(kind: str) -> ErrorHelp | None:
    """The help for a kind of error; None for a kind that this version does not know.

    Example:
        >>> help = lw.records.error_help("RUN_TIMEOUT")
        >>> print(help.kind.value, len(help.causes) > 0)
        RUN_TIMEOUT True
    """
    return HELP.get(kind)


def next_step(kind: str, text: str = "") -> str:
    """The remedy of a failure, in one line without a full stop; by its text it fits the cause.

    Empty for a kind that this version does not know.

    Example:
        >>> print(len(lw.records.next_step("RUN_TIMEOUT")) > 0)
        True
    """
    advice = error_help(kind)
    if advice is None:
        return ""
    fitting = (cause.next_step for cause in advice.causes if cause.fits(text))
    return next(fitting, advice.next_step)


def errors_page() -> str:
    """The page ``docs/errors.md``: a section for each kind of error, in Markdown.

    Example:
        >>> print(lw.records.errors_page().splitlines()[0])
        # Why a trial failed
    """
    lines = [_INTRODUCTION]
    for one in HELP.values():
        lines += [f"## {one.kind}", "", one.meaning, "", f"**In general:** {one.next_step}.", ""]
        for cause in one.causes:
            lines += [f"- **Cause:** {cause.what}", f"  **Example:** `{cause.example}`"]
            lines += [f"  **Next step:** {cause.next_step}.", ""]
    return "\n".join(lines)
