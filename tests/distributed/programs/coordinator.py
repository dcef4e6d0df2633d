"""The chief of TensorFlow 2: schedules steps on workers, with tables on the parameter servers.

Arguments: a folder for a checkpoint.
"""

import json
import os
import sys
import threading

import keras
import tensorflow as tf

import de_core as de
from de_core.base.ops import library
from de_core.tables.table import Table

jobs = json.loads(os.environ["TF_CONFIG"])["cluster"]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec(jobs), rpc_layer="grpc", task_type="chief", task_id=0
)
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
devices = [f"/job:ps/replica:0/task:{index}/device:CPU:0" for index in range(len(jobs["ps"]))]
users = de.Variable(dim=2, name="users", devices=devices, initializer="uniform")
local = de.Variable(dim=2, name="users", initializer="uniform")


def step_of(table):
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adagrad(0.1))
    optimizer.build(table.trainable_variables)

    @tf.function
    def step(ids, weights):
        with tf.GradientTape() as tape:
            rows = de.embedding_lookup(table, ids) + de.embedding_lookup_unique(table, ids)
            bags = tf.RaggedTensor.from_value_rowids(ids, tf.range(tf.size(ids)) // 4).to_sparse()
            bags = de.safe_embedding_lookup_sparse(table, bags, combiner="sum")
            loss = tf.reduce_sum(rows * weights) + tf.reduce_sum(bags * weights[::4])
            if ids[0] < 25:
                [few] = de.embedding_lookup_many([table], [ids[:8]])
                loss += tf.reduce_sum(few * weights[:8])
        gradients = tape.gradient(loss, table.trainable_variables)
        optimizer.apply_gradients(zip(gradients, table.trainable_variables, strict=True))
        return loss

    return step


remote_step, local_step = step_of(users), step_of(local)
for number in range(6):
    ids = tf.random.stateless_uniform([64], [number, 0], 0, 50, tf.int64)
    weights = tf.random.stateless_normal([64, 2], [number, 1])
    value = coordinator.schedule(remote_step, args=(ids, weights))
    coordinator.join()  # one step at a time, so that the rows equal those of one process
    local_step(ids, weights)
difference = tf.reduce_max(tf.abs(users.lookup(range(60)) - local.lookup(range(60))))
sizes = [int(users.size(index)) for index in range(len(devices))]

# All servers save at the same time: each save waits until the other server's save begins.
together, run = threading.Barrier(len(devices), timeout=60), Table.run


def run_together(self, op, *inputs, **attributes):
    if op is library.de_table_save:
        together.wait()
    return run(self, op, *inputs, **attributes)


Table.run = run_together
de.checkpoint.save(users, sys.argv[1])
model = tf.Module()
model.users = users
model.score = tf.function(users.lookup, input_signature=[tf.TensorSpec([None], tf.int64)])
version = de.export(model, f"{sys.argv[1]}_model", signatures=model.score)
Table.run = run
loaded = tf.saved_model.load(version)
served = loaded.signatures["serving_default"](tf.range(60, dtype=tf.int64))
export_difference = tf.reduce_max(tf.abs(next(iter(served.values())) - users.lookup(range(60))))
for _ in range(40):  # without waiting for each step: no step may be lost
    coordinator.schedule(remote_step, args=(tf.constant([99], tf.int64), tf.zeros([1, 2])))
coordinator.join()
result = {
    "difference": float(difference),
    "export_difference": float(export_difference),
    "exported": version.report["tables"]["users"]["rows"],
    "sizes": sizes,
    "loss": float(value.fetch()),
}
print("RESULT", json.dumps(result), flush=True)
