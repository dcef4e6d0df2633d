"""The numbers of tables equal what the program did, in every form."""

import urllib.request

import keras
import numpy as np
import pytest
import tensorflow as tf
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing import event_accumulator

import de_core as de
from de_core.base.ops import library
from de_core.tables.table import Table


def new_table(**arguments):
    return de.Variable(dim=2, name="users", optimizer=keras.optimizers.SGD(1.0), **arguments)


def slices(ids, value=1.0):
    ids = tf.constant(ids, tf.int64)
    return tf.IndexedSlices(tf.fill([len(ids), 2], value), ids)


def test_rows_hits_and_misses_are_counted():
    table = new_table()
    table.upsert([1, 2], tf.ones([2, 2]))
    table.lookup([1])
    monitor = de.metrics.Monitor(table)
    table.upsert([2, 3, 4], tf.zeros([3, 2]))
    table.lookup([1, 2, 9, 1])
    numbers = monitor.read()["users"]
    assert (numbers["rows"], numbers["inserted"]) == (4, 2)
    assert (numbers["hits"], numbers["misses"], numbers["lookups"]) == (4, 1, 2)
    assert (numbers["hit_rate"], numbers["miss_rate"]) == (0.75, 0.25)
    assert numbers["bytes"] == table.memory_usage()["total"]
    assert 0 < numbers["load_factor"] == table.stats()["load_factor"] <= 1
    assert "hit_rate" not in monitor.read()["users"]


def test_evicted_expired_and_refused_rows_are_counted():
    bounded = new_table(eviction=[de.EvictionLRU(max_rows=64), de.EvictionTTL(steps=1)])
    strict = de.Variable(dim=2, name="strict", admission=de.AdmissionCount(2), optimizer="sgd")
    monitor = de.metrics.Monitor([bounded, strict])
    for first in range(0, 100, 10):
        bounded.optimizer.step(slices(range(first, first + 10)))
    bounded.evict_expired()
    strict.optimizer.step(slices([1]))
    numbers = monitor.read()
    assert numbers["users"]["rows"] == bounded.size()
    assert numbers["users"]["inserted"] == 100
    assert numbers["users"]["evicted"] == 100 - int(bounded.size())
    assert 0 < numbers["users"]["expired"] <= numbers["users"]["evicted"]
    assert numbers["strict"]["refused"] == 1


def test_steps_and_the_norms_of_some_gradients_are_counted():
    table = new_table(devices=["/CPU:0"] * 2)
    monitor = de.metrics.Monitor(table)
    for step in range(17):
        table.optimizer.step(slices([4], float(step + 3)))
    numbers = monitor.read()["users"]
    assert numbers["updates"] == 2 * 17  # each shard does a step
    assert numbers["update_seconds"] > 0
    assert monitor.read()["users"]["update_seconds"] == numbers["update_seconds"]
    stats = table.stats()
    assert stats["gradients_read"] == 4
    assert stats["gradient_norms"] == pytest.approx(np.sqrt(2) * (3 + 19))
    table.optimizer.step(slices([4], np.nan))
    later = monitor.read()["users"]
    assert later["update_seconds"] > numbers["update_seconds"]
    assert "gradient_norm" not in later


def test_the_norm_of_a_gradient_is_its_euclidean_norm():
    for dtype in (tf.float32, tf.float64, tf.bfloat16):
        table = de.Variable(dim=7, name="users", value_dtype=dtype, optimizer="sgd")
        monitor = de.metrics.Monitor(table)
        values = np.random.default_rng(0).normal(size=[5, 7])
        gradient = tf.IndexedSlices(tf.cast(values, dtype), tf.range(5, dtype=tf.int64))
        table.optimizer.step(gradient)
        wanted = np.linalg.norm(tf.cast(gradient.values, tf.float64))
        assert monitor.read()["users"]["gradient_norm"] == pytest.approx(wanted, rel=1e-6)


def test_the_norms_of_rows_are_those_of_a_sample():
    table = de.Variable(dim=2, name="users")
    table.upsert(range(1000), tf.random.normal([1000, 2]))
    norms = np.linalg.norm(table.lookup(range(1000)), axis=1)
    monitor = de.metrics.Monitor(table)
    numbers = monitor.read()["users"]
    assert numbers["row_norm_p90"] == pytest.approx(np.percentile(norms, 90), rel=1e-6)
    assert numbers["row_norm_max"] == pytest.approx(norms.max(), rel=1e-6)
    small = de.metrics.Monitor(table, sample=100)
    small.read()
    assert len(small.row_norms["users"]) == 100
    assert "row_norm_max" not in de.metrics.Monitor(table, sample=0).read()["users"]


def test_a_sample_that_the_first_shard_fills_reads_no_other_shard(monkeypatch):
    table = de.Variable(dim=2, name="users", devices=["/CPU:0", "/CPU:0"])
    table.upsert(range(100), tf.ones([100, 2]))
    monitor = de.metrics.Monitor(table, sample=int(table.size(0)))
    read, export_batches = [], Table.export_batches

    def counted(shard):
        for batch in export_batches(shard):
            read.append(len(batch[0]))
            yield batch

    monkeypatch.setattr(Table, "export_batches", counted)
    monitor.read()
    assert sum(read) == len(monitor.row_norms["users"]) == int(table.size(0)) < 100


