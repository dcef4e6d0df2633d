"""Tables whose rows are partly on disk: training, files, errors. Their memory holds a few rows."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support import oracle

BYTES = 300  # memory of a few rows


def tier_in(folder, memory_bytes=BYTES):
    return de.DiskTier(str(folder), memory_bytes=memory_bytes)


def filled(folder, count=500, **arguments):
    table = de.Variable(dim=4, tier=tier_in(folder), **arguments)
    table.upsert(tf.range(count, dtype=tf.int64), tf.random.stateless_normal([count, 4], [1, 2]))
    return table


@pytest.mark.each_choice
@pytest.mark.parametrize("optimizer", ["adam", "ftrl"])
@pytest.mark.parametrize(
    "how", [{}, {"key_dtype": tf.string}, {"mode": "fit"}, {"mode": "fit", "shards": 3}], ids=str
)
def test_training_equals_training_of_dense_variables(optimizer, how, tmp_path):
    oracle.check(lambda: keras.optimizers.get(optimizer), tier=tier_in(tmp_path), **how)


def test_stats_tell_where_rows_are(tmp_path):
    table = filled(tmp_path, devices=["/CPU:0"] * 2)
    table.upsert([1], [[1.0] * 4])
    assert table.lookup(range(500)).shape == [500, 4]
    tier = table.stats()["tier"]
    assert tier["hot_rows"] + tier["cold_rows"] == int(table.size()) == 500
    assert tier["hot_rows"] < 20
    assert tier["rows_out"] > 400
    assert tier["disk_bytes"] > 500 * 16
    assert tier["reads"] > 0
    assert tier["filter_bytes"] > 0


def test_checkpoints_and_exports_hold_all_rows(tmp_path):
    table = filled(tmp_path, name="saved")
    keys = tf.range(600, dtype=tf.int64)  # the last 100 have no row
    expected = table.lookup(keys).numpy()
    path = str(tmp_path / "checkpoint")
    tf.train.Checkpoint(table=table).write(path)
    in_memory = de.Variable(dim=4)
    other_tier = de.Variable(dim=4, name="other", tier=tier_in(tmp_path))
    for restored in (in_memory, other_tier):
        tf.train.Checkpoint(table=restored).read(path).assert_consumed()
        np.testing.assert_array_equal(restored.lookup(keys), expected)
        assert int(restored.size()) == 500
    other_tier.upsert([599], [[7.0] * 4])  # loads the rows of the file
    np.testing.assert_array_equal(other_tier.lookup(keys[:500]), expected[:500])
    assert int(other_tier.size()) == 501

    model = keras.Sequential([keras.Input([], dtype="int64"), table])
    de.export(model, str(tmp_path / "export"))
    served = tf.saved_model.load(str(tmp_path / "export" / "1"))
    answer = served.signatures["serving_default"](keys)
    np.testing.assert_array_equal(next(iter(answer.values())), expected)


def test_a_restriction_ranks_rows_on_disk_too(tmp_path):
    table = filled(tmp_path, restrict_policy=de.FrequencyRestrictPolicy)
    for _ in range(3):
        table.accum(range(40), tf.zeros([40, 4]), tf.ones([40, 4]))
    table.restrict(40)
    assert sorted(table.export()[0].numpy()) == list(range(40))


def test_a_folder_is_used_by_one_table_at_a_time(tmp_path):
    table = filled(tmp_path, name="mine")
    with pytest.raises(tf.errors.FailedPreconditionError, match="directory"):
        filled(tmp_path, name="mine")
    del table
    gc.collect()
    assert int(filled(tmp_path, name="mine").size()) == 500


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Received: .*file"):
        filled(tmp_path / "file")


def test_tables_are_shared_only_with_the_same_tier(tmp_path):
    table = de.get_variable("tiered", dim=4, tier=tier_in(tmp_path))
    assert de.get_variable("tiered", dim=4, tier=tier_in(tmp_path)) is table
    with pytest.raises(ValueError, match="tier="):
        de.get_variable("tiered", dim=4)


def test_a_config_of_a_table_takes_a_tier(tmp_path):
    items = de.TableConfig("items", 4, tier=tier_in(tmp_path))
    layer = de.layers.EmbeddingCollection({"item": de.FeatureConfig("item", items)})
    assert layer({"item": tf.range(3)})["item"].shape == [3, 4]
    config = layer.get_config()
    del layer, items
    gc.collect()  # two live tables cannot use one folder
    copy = de.layers.EmbeddingCollection.from_config(config)
    assert copy({"item": tf.range(5)})["item"].shape == [5, 4]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"tier": "folder"}, TypeError),
        ({"value_dtype": tf.string}, NotImplementedError),
        ({"eviction": de.EvictionLRU(max_rows=10)}, NotImplementedError),
        ({"devices": ["/job:ps/task:0"]}, ValueError),
    ],
)
def test_an_argument_that_a_tier_does_not_support_is_an_error(arguments, error, tmp_path):
    with pytest.raises(error, match=r"tier.*Received: "):
        de.Variable(**{"dim": 4, "tier": tier_in(tmp_path), **arguments})


@pytest.mark.parametrize(
    ("path", "memory_bytes", "error"),
    [
        (5, 100, TypeError),
        ("", 100, ValueError),
        ("gs://bucket", 100, ValueError),
        ("folder", 0, ValueError),
        ("folder", 1.5, TypeError),
        ("folder", None, TypeError),
    ],
)
def test_bad_settings_of_a_tier_are_errors(path, memory_bytes, error):
    with pytest.raises(error, match="Received: "):
        de.DiskTier(path, memory_bytes=memory_bytes)


def test_a_consistent_save_is_refused(tmp_path):
    table = filled(tmp_path)
    with pytest.raises(tf.errors.FailedPreconditionError, match="consistent"):
        de.checkpoint.save(table, str(tmp_path / "saved"), consistent=True)
