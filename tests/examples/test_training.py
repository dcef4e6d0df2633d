import numpy as np
import pytest
from ranking.errors import DataError
from ranking.evaluation import evaluate
from ranking.model import ModelScorer
from ranking.split import split_by_time
from ranking.synthetic_log import synthetic_log
from ranking.training import TrainingOptions, train


@pytest.fixture(scope="module")
def split():
    return split_by_time(synthetic_log(0, num_users=60, num_items=80, num_events=1500))


def options(**changes):
    return TrainingOptions(**{"epochs": 3, "dim": 4, "batch_size": 512, "seed": 5, **changes})


@pytest.fixture(scope="module")
def uninterrupted(split):
    return train(split.train, options())


def all_scores(model, split):
    return ModelScorer(model, split.train).scores(np.arange(len(split.train.user_ids)))


def test_only_ids_of_the_training_get_a_row(split, uninterrupted):
    assert len(np.unique(split.test.users)) > 0
    assert uninterrupted.get_layer("user").table.size() == len(np.unique(split.train.users))
    assert uninterrupted.get_layer("item").table.size() == len(np.unique(split.train.items))


def test_the_scorer_orders_as_the_model_does(split, uninterrupted):
    log = split.train
    users = np.repeat(np.arange(5), len(log.item_ids))
    items = np.tile(np.arange(len(log.item_ids)), 5)
    ids = {"user_id": log.user_ids[users].astype(str), "item_id": log.item_ids[items].astype(str)}
    served = uninterrupted(ids).numpy()
    scores = ModelScorer(uninterrupted, log).scores(np.arange(5)).ravel()
    np.testing.assert_allclose(1 / (1 + np.exp(-scores)), served, rtol=1e-5)


def test_a_resumed_training_ends_as_an_uninterrupted_one(split, uninterrupted, tmp_path):
    first = train(split.train, options(epochs=1, checkpoint_dir=tmp_path))
    assert not np.array_equal(all_scores(first, split), all_scores(uninterrupted, split))
    resumed = train(split.train, options(checkpoint_dir=tmp_path, resume=True))
    np.testing.assert_array_equal(all_scores(resumed, split), all_scores(uninterrupted, split))


def test_a_finished_training_is_resumed_without_another_epoch(split, tmp_path):
    done = train(split.train, options(epochs=1, checkpoint_dir=tmp_path))
    again = train(split.train, options(epochs=1, checkpoint_dir=tmp_path, resume=True))
    np.testing.assert_array_equal(all_scores(done, split), all_scores(again, split))


def test_a_checkpoint_of_another_model_is_refused(split, tmp_path):
    train(split.train, options(epochs=1, checkpoint_dir=tmp_path))
    with pytest.raises(DataError, match=r"--dim.*Received: .*ckpt-1"):
        train(split.train, options(dim=5, checkpoint_dir=tmp_path, resume=True))


def test_a_checkpoint_that_was_cut_short_is_refused(split, tmp_path):
    train(split.train, options(epochs=1, checkpoint_dir=tmp_path))
    files = list(tmp_path.glob("ckpt-1.data*"))
    assert len(files) > 1  # the variables and the tables' snapshots
    for data in files:
        whole = data.read_bytes()
        data.write_bytes(whole[:100])
        with pytest.raises(DataError, match=r"whole checkpoint.*Received: .*ckpt-1"):
            train(split.train, options(checkpoint_dir=tmp_path, resume=True))
        data.write_bytes(whole)


def test_training_makes_the_ranking_better(split, uninterrupted):
    untrained = train(split.train, options(epochs=0))
    before = evaluate(split, ModelScorer(untrained, split.train))
    after = evaluate(split, ModelScorer(uninterrupted, split.train))
    assert after.auc > before.auc + 0.05
