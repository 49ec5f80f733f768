from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import spearmanr

from loopwright.errors import TuneError, UsageError
from loopwright.tuner.model.cost_model import Batch, SampleOutcome, Samples, joined
from loopwright.tuner.model.losses import LOSS_TYPES
from loopwright.tuner.model.xgb_model import XGBCostModel
from tests.unit.tuner.samples import samples_of

NAMES = tuple("abcdef")


def truth(features):
    """Scores with a step, a product and three features that say nothing."""
    return 2.0 * (features[:, 0] > 0.5) + 3 * features[:, 1] * features[:, 2]


def draw(count, seed):
    features = np.random.default_rng(seed).random((count, len(NAMES)), dtype=np.float32)
    return features, truth(features)


def trained(loss_type="reg", count=200, **more):
    features, score = draw(count, 1)
    model = XGBCostModel(NAMES, loss_type, **more)
    model.fit(samples_of(features, score))
    return model


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_it_learns_which_is_faster(loss_type):
    features, score = draw(500, 2)
    predicted = trained(loss_type).predict(Batch.plain(features))
    # "rank-binary" is told no more than which are among the fastest quarter.
    least = 0.75 if loss_type == "rank-binary" else 0.95
    assert spearmanr(predicted, score).statistic > least
    fastest = set(np.argsort(-score)[:50].tolist())
    assert len(fastest & set(np.argsort(-predicted)[:100].tolist())) >= 40


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_predictions_do_not_depend_on_the_number_of_threads(loss_type):
    batch = Batch.plain(draw(300, 3)[0])
    one, many = (trained(loss_type, num_threads=n).predict(batch) for n in (1, 3))
    assert np.array_equal(one, many)


def test_training_twice_gives_the_same():
    batch = Batch.plain(draw(300, 3)[0])
    assert np.array_equal(trained().predict(batch), trained().predict(batch))


def test_few_rows_are_enough_and_none_are_not():
    features, score = draw(12, 4)
    model = XGBCostModel(NAMES)
    assert not model.ready
    model.fit(samples_of(features, score))
    assert model.ready
    model.fit(samples_of(features[:1], score[:1]))
    assert not model.ready
    assert model.predict(Batch.plain(features)).tolist() == [0] * 12


def test_rows_that_are_all_alike_teach_nothing():
    model = XGBCostModel(NAMES)
    model.fit(samples_of(np.ones((50, 6)), np.arange(50.0)))
    assert not model.ready


def test_training_stops_when_rows_held_out_get_no_better():
    features, _ = draw(300, 5)
    noise = np.random.default_rng(6).normal(size=300)
    model = XGBCostModel(NAMES)
    model.fit(samples_of(features, noise))
    assert 1 <= model.rounds < 30


def test_update_adds_to_what_was_learned():
    features, score = draw(100, 7)
    whole, halves = XGBCostModel(NAMES), XGBCostModel(NAMES)
    whole.fit(samples_of(features, score))
    halves.fit(samples_of(features[:60], score[:60]))
    halves.update(samples_of(features[60:], score[60:]))
    assert halves.samples is not None
    assert len(halves.samples) == 100
    batch = Batch.plain(draw(50, 8)[0])
    assert np.array_equal(whole.predict(batch), halves.predict(batch))


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_failures_are_learned_to_be_slow(loss_type):
    features, score = draw(200, 9)
    fails = features[:, 3] > 0.7
    outcome = np.where(fails, SampleOutcome.FAILED, SampleOutcome.EXACT)
    model = XGBCostModel(NAMES, loss_type)
    model.fit(samples_of(features, np.where(fails, np.nan, score), outcome))
    fresh, _ = draw(400, 10)
    predicted = model.predict(Batch.plain(fresh))
    top = np.argsort(-predicted)[:50]
    assert (fresh[:, 3] > 0.7).mean() > 0.25
    assert (fresh[top, 3] > 0.72).mean() < 0.1


@pytest.mark.parametrize("loss_type", ["reg", "rank"])
def test_a_censored_score_is_a_limit(loss_type):
    # The slow half was dropped, and its scores were noted as no faster than the slowest that ran.
    features, score = draw(300, 11)
    slow = score < np.median(score)
    limit = score[~slow].min()
    samples = samples_of(
        features,
        np.where(slow, limit, score),
        np.where(slow, SampleOutcome.CENSORED, SampleOutcome.EXACT),
    )
    model = XGBCostModel(NAMES, loss_type)
    model.fit(samples)
    fresh, theirs = draw(400, 12)
    predicted = model.predict(Batch.plain(fresh))
    assert predicted[theirs < limit - 0.3].mean() < predicted[theirs > limit + 0.3].mean() - 0.5
    fast = theirs > limit
    assert spearmanr(predicted[fast], theirs[fast]).statistic > 0.9


