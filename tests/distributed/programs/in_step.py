"""Trains synchronously with other replicas; prints the resulting rows and a dense variable.

Arguments: "mirrored" for two replicas in this process, or "worker"; then a folder for checkpoints.
"""

import json
import pathlib
import sys

import keras
import tensorflow as tf
import tf_keras

import de_core as de
from de_core.base.ops import library as de_ops

kind, folder = sys.argv[1], pathlib.Path(sys.argv[2])
REPLICAS, BATCH, STEPS = 2, 64, 4
RULES = {
    "SGD": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "own Adam": lambda: keras.optimizers.Adam(0.05),  # the table has an optimizer of its own
    "tf_keras": lambda: tf_keras.optimizers.Adagrad(0.1),
    "legacy": lambda: tf_keras.optimizers.legacy.Adam(0.05),
    "TensorFlow 1": lambda: tf.compat.v1.train.AdamOptimizer(0.05),
    "Adam": lambda: keras.optimizers.Adam(0.05),
}


def batch_of(number):
    """Returns ids and weights. The replicas' parts have some ids in common."""
    ids = tf.random.stateless_uniform([BATCH * REPLICAS], [number, 0], 0, 50, tf.int64)
    return ids, tf.random.stateless_normal([BATCH * REPLICAS, 3], [number, 1])


def model_of(rule):
    own = RULES[rule]() if rule.startswith("own") else None
    table = de.Variable(dim=3, name="users", initializer="uniform", optimizer=own)
    dense = tf.Variable(tf.ones([3]), name="dense")
    optimizer = RULES[rule]() if own else de.DynamicEmbeddingOptimizer(RULES[rule]())
    if hasattr(optimizer, "build"):
        optimizer.build([*table.trainable_variables, dense])
    return table, dense, optimizer


def step_of(table, dense, optimizer):
    def step(ids, weights):
        with tf.GradientTape() as tape:
            rows = de.embedding_lookup(table, ids)
            again = de.embedding_lookup_unique(table, ids // 2)
            loss = tf.reduce_sum(rows * weights * dense) + tf.reduce_sum(again**2)
        variables = [*table.trainable_variables, dense]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    return step


if kind == "mirrored":
    [device] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        device, [tf.config.LogicalDeviceConfiguration()] * REPLICAS
    )
    strategy = tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(REPLICAS)])
    mine = range(REPLICAS)
else:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()


def parts_of(batch):
    """Returns each tensor as a per-replica value."""

    def part_of(context, whole):
        first = context.replica_id_in_sync_group * BATCH
        return whole[first : first + BATCH]

    distributed = strategy.experimental_distribute_values_from_function
    return [distributed(lambda context, whole=whole: part_of(context, whole)) for whole in batch]


def greatest(difference):
    return float(tf.reduce_max(tf.abs(difference)))


result = {}
keys = tf.range(60, dtype=tf.int64)
for rule in RULES:
    with strategy.scope():
        table, dense, optimizer = model_of(rule)
        step = step_of(table, dense, optimizer)
    lone_table, lone_dense, lone_optimizer = model_of(rule)
    lone_step = step_of(lone_table, lone_dense, lone_optimizer)
    together = tf.function(lambda *batch, step=step: strategy.run(step, batch))
    for number in range(STEPS):
        # The first step is eager, because it makes the variables of some families.
        parts = parts_of(batch_of(number))
        together(*parts) if number else strategy.run(step, parts)
        lone_step(*batch_of(number))
    rows, found = table.lookup(keys, return_exists=True)
    wanted, known = lone_table.lookup(keys, return_exists=True)
    result[rule] = {
        "rows": greatest(rows - wanted),
        "dense": greatest(dense.read_value() - lone_dense),
        "found": bool(tf.reduce_all(found == known)),
        "size": int(table.size()) - int(lone_table.size()),
        "here": [int(each.run(de_ops.de_table_size)) for each in table.tables],
    }

# All workers call a table's methods together. Every worker sees the rows of all workers.
mine = strategy.cluster_resolver.task_id if kind == "worker" else 0
table.upsert(keys[:3] + 100 + mine, tf.fill([3, 3], float(mine)))
table.remove([100])
exported, values = table.export()
sums = de.embedding_lookup_sparse(
    table, tf.sparse.from_dense(keys[None, 1:9]), None, combiner="sum"
)
with strategy.scope():
    counted = de.Variable(dim=1, name="counted", restrict_policy=de.FrequencyRestrictPolicy)
counted.upsert(keys, tf.zeros([60, 1]))
known, scores = tf.function(counted.export_keys_and_scores)()
result["verbs"] = {
    "scored": [len(set(known.numpy().tolist())), len(scores)],
    "upserted": table.lookup(range(101, 104)).numpy()[:, 0].tolist(),
    "contained": table.contains([100, 101, 49]).numpy().tolist(),
    "exported": [len(exported), int(table.size())],
    "as looked up": greatest(values - table.lookup(exported)),
    "pooled": greatest(sums[0] - tf.reduce_sum(table.lookup(keys[1:9]), 0)),
}

# One checkpoint for all workers, through both entry points.
before = table.lookup(exported)
reports = de.checkpoint.save(table, folder / "tables")
tf.train.Checkpoint(table=table).write(str(folder / f"of_{mine}" / "model"))
for path in (folder / "tables", folder / "of_0" / "model"):
    table.clear()
    de.checkpoint.restore(table, path)
    restored = [greatest(before - table.lookup(exported)), int(table.size())]
    result.setdefault("restored", []).append(restored)
result["files"] = len(reports["users"])

if kind == "mirrored":  # Keras 3 cannot fit under MultiWorkerMirroredStrategy
    with strategy.scope():
        model = keras.Sequential([de.layers.Embedding(4, name="items"), keras.layers.Dense(1)])
        model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "mse")
    data = tf.data.Dataset.from_tensor_slices((keys, tf.cast(keys % 2, tf.float32)[:, None]))
    losses = model.fit(data.batch(20), epochs=5, shuffle=False, verbose=0).history["loss"]
    result["losses"] = [losses[0], losses[-1]]
slices = tf.IndexedSlices(tf.ones([1, 3]), keys[:1])
clipping = de.DynamicEmbeddingOptimizer(tf_keras.optimizers.legacy.SGD(global_clipnorm=1.0))
of_scale = {"skip_gradients_aggregation": True}
by_hand = de.DynamicEmbeddingOptimizer(tf_keras.optimizers.SGD())
for name, optimizer, settings in (("global", clipping, {}), ("summed", by_hand, of_scale)):
    pairs = [(slices, table.trainable_variables[0])]
    try:
        strategy.run(lambda o=optimizer, p=pairs, s=settings: o.apply_gradients(p, **s))
    except NotImplementedError as error:
        result.setdefault("refused", {})[name] = str(error)
if kind == "worker":
    strict = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(), reject_nonfinite=True)
    with strategy.scope():
        strict.build(table.trainable_variables)
        attempts = {
            "text": lambda: de.Variable(value_dtype=tf.string, name="texts"),
            "export_batches": lambda: next(table.export_batches()),
            "a SavedModel": lambda: tf.saved_model.save(table, str(folder / "saved_model")),
            "deltas": lambda: de.checkpoint.Manager(table, folder / "deltas").save(),
            "reject_nonfinite": lambda: strict.apply([slices], table.trainable_variables),
        }
        for name, attempt in attempts.items():
            try:
                attempt()
            except NotImplementedError as error:
                result.setdefault("refused", {})[name] = str(error)
print("RESULT", json.dumps(result), flush=True)
