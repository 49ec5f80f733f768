"""The learned cost model: gradient-boosted trees of XGBoost, through its public interface only.

Training is deterministic: a fixed seed, rows in the order of their measuring, and the same trees
whatever the number of threads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import TuneError, UsageError, did_you_mean
from loopwright.files import FileKind, Output, marked, write
from loopwright.tuner.model.cost_model import (
    Batch,
    Floats,
    SampleOutcome,
    Samples,
    failed_last,
    joined,
)
from loopwright.tuner.model.losses import LOSS_TYPES, Loss, centred, make_loss

if TYPE_CHECKING:
    import xgboost


_FORMAT = "loopwright cost model"
_VERSION, _KIND = 1, "xgboost"
_FIELDS = {
    "names": list,
    "loss_type": str,
    "columns": list,
    "rounds": int,
    "trust": float,
    "booster": dict,
}
_MODEL = FileKind("a cost model", marked(f'{{"format": "{_FORMAT}"'.encode()))


def _read(path: str) -> dict[str, Any]:
    """The data of a model that `XGBCostModel.save` wrote, checked."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as exc:
        raise TuneError(f"the cost model {path} cannot be read: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:
        text = " ".join(str(exc).split())[:120]
        raise TuneError(f"{path} is not a cost model of loopwright: no JSON ({text})") from exc
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise TuneError(f"{path} is not a cost model of loopwright")
    if data.get("version") != _VERSION:
        raise TuneError(
            f"{path} is a cost model of version {data.get('version')!r}; "
            f"this loopwright reads version {_VERSION}: train it again"
        )
    body = {k: v for k, v in data.items() if k not in ("format", "version", "sha256")}
    if data.get("sha256") != _checksum(body):
        raise TuneError(f"{path} was changed or damaged since it was written: train it again")
    if body.get("model") != _KIND:
        raise TuneError(f"{path} is a cost model of kind {body.get('model')!r}, not {_KIND!r}")
    for name, wanted in _FIELDS.items():
        if not isinstance(body.get(name), wanted):
            raise TuneError(f"{path} has no {name!r} of type {wanted.__name__}: train it again")
    return body


def _checksum(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


#: Largest number of rounds of boosting.
ROUNDS = 300
#: Rounds without gain on the rows held out after which training stops.
_PATIENCE = 15
#: Least number of rows for some to be held out; fewer get a fixed number of rounds.
_ENOUGH = 40
_FEW_ROUNDS = 40
#: Weight, in rows, of the assumption that the offset is right, before any row was measured.
_PRIOR_ROWS = 8
#: Every fifth row is held out.
_FOLD = 5


class XGBCostModel:
    """Boosted trees on the features of candidates.

    Depth 3, at most 300 rounds: on 64 to 2 000 rows deeper trees were no better. Every fifth row is
    held out to find the number of rounds, for which trees are then grown from all rows.

    A ``loss_type`` is ``"reg"`` (squared error of log2 of the speed), ``"rank"`` (which of two
    candidates of a task is faster), or ``"rank-binary"`` (which of two is among the fastest
    quarter).
    """

    def __init__(
        self,
        names: Sequence[str],
        loss_type: str = "reg",
        num_threads: int | None = None,
        seed: int = 0,
        ensemble: int = 1,
    ) -> None:
        if loss_type not in LOSS_TYPES:
            raise UsageError(
                f"unknown loss_type {loss_type!r}{did_you_mean(str(loss_type), LOSS_TYPES)}; "
                f"use one of {', '.join(LOSS_TYPES)}"
            )
        self.names = tuple(names)
        self.loss_type = loss_type
        # One is fastest for so few rows; predictions do not depend on it.
        self.num_threads = 1 if num_threads is None else num_threads
        self.seed = seed
        # The first model learns from all rows alike, the others with random weights of the rows, as
        # the Bayesian bootstrap draws them (Rubin, 1981).
        self._ensemble_size = ensemble
        self.rounds = 0
        #: Factor of offsets, 0 to 1, since another model's prediction may have the right order and
        #: the wrong scale, or be of no use; 1 before there is data.
        self.offset_scale = 1.0
        self._samples: Samples | None = None
        self._booster: xgboost.Booster | None = None
        self._ensemble: list[xgboost.Booster] = []
        #: Columns that varied in training; no tree can use the others.
        self._columns: npt.NDArray[np.int64] = np.empty(0, np.int64)

    @property
    def samples(self) -> Samples | None:
        """Samples that it learned from; None before the first ``fit`` and after ``load``."""
        return self._samples

    @property
    def ready(self) -> bool:
        return self._booster is not None

    def fit(self, samples: Samples) -> None:
        """Learn from these samples alone, but for those without features; with fewer than two that
        ran it predicts the offset."""
        self._check(samples.batch)
        self._samples = samples
        self._booster, self._ensemble, self.rounds, self.offset_scale = None, [], 0, 1.0
        rows = samples.take(~samples.batch.failed)
        if np.count_nonzero(rows.outcome != SampleOutcome.FAILED) < 2:
            return
        features = rows.batch.features
        # NaN is one value.
        same = (features == features[0]) | (np.isnan(features) & np.isnan(features[0]))
        self._columns = np.flatnonzero(~same.all(axis=0))
        if not len(self._columns):
            return
        target, upper, offset = centred(rows)
        self.offset_scale = _offset_scale(target, upper, offset)
        offset *= self.offset_scale
        training = _Training(
            features[:, self._columns], offset, target, upper, rows.task, self.loss_type, self.seed
        )
        params = self._params()
        self.rounds = training.rounds(params)
        self._booster = training.train(params, self.rounds)
        for number in range(self._ensemble_size - 1):
            again = training.resampled(number)
            self._ensemble.append(again.train({**params, "seed": number + 1}, self.rounds))

    def update(self, samples: Samples) -> None:
        """Learn from these samples as well."""
        self.fit(samples if self._samples is None else joined([self._samples, samples]))

    def predict(self, batch: Batch) -> Floats:
        """Scores of candidates, float64 ``(n,)``, finite, higher for faster; failed ones last."""
        self._check(batch)
        return self._scores(batch, [] if self._booster is None else [self._booster])[:, 0]

    def predict_ensemble(self, batch: Batch) -> Floats:
        """Scores by each model of the ensemble, float64 ``(n, k)``, the first as of `predict`; one
        column before ``fit`` and after ``load``.

        All are plausible after what was measured: where they differ, more measurements would help.
        """
        self._check(batch)
        return self._scores(
            batch, [] if self._booster is None else [self._booster, *self._ensemble]
        )

    def _scores(self, batch: Batch, boosters: Sequence[xgboost.Booster]) -> Floats:
        offset = self.offset_scale * batch.offset
        if not boosters or not len(batch):
            return failed_last(offset, batch.failed)[:, None]
        rows = np.ascontiguousarray(batch.features[:, self._columns])
        columns = []
        for booster in boosters:
            margin = booster.inplace_predict(
                rows,
                predict_type="margin",
                base_margin=offset.astype(np.float32),
                validate_features=False,
            )
            scores = np.asarray(margin, np.float64).reshape(-1)
            columns.append(failed_last(scores, batch.failed))
        return np.stack(columns, axis=1)

    def contributions(self, batch: Batch) -> Floats:
        """SHAP values of the trees, float64 ``(n, m)``, without the offset and a constant."""
        self._check(batch)
        parts = np.zeros(batch.features.shape)
        if self._booster is None or not len(batch):
            return parts
        matrix = _matrix(batch.features[:, self._columns], batch.offset, self.num_threads)
        shares = self._booster.predict(matrix, pred_contribs=True, validate_features=False)
        parts[:, self._columns] = shares.reshape(len(batch), -1)[:, :-1]
        return parts

    def save(self, path: str) -> None:
        if self._booster is None:
            raise TuneError("the cost model was not trained yet; there is nothing to save")
        data = {
            "model": _KIND,
            "names": list(self.names),
            "loss_type": self.loss_type,
            "columns": self._columns.tolist(),
            "rounds": self.rounds,
            # The name that files of before have.
            "trust": self.offset_scale,
            "booster": json.loads(self._booster.save_raw("json").decode()),
        }
        head = {"format": _FORMAT, "version": _VERSION, "sha256": _checksum(data)}
        text = json.dumps({**head, **data}, allow_nan=False)
        write(Output(Path(path), text.encode(), _MODEL), force=None, error=TuneError)

    def load(self, path: str) -> None:
        """Become the model of a file; nothing in it is executed or unpickled."""
        data = _read(path)
        if tuple(data["names"]) != self.names:
            raise TuneError(
                f"{path} is for {len(data['names'])} other features than the "
                f"{len(self.names)} of this task; it may be of another feature_type"
            )
        import xgboost

        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(json.dumps(data["booster"]).encode()))
        except (xgboost.core.XGBoostError, ValueError, TypeError) as exc:
            text = " ".join(str(exc).split())[:160]
            raise TuneError(f"XGBoost {xgboost.__version__} cannot read {path}: {text}") from exc
        self._booster = booster
        self._columns = np.array(data["columns"], np.int64)
        self.loss_type, self.rounds = data["loss_type"], data["rounds"]
        self.offset_scale = data["trust"]
        self._samples, self._ensemble = None, []

    def _params(self) -> dict[str, Any]:
        return {
            "max_depth": 3,
            "eta": 0.2,
            "gamma": 1e-4,
            "min_child_weight": 0.1,
            "lambda": 1.0,
            "tree_method": "hist",
            "max_bin": 32,
            # Each tree sees some of many columns: half the time, and no worse on unseen rows.
            "colsample_bytree": min(1.0, max(0.3, 32 / len(self._columns))),
            "base_score": 0.0,
            "disable_default_eval_metric": True,
            "nthread": self.num_threads,
            "seed": 0,
            "verbosity": 0,
        }

    def _check(self, batch: Batch) -> None:
        if batch.features.ndim != 2 or batch.features.shape[1] != len(self.names):
            raise TuneError(
                f"features of shape {batch.features.shape} for a cost model of "
                f"{len(self.names)} features"
            )


@dataclass(frozen=True)
class _Training:
    features: npt.NDArray[np.float32]
    offset: Floats
    target: Floats
    upper: npt.NDArray[np.bool_]
    task: npt.NDArray[np.int64]
    loss_type: str
    seed: int
    weight: Floats | None = None

    def resampled(self, number: int) -> _Training:
        """The same rows with weights of the Bayesian bootstrap."""
        rng = np.random.default_rng([self.seed, number])
        return replace(self, weight=rng.exponential(size=len(self.target)))

    def rounds(self, params: dict[str, Any]) -> int:
        """Number of trees to grow, judged by rows that did not grow them."""
        count = len(self.target)
        if count < _ENOUGH:
            return _FEW_ROUNDS
        import xgboost

        held = np.arange(count) % _FOLD == _FOLD - 1
        stop = xgboost.callback.EarlyStopping(rounds=_PATIENCE, maximize=False)
        booster = self.train(params, ROUNDS, held, [stop])
        return int(booster.best_iteration) + 1

    def train(
        self,
        params: dict[str, Any],
        rounds: int,
        held: npt.NDArray[np.bool_] | None = None,
        callbacks: Sequence[Any] = (),
    ) -> xgboost.Booster:
        """Grow trees from the rows, but for those that are held out to be judged by."""
        import xgboost

        rows = np.ones(len(self.target), np.bool_) if held is None else ~held
        loss = self._loss(rows)

        def objective(margin: npt.NDArray[Any], matrix: xgboost.DMatrix) -> tuple[Floats, Floats]:
            return loss.gradient(margin.astype(np.float64).reshape(-1))

        threads = params["nthread"]
        more: dict[str, Any] = {}
        if held is not None:
            judge = self._loss(held)
            more["evals"] = [(_matrix(self.features[held], self.offset[held], threads), "held")]
            more["custom_metric"] = lambda margin, matrix: (
                "loss",
                judge.value(margin.astype(np.float64).reshape(-1)),
            )
        return xgboost.train(
            params,
            _matrix(self.features[rows], self.offset[rows], threads),
            num_boost_round=rounds,
            obj=objective,
            callbacks=list(callbacks),
            verbose_eval=False,
            **more,
        )

    def _loss(self, rows: npt.NDArray[np.bool_]) -> Loss:
        weight = None if self.weight is None else self.weight[rows]
        return make_loss(
            self.loss_type, self.target[rows], self.upper[rows], self.task[rows], self.seed, weight
        )


def _offset_scale(target: Floats, upper: npt.NDArray[np.bool_], offset: Floats) -> float:
    """Slope of the measured scores over the offsets, from 0 to 1, by least squares; as if eight
    more rows had a slope of 1."""
    x, y = offset[~upper], target[~upper]
    spread = float(x.var()) if len(x) else 0.0
    if spread == 0:
        return 1.0
    x, y = x - x.mean(), y - y.mean()
    slope = (float(x @ y) + _PRIOR_ROWS * spread) / (float(x @ x) + _PRIOR_ROWS * spread)
    return min(1.0, max(0.0, slope))


def _matrix(features: npt.NDArray[np.float32], offset: Floats, num_threads: int) -> xgboost.DMatrix:
    import xgboost

    return xgboost.DMatrix(
        np.ascontiguousarray(features), base_margin=offset.astype(np.float32), nthread=num_threads
    )