def test_an_offset_is_what_the_trees_start_from():
    # The offset knows all but the step; forty rows are enough to learn the step.
    features, score = draw(40, 13)
    fresh, theirs = draw(400, 14)

    def correlation(knows):
        model = XGBCostModel(NAMES)
        samples = samples_of(features, score)
        known = 3 * features[:, 1] * features[:, 2] if knows else np.zeros(40)
        told = Samples(
            samples.batch.with_offset(known.astype(float)),
            samples.score,
            samples.outcome,
            samples.task,
        )
        model.fit(told)
        offset = (3 * fresh[:, 1] * fresh[:, 2]).astype(float) * knows
        return spearmanr(model.predict(Batch.plain(fresh).with_offset(offset)), theirs).statistic

    assert correlation(True) > 0.99
    assert correlation(True) > correlation(False)


@pytest.mark.parametrize(("scale", "trust"), [(1.0, 1.0), (2.0, 0.5), (-1.0, 0.0)])
def test_an_offset_is_trusted_as_far_as_it_is_right(scale, trust):
    features, score = draw(200, 24)
    samples = samples_of(features, score)
    offset = scale * score
    model = XGBCostModel(NAMES)
    model.fit(Samples(samples.batch.with_offset(offset), score, samples.outcome, samples.task))
    assert model.offset_scale == pytest.approx(trust, abs=0.05)
    predicted = model.predict(samples.batch.with_offset(offset))
    assert spearmanr(predicted, score).statistic > 0.95


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_tasks_are_compared_within_themselves(loss_type):
    # The second task is a thousand times slower, which says nothing about its candidates.
    features, score = draw(200, 15)
    task = np.arange(200) % 2
    model = XGBCostModel(NAMES, loss_type)
    model.fit(samples_of(features, score - 10 * task, task=task))
    fresh, theirs = draw(300, 16)
    least = 0.7 if loss_type == "rank-binary" else 0.93
    assert spearmanr(model.predict(Batch.plain(fresh)), theirs).statistic > least


def test_candidates_without_features_come_last():
    features, _ = draw(30, 17)
    features[::3] = np.nan
    failed = np.isnan(features[:, 0])
    predicted = trained().predict(Batch(features, np.zeros(30), failed))
    assert predicted[failed].max() < predicted[~failed].min()
    assert np.isfinite(predicted).all()
    nothing = Batch(features[failed], np.zeros(10), np.ones(10, bool))
    assert np.isfinite(trained().predict(nothing)).all()


def test_single_features_may_be_unknown():
    features, score = draw(200, 18)
    features[features[:, 4] > 0.5, 5] = np.nan
    model = XGBCostModel(NAMES)
    model.fit(samples_of(features, score))
    assert spearmanr(model.predict(Batch.plain(features)), score).statistic > 0.95


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_features_are_refused(value):
    features, _ = draw(5, 19)
    features[3, 2] = value
    with pytest.raises(TuneError, match="feature 2 of candidate 3 is infinite"):
        Batch.plain(features)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_are_refused(value):
    features, score = draw(5, 20)
    score[4] = value
    with pytest.raises(TuneError, match="score of candidate 4 is"):
        samples_of(features, score)


def test_lengths_that_differ_are_refused():
    with pytest.raises(TuneError, match="5 candidates with 4 scores"):
        samples_of(draw(5, 0)[0], np.zeros(4))


def test_other_features_are_refused():
    with pytest.raises(TuneError, match=r"\(5, 3\) for a cost model of 6"):
        trained().predict(Batch.plain(np.zeros((5, 3))))


@pytest.mark.parametrize("loss_type", ["mse", "Reg", None, ["reg"]])
def test_an_unknown_loss_names_the_known_ones(loss_type):
    with pytest.raises(UsageError, match="reg, rank, rank-binary"):
        XGBCostModel(NAMES, loss_type)


def test_contributions_add_up_to_the_prediction():
    model, batch = trained(), Batch.plain(draw(60, 21)[0])
    parts = model.contributions(batch)
    assert parts.shape == (60, 6)
    constant = model.predict(batch) - parts.sum(axis=1)
    assert np.allclose(constant, constant[0], atol=1e-4)
    strength = np.abs(parts).mean(axis=0)
    assert strength[:3].min() > 5 * strength[3:].max()


