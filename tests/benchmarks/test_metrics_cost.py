"""The cost of watching a trainer: `TableMetrics` beside a training step of 26 tables.

The parts are measured by themselves, because two trainings differ by more than the bar. An op reads
the clock twice, which this leaves out, and every 16th step sums the squares of its gradients.
"""

import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.benchmarks.rounds import Bar

pytestmark = pytest.mark.benchmark

FEATURES, DIM, BATCH, STEPS = 26, 16, 1024, 50
#: The callback writes the numbers once in so many steps.
EVERY = 1000


def model_of():
    features, inputs = {}, {}
    for number in range(FEATURES):
        name = f"f{number:02}"
        table = de.TableConfig(name, DIM, optimizer=keras.optimizers.Adam(0.01))
        features[name] = de.FeatureConfig(name, table, "sum")
        inputs[name] = keras.Input([], dtype="int64", name=name)
    rows = de.layers.EmbeddingCollection(features, concatenate=True)(inputs)
    hidden = keras.layers.Dense(64, activation="relu")(rows)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def data_of(model):
    random = np.random.default_rng(0)
    inputs = {
        name: random.zipf(1.2, BATCH * STEPS) % 100_000 for name in (x.name for x in model.inputs)
    }
    return tf.data.Dataset.from_tensor_slices((inputs, np.ones([BATCH * STEPS, 1]))).batch(BATCH)


def cpu_seconds(body, count):
    """Returns the median CPU time of `body`, of `count` runs."""
    times = []
    for _ in range(count):
        begin = time.process_time()
        body()
        times.append(time.process_time() - begin)
    return float(np.median(times))


def test_watching_costs_a_hundredth_of_a_step(report, rounds, tmp_path):
    model = model_of()
    data = data_of(model).cache()
    model.fit(data, shuffle=False, verbose=0)
    step = cpu_seconds(lambda: model.fit(data, shuffle=False, verbose=0), rounds) / STEPS
    watch = de.callbacks.TableMetrics(str(tmp_path), every=1)
    watch.set_model(model)
    watch.on_train_begin()
    write = cpu_seconds(lambda: watch.on_train_batch_end(0), rounds)
    watch.on_train_end()
    idle = de.callbacks.TableMetrics()
    idle.set_model(model)
    idle.on_train_begin()

    def batches():
        for _ in range(1000):
            idle.on_train_batch_end(0)

    batch = cpu_seconds(batches, rounds) / 1000
    gradients = np.ones([FEATURES * BATCH * DIM], np.float32)
    norms = cpu_seconds(lambda: np.dot(gradients, gradients), rounds) / 16
    cost = batch + norms + write / EVERY
    cells = {
        "step, ms": step * 1e3,
        "a batch's end, us": batch * 1e6,
        "norms of gradients per step, us": norms * 1e6,
        "numbers of 26 tables, ms": write * 1e3,
        f"of a step, if written every {EVERY} steps": f"{cost / step:.2%}",
    }
    report.row("`TableMetrics` beside a step, CPU time", cells)
    report.bars.append(Bar("step / cost of `TableMetrics`", step / cost, 100, 200))
    assert cost < 0.01 * step
