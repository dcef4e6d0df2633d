"""The chief of TensorFlow 2: schedules models over tables and over dense variables.

Its servers and its worker are threads of the same process. Prints for each model the largest
relative difference between tables and dense variables, and how far training moved the rows.
"""

import json

import keras
import numpy as np
import tensorflow as tf

import de_core as de
from tests.distributed.programs.models import (
    KEY_DTYPES,
    MODELS,
    ROWS,
    START,
    STEPS,
    DenseRows,
    TableRows,
    batch_of,
    keys_of,
    relative_difference,
    start_of,
)
from tests.distributed.support.servers_here import cluster_here

SERVERS = 2
cluster, servers = cluster_here(ps=SERVERS, worker=1)
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
devices = [f"/job:ps/replica:0/task:{index}/device:CPU:0" for index in range(SERVERS)]
RATE = 0.01


class Weights:
    """The variables of dense layers, on the servers, created at their first use."""

    def __init__(self):
        self.made = {}

    def __call__(self, name, shape):
        if name not in self.made:
            with tf.init_scope(), strategy.scope():
                self.made[name] = tf.Variable(start_of(name, shape))
        return self.made[name]


def step_on_servers(model, tables):
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(RATE))
    anchors = [each for table in tables.values() for each in table.trainable_variables]
    optimizer.build(anchors)
    weights = Weights()

    @tf.function(autograph=False)
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(TableRows(tables), weights, ids))
        dense = list(weights.made.values())
        of_rows, of_dense = tape.gradient(loss, [anchors, dense], unconnected_gradients="none")
        pairs = [pair for pair in zip(of_rows, anchors, strict=True) if pair[0] is not None]
        optimizer.apply_gradients(pairs)
        for gradient, variable in zip(of_dense, dense, strict=True):
            variable.assign_sub(RATE * gradient)
        return loss

    return step, weights


def trained_here(model):
    """Does the same steps in this process without tables. Returns losses, rows and variables."""
    rows = {name: tf.Variable(start) for name, start in START.items()}
    made = {}

    def dense(name, shape):
        return made.setdefault(name, tf.Variable(start_of(name, shape)))

    losses = []
    for number in range(STEPS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(DenseRows(rows), dense, tf.constant(batch_of(number))))
        variables = [*rows.values(), *made.values()]
        for gradient, variable in zip(tape.gradient(loss, variables), variables, strict=True):
            if gradient is not None:
                variable.assign_sub(RATE * tf.convert_to_tensor(gradient))
        losses.append(loss)
    return {**rows, **made, "losses": tf.stack(losses)}


result = {}
for model in MODELS:
    tables = {
        name: de.Variable(dtype, dim=4, name=f"{model.__name__}_{name}", devices=devices)
        for name, dtype in KEY_DTYPES.items()
    }
    numbers = tf.range(ROWS, dtype=tf.int64)
    for name, table in tables.items():
        table.upsert(keys_of(numbers, name), START[name])
    step, weights = step_on_servers(model, tables)
    losses = []
    for number in range(STEPS):
        losses.append(coordinator.schedule(step, args=(tf.constant(batch_of(number)),)))
        coordinator.join()
    found = {name: table.lookup(keys_of(numbers, name)) for name, table in tables.items()}
    found |= {**weights.made, "losses": tf.stack([each.fetch() for each in losses])}
    wanted = trained_here(model)
    result[model.__name__] = {
        "difference": max(
            relative_difference(np.array(found[name]), np.array(wanted[name])) for name in wanted
        ),
        "moved": max(float(np.abs(np.array(found[name]) - START[name]).max()) for name in START),
    }
print("RESULT", json.dumps(result), flush=True)