def test_joined_samples_keep_their_order():
    one, two = (samples_of(*draw(4, s), task=[s] * 4) for s in (1, 2))
    both = joined([one, two])
    assert both.task.tolist() == [1] * 4 + [2] * 4
    assert np.array_equal(both.batch.features[4:], two.batch.features)


# -- files ------------------------------------------------------------------------------------


def test_opinions_differ_where_nothing_was_measured():
    features, score = draw(60, 5)
    model = XGBCostModel(NAMES, ensemble=6)
    model.fit(samples_of(features[features[:, 1] < 0.5], score[features[:, 1] < 0.5]))
    unseen = draw(500, 6)[0]
    opinions = model.predict_ensemble(Batch.plain(unseen))
    assert opinions.shape == (500, 6)
    assert np.array_equal(opinions[:, 0], model.predict(Batch.plain(unseen)))
    doubt, far = opinions.std(axis=1), unseen[:, 1] * unseen[:, 2] > 0.5
    near = unseen[:, 1] < 0.4
    assert doubt[far].mean() > 1.2 * doubt[near].mean()
    again = XGBCostModel(NAMES, ensemble=6)
    again.fit(model.samples)
    assert np.array_equal(again.predict_ensemble(Batch.plain(unseen)), opinions)


def test_a_model_without_doubts_has_one_opinion(tmp_path):
    batch = Batch.plain(draw(20, 3)[0])
    assert XGBCostModel(NAMES, ensemble=4).predict_ensemble(batch).tolist() == [[0.0]] * 20
    model = trained(ensemble=4)
    assert model.predict_ensemble(batch).shape == (20, 4)
    path = str(tmp_path / "model.json")
    model.save(path)
    model.load(path)
    assert np.array_equal(model.predict_ensemble(batch), model.predict(batch)[:, None])


def test_a_saved_model_predicts_the_same(tmp_path):
    path = str(tmp_path / "model.json")
    model, batch = trained("rank"), Batch.plain(draw(100, 22)[0])
    model.save(path)
    again = XGBCostModel(NAMES)
    again.load(path)
    assert np.array_equal(again.predict(batch), model.predict(batch))
    assert (again.loss_type, again.rounds) == ("rank", model.rounds)


def test_an_untrained_model_is_not_saved(tmp_path):
    with pytest.raises(TuneError, match="not trained"):
        XGBCostModel(NAMES).save(str(tmp_path / "model.json"))


def test_a_model_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(TuneError, match="cannot write"):
        trained().save(str(tmp_path / "missing" / "model.json"))


def damaged(path, how):
    text = path.read_text()
    data = json.loads(text)
    if how == "cut":
        return text[: len(text) // 2]
    if how == "edited":
        data["rounds"] += 1
    if how == "trees edited":
        data["booster"]["learner"]["gradient_booster"]["model"]["trees"][0]["left_children"][0] = 99
    if how == "newer":
        data["version"] = 2
    if how == "foreign":
        data = {"trees": [1, 2]}
    if how == "list":
        data = [1, 2]
    return json.dumps(data)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("cut", "not a cost model"),
        ("edited", "changed or damaged"),
        ("trees edited", "changed or damaged"),
        ("newer", "version 2"),
        ("foreign", "not a cost model"),
        ("list", "not a cost model"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(tmp_path, how, text):
    path = tmp_path / "model.json"
    model = trained()
    model.save(str(path))
    path.write_text(damaged(path, how))
    other, batch = trained(count=60), Batch.plain(draw(10, 23)[0])
    before = other.predict(batch)
    with pytest.raises(TuneError, match=text) as caught:
        other.load(str(path))
    assert str(path) in str(caught.value)
    assert np.array_equal(other.predict(batch), before)


@pytest.mark.parametrize("content", [b"", b"\x80\x04\x95", b"[" * 100_000, b'"text"'])
def test_a_file_of_anything_else_is_refused(tmp_path, content):
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(TuneError, match="not a cost model"):
        XGBCostModel(NAMES).load(str(path))


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(TuneError, match="cannot be read"):
        XGBCostModel(NAMES).load(str(tmp_path / "model.json"))


def test_a_model_of_other_features_is_refused(tmp_path):
    path = str(tmp_path / "model.json")
    trained().save(path)
    with pytest.raises(TuneError, match="6 other features than the 2"):
        XGBCostModel(("x", "y")).load(path)