def test_integer_and_string_rows_have_no_norms():
    counts = de.Variable(dim=1, value_dtype=tf.int64, name="counts")
    counts.upsert([1], [[2]])
    assert "row_norm_max" not in de.metrics.Monitor(counts).read()["counts"]


def small_model():
    layer = de.layers.Embedding(2, initializer="ones", optimizer="adam", name="users")
    model = keras.Sequential([keras.Input((), dtype="int64"), layer, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_keras_logs_the_numbers():
    model = small_model()
    callback = de.callbacks.TableMetrics()
    ids = np.arange(8)
    fit = {"batch_size": 4, "epochs": 2, "verbose": 0, "callbacks": [callback]}
    history = model.fit(ids, np.ones([8, 1]), **fit).history
    assert history["users/rows"] == [8, 8]
    assert history["users/updates"] == [2, 4]
    assert history["users/hit_rate"] == [0.0, 1.0]
    # Gradients are read in the first step, and then in every 16th.
    norms = history["users/gradient_norm"]
    assert len(norms) == 2
    assert norms[0] > 0.0
    assert np.isnan(norms[1])


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_tensorboard_reads_scalars_and_histograms(tmp_path, steps_per_execution):
    every_two = {
        "callbacks": [
            de.callbacks.TableMetrics(str(tmp_path), every=2),
            de.checkpoint.IncrementalCheckpoint(tmp_path / "saves", save_freq=2),
        ]
    }
    model = small_model()
    model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    model.fit(np.arange(8), np.ones([8, 1]), batch_size=2, verbose=0, **every_two)
    assert len(list((tmp_path / "saves").glob("*.index"))) == 2
    read = event_accumulator.EventAccumulator(str(tmp_path), {"histograms": 0}).Reload()
    assert [(each.step, each.value) for each in read.Scalars("users/rows")] == [(2, 4.0), (4, 8.0)]
    norms = [each.histogram_value for each in read.Histograms("users/row_norms")]
    assert [(each.num, sum(each.bucket)) for each in norms] == [(4.0, 4.0), (8.0, 8.0)]


def test_a_model_that_fit_builds_is_watched():
    layer = de.layers.Embedding(2, name="users", optimizer="adam")
    model = keras.Sequential([layer, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    fit = {"batch_size": 4, "verbose": 0, "callbacks": [de.callbacks.TableMetrics()]}
    history = model.fit(np.arange(8), np.ones([8, 1]), **fit).history
    assert history["users/rows"] == [8]


def test_a_model_without_tables_is_refused():
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"at least one de\.Variable"):
        model.fit(np.ones([4, 2]), np.ones(4), callbacks=[de.callbacks.TableMetrics()])


def test_rows_that_are_not_finite_stop_no_training(tmp_path):
    model = small_model()
    model.layers[0].table.upsert([100], [[np.nan, 1.0]])
    fit = {"verbose": 0, "callbacks": [de.callbacks.TableMetrics(str(tmp_path))]}
    history = model.fit(np.arange(8), np.ones([8, 1]), **fit).history
    assert np.isnan(history["users/row_norm_max"][0])


def test_prometheus_reads_the_numbers():
    table = new_table()
    table.upsert([1, 2, 3], tf.ones([3, 2]))
    endpoint = de.metrics.serve(0, [table])
    try:
        table.lookup([1, 9])
        table.optimizer.step(slices([1]))
        address = f"http://127.0.0.1:{endpoint.port}/metrics"
        page = urllib.request.urlopen(address).read().decode()
    finally:
        endpoint.close()
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert found["de_table_rows", "users"] == 3
    assert found["de_table_misses_total", "users"] == 1
    assert found["de_table_updates_total", "users"] == 1
    assert found["de_table_gradient_norm", "users"] == pytest.approx(np.sqrt(2))
    assert found["de_table_row_norm", "0.5", "users"] == pytest.approx(np.sqrt(2))
    again = de.metrics.serve(endpoint.port, [table])
    again.close()


def test_bad_arguments_are_refused():
    table = de.Variable(dim=2)
    for error, sample in ((ValueError, -1), (TypeError, 0.5)):
        for make in (lambda sample: de.metrics.Monitor(table, sample), de.callbacks.TableMetrics):
            with pytest.raises(error, match=r"`sample` must be.*Received: sample="):
                make(sample=sample)
    for error, every in ((ValueError, 0), (TypeError, "epoch")):
        with pytest.raises(error, match=r"an integer of at least 1, or None. Received: every="):
            de.callbacks.TableMetrics(every=every)
    with pytest.raises(ValueError, match=r"at least one de\.Variable"):
        de.metrics.Monitor(tf.Module())


def test_the_ops_of_a_step_are_timed():
    """The clock of lookups counts pooled lookups too, and no other reads."""
    table = new_table()
    before = table.stats()
    de.embedding_lookup_sparse(table, tf.ragged.constant([[1, 2]], dtype=tf.int64), None)
    table.lookup([1])
    table.contains([1])
    table.tables[0].run(library.de_table_size)
    many = tf.ones([3000, 5], tf.int64)  # read in several parts
    de.embedding_lookup_sparse(table, tf.RaggedTensor.from_tensor(many), None)
    assert table.stats()["lookups"] == before["lookups"] + 3
