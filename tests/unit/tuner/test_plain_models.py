from __future__ import annotations

import numpy as np
import pytest

from loopwright.errors import TuneError
from loopwright.tuner.model.cost_model import Batch, Samples
from loopwright.tuner.model.plain_models import OffsetModel, RandomModel


def batch(count=50):
    features = np.random.default_rng(0).random((count, 3), dtype=np.float32)
    failed = np.arange(count) % 10 == 0
    return Batch(features, np.linspace(-1, 1, count), failed)


def test_chance_is_the_same_for_equal_candidates_and_seeds():
    one, two, other = (RandomModel(s).predict(batch()) for s in (1, 1, 2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
    ran = one[~batch().failed]
    assert 0 <= ran.min() < 0.2 < 0.8 < ran.max() <= 1


def test_the_offset_is_the_prediction():
    predicted = OffsetModel().predict(batch())
    assert np.array_equal(predicted[~batch().failed], batch().offset[~batch().failed])
    assert predicted[0] < predicted[~batch().failed].min()


@pytest.mark.parametrize("make", [RandomModel, OffsetModel])
def test_files_and_learning(make, tmp_path):
    path = str(tmp_path / "model.json")
    model, again = make(), make()
    model.fit(Samples.of(np.zeros((2, 3)), [0.0, 1.0]))
    model.update(Samples.of(np.zeros((2, 3)), [0.0, 1.0]))
    model.save(path)
    again.load(path)
    assert np.array_equal(model.predict(batch()), again.predict(batch()))


def test_a_seed_is_read_back_and_kinds_are_told_apart(tmp_path):
    path = str(tmp_path / "model.json")
    RandomModel(9).save(path)
    model = RandomModel()
    model.load(path)
    assert model.seed == 9
    with pytest.raises(TuneError, match="kind 'random', not 'offset'"):
        OffsetModel().load(path)
