"""Refusal of candidates between proposing and measuring: registered checks, and limits of a GPU.

Both are functions of the candidate alone, so that a run proposes the same again. Points of another
target, or that their template refuses, are left to those that build them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loopwright.cost import MARGINS, Excess
from loopwright.errors import TimeLimitError, TuneError, UsageError, did_you_mean
from loopwright.task import digits_of
from loopwright.time_limit import TEMPLATE_S, limited

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity, Scheduler


#: Returns the reason why a candidate of a task is refused, in few words, or None.
Check = Callable[["Scheduler", "ConfigEntity"], str | None]
#: Numbers of candidates whose answers are remembered, and of reasons that the summary names.
_REMEMBERED, _NAMED = 1 << 18, 4

_checks: dict[str, Check] = {}


def register_check(name: str) -> Callable[[Check], Check]:
    """Decorate a function as a check of all candidates that tuners propose.

    It is called once for each candidate, before that is built, and returns why it shall not be, or
    None (MetaSchedule's postprocessors that only reject). It may ask ``task.instantiate(config)``
    for the schedule. The default configuration, trial 0, is measured in any case. Tuners take the
    checks that are registered when they are made; a definition that is run again replaces itself.

    Raises:
        UsageError: another function has the name, or none is given.

    Example:
        >>> @lw.tuner.register_check("narrow vectors")
        ... def at_least_eight(task, config):
        ...     lanes = config["tile_j"].size[-1]
        ...     return f"{lanes} lanes" if lanes < 8 else None
        ...
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> tuner = lw.tuner.RandomTuner(task, seed=0)
        >>> print(min(config["tile_j"].size[-1] for config in tuner.ask(40)) >= 8)
        True
        >>> lw.tuner.remove_check("narrow vectors")
    """
    if not isinstance(name, str):
        raise UsageError(
            'a check needs a name: write @loopwright.tuner.register_check("mine/name")'
        )

    def register(check: Check) -> Check:
        if name in _checks and _origin(_checks[name]) != _origin(check):
            raise UsageError(f"there is a check {name!r}; remove it first, or use a new name")
        _checks[name] = check
        return check

    return register


def remove_check(name: str) -> None:
    """Forget a check; an unknown name is a `UsageError`."""
    if name not in _checks:
        there = f"; there are {', '.join(_checks)}" if _checks else "; there are none"
        raise UsageError(f"unknown check {name!r}{did_you_mean(name, _checks)}{there}")
    del _checks[name]


class CandidateChecks:
    """The checks of one run, and the candidates that they refused."""

    def __init__(self, task: Scheduler, checks: Mapping[str, Check] | None = None) -> None:
        self._task = task
        self._checks = dict(_checks if checks is None else checks)
        self._fits = lru_cache(_REMEMBERED)(self._decide)
        #: Refused candidates by ``"name: reason"``.
        self.reasons: Counter[str] = Counter()

    def __call__(self, index: int) -> bool:
        """Whether a candidate may be measured; a check that fails or gives no text is an error."""
        return not self._checks or self._fits(int(index))

    def _decide(self, index: int) -> bool:
        config = self._task.config_space.get(index)
        answers = ((n, self._answer(n, check, config)) for n, check in self._checks.items())
        reason = next((f"{name}: {text}" for name, text in answers if text is not None), None)
        if reason is not None:
            self.reasons[reason] += 1
        return reason is None

    def _answer(self, name: str, check: Check, config: ConfigEntity) -> str | None:
        what = f"check {name!r}"
        try:
            reason: object = limited(TEMPLATE_S, what, check, self._task, config, often=True)
        except KeyboardInterrupt:
            raise
        except TimeLimitError as exc:
            raise TuneError(f"{exc} for {config}{_MEND}") from exc
        except BaseException as exc:  # a user's check: one that calls sys.exit ends nothing
            text = " ".join(f"{type(exc).__name__} for {config}: {exc}".split())
            raise TuneError(f"{what} raised {text}{_MEND}") from exc
        if reason is None or (isinstance(reason, str) and reason):
            return reason
        raise TuneError(
            f"{what} must return why a candidate is refused, or None; for {config} it returned "
            f"{reason!r:.60}"
        )

    @property
    def note(self) -> str:
        if not self.reasons:
            return ""
        shown = self.reasons.most_common(_NAMED)
        why = ", ".join(f"{reason} {n}" for reason, n in shown)
        rest = len(self.reasons) - len(shown)
        more = f", {rest} other reasons" if rest else ""
        return f"refused: {self.reasons.total()} candidates by checks ({why}{more})"


class ChecksOfPart(CandidateChecks):
    """The checks and counts of a run, asked about the points of one structure, from index ``begin``
    on."""

    def __init__(self, whole: CandidateChecks, begin: int) -> None:
        super().__init__(whole._task, {})
        self._whole, self._begin = whole, begin

    def __call__(self, index: int) -> bool:
        return self._whole(self._begin + index)


_MEND = "; mend it, or leave it out with loopwright.tuner.remove_check"


def _origin(check: Check) -> tuple[object, object]:
    """Key that is equal for definitions of one function that were run one after the other."""
    code = getattr(check, "__code__", None)
    return getattr(check, "__qualname__", None), code and code.co_filename


class Pruning:
    """Decides whether points may be built, by their use of resources; None allows all."""

    def __init__(self, task: Scheduler | None) -> None:
        on_gpu = task is not None and "gpu" in task.target.keys
        self._space = task.config_space if task is not None else None
        self._excess = Excess(task) if task is not None and on_gpu else None
        self._known: dict[int, bool] = {}
        self.looked_at = 0
        #: For the points that are pruned, the first limit that each exceeds.
        self.reasons: Counter[str] = Counter()

    def __call__(self, indices: Sequence[int]) -> npt.NDArray[np.bool_]:
        if self._excess is None:
            return np.ones(len(indices), np.bool_)
        new = [i for i in dict.fromkeys(indices) if i not in self._known]
        if len(self._known) + len(new) > _REMEMBERED:
            self._known.clear()
            new = list(dict.fromkeys(indices))
        if new:
            assert self._space is not None
            limits = np.array(list(MARGINS))
            self.looked_at += len(new)
            excess = self._excess.widely(digits_of(self._space, new))
            for index, over in zip(new, excess, strict=True):
                self._known[index] = not over.any()
                self.reasons.update(limits[over][:1].tolist())
        return np.fromiter((self._known[i] for i in indices), np.bool_, len(indices))

    @property
    def pruned(self) -> int:
        return self.reasons.total()

    @property
    def note(self) -> str:
        if not self.pruned:
            return ""
        why = ", ".join(f"{name} {n}" for name, n in self.reasons.most_common())
        return (
            f"pruned:  {self.pruned} of {self.looked_at} points looked at, which take far more "
            f"than the device has ({why})"
        )
