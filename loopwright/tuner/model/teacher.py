"""The transfer model of a tuner, trained on measurements from elsewhere; structures share one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.tuner.model.candidates import Candidates
from loopwright.tuner.model.replayed_traces import Expressions
from loopwright.tuner.model.transfer_model import History
from loopwright.tuner.model.xgb_model import XGBCostModel

if TYPE_CHECKING:
    from loopwright.tuner.run.interfaces import TunerLike


class Teacher:
    """Trains a model on a tuner's ``elsewhere``, ``pretrained``, ``relatives`` when they grow."""

    def __init__(self, tuner: TunerLike) -> None:
        self._tuner = tuner
        self._size = (0, 0, 0)
        self.history = History()
        self.model: XGBCostModel | None = None

    def taught(self, candidates: Candidates, loss_type: str, threads: int) -> XGBCostModel | None:
        """The model for the features of ``candidates``; None without anything to learn from."""
        tuner = self._tuner
        size = (len(tuner.pretrained), len(tuner.elsewhere), len(tuner.relatives))
        if size == self._size:
            return self.model
        self._size = size
        self.model = None
        history = self.history = History(self._expressions(), tuner.task.name)
        history.add(tuner.task, tuner.elsewhere)
        history.add_given(tuner.task, tuner.pretrained)
        history.add_records(tuner.task, tuner.relatives)
        samples = history.samples(candidates)
        if samples is None:
            return None
        model = XGBCostModel(candidates.names, loss_type, threads)
        model.fit(samples)
        self.model = model if model.ready else None
        return self.model

    def _expressions(self) -> Expressions:
        """Expressions of the logs that were given, and that of the task itself."""
        task = self._tuner.task
        default = task.config_space.default_index
        found = Expressions(task.dag_hash, lambda: task.instantiate(default)[0].dag)
        found.add(self._tuner.expressions)
        return found
