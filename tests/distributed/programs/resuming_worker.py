"""Trains to a checkpoint, or continues from the checkpoint of another number of workers.

Arguments: "first" or "then"; a folder for the checkpoint. Without a task in `TF_CONFIG`, it is one
process without a strategy.
"""

import contextlib
import json
import os
import pathlib
import sys

import keras
import tensorflow as tf

import de_core as de
from de_core.base.ops import library as de_ops

phase, folder = sys.argv[1], pathlib.Path(sys.argv[2])
BATCH, STEPS, IDS = 96, 4, 60
is_worker = "task" in json.loads(os.environ["TF_CONFIG"])
strategy = tf.distribute.MultiWorkerMirroredStrategy() if is_worker else None
KEYS = tf.range(IDS, dtype=tf.int64)
workers = strategy.num_replicas_in_sync if strategy else 1


def batch_of(number):
    """Returns ids and weights. Some ids of later steps do not occur in earlier steps."""
    most = 30 if number < STEPS else IDS
    ids = tf.random.stateless_uniform([BATCH], [number, 0], 0, most, tf.int64)
    return ids, tf.random.stateless_normal([BATCH, 3], [number, 1])


class Model:
    def __init__(self):
        self.table = de.Variable(dim=3, name="users", initializer="uniform")
        self.dense = tf.Variable(tf.ones([3]), name="dense")
        self.optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.05, name="adam"))
        self.optimizer.build([*self.table.trainable_variables, self.dense])
        self.checkpoint = tf.train.Checkpoint(
            table=self.table, dense=self.dense, optimizer=self.optimizer
        )

    def step(self, ids, weights):
        with tf.GradientTape() as tape:
            rows = de.embedding_lookup(self.table, ids)
            loss = tf.reduce_sum(rows * weights * self.dense)
        variables = [*self.table.trainable_variables, self.dense]
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))


with strategy.scope() if strategy else contextlib.nullcontext():
    shared = Model()
together = tf.function(lambda *batch: strategy.run(shared.step, batch))


def train(number):
    """Does one step on this worker's part of a batch."""
    batch = batch_of(number)
    if strategy is None:
        return shared.step(*batch)
    size = BATCH // workers

    def part_of(context, whole):
        first = context.replica_id_in_sync_group * size
        return whole[first : first + size]

    distributed = strategy.experimental_distribute_values_from_function
    return together(
        *(distributed(lambda context, whole=each: part_of(context, whole)) for each in batch)
    )


if phase == "first":
    for number in range(STEPS):
        train(number)
    shared.checkpoint.write(str(folder / f"of_{strategy.cluster_resolver.task_id}" / "model"))
    result = {"here": int(shared.table.tables[0].run(de_ops.de_table_size))}
    print("RESULT", json.dumps(result), flush=True)
    sys.exit(0)

shared.checkpoint.read(str(folder / "of_0" / "model")).assert_consumed()
lone = Model()
result = {}
for number in range(2 * STEPS + 1):
    if number >= STEPS:
        rows, found = shared.table.lookup(KEYS, return_exists=True)
        wanted, known = lone.table.lookup(KEYS, return_exists=True)
        slots, slots_wanted = (
            {
                each.name: each.lookup(KEYS)
                for each in model.table.get_slot_variables(model.optimizer)
            }
            for model in (shared, lone)
        )
        about = {
            "rows": float(tf.reduce_max(tf.abs(rows - wanted))),
            "slots": [
                float(tf.reduce_max(tf.abs(slots[name] - values)))
                for name, values in slots_wanted.items()
            ],
            "slots not zero": bool(tf.reduce_all([tf.reduce_any(v != 0) for v in slots.values()])),
            "dense": float(tf.reduce_max(tf.abs(shared.dense.read_value() - lone.dense))),
            "iterations": [
                int(model.optimizer.iterations.value.read_value()) for model in (shared, lone)
            ],
            "found": bool(tf.reduce_all(found == known)),
            "size": int(shared.table.size()),
            "here": int(shared.table.tables[0].run(de_ops.de_table_size)),
        }
        result.setdefault("steps", []).append(about)
        if number < 2 * STEPS:
            train(number)
    lone.step(*batch_of(number))
print("RESULT", json.dumps(result), flush=True)
