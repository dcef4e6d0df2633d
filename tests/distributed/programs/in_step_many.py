"""A synchronous worker that trains many features of tables with several dtypes, one of string keys.

Argument: a folder for a checkpoint. Prints how far the rows are from the rows that one process
trains, and the number of collectives for several numbers of features and tables.
"""

import json
import pathlib
import sys

import keras
import tensorflow as tf

import de_core as de

BATCH, STEPS, IDS = 32, 3, 40
KINDS = [(tf.int64, tf.float32), (tf.string, tf.float32), (tf.int32, tf.float64)]
folder = pathlib.Path(sys.argv[1])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
task = strategy.cluster_resolver.task_id
workers = strategy.num_replicas_in_sync


def keys_of(ids, dtype):
    """Returns keys of a dtype; strings of 0 to 19 bytes, some of them not UTF-8."""
    if dtype != tf.string:
        return tf.cast(ids, dtype)
    alphabet = tf.constant([b"", b"\0", b"a", b"\xff\xfe", b"twelve bytes"])
    parts = tf.gather(alphabet, [ids % 5, ids // 5 % 5])
    return tf.strings.join([parts[0], parts[1], tf.where(ids < 25, "", tf.strings.as_string(ids))])


class Model:
    def __init__(self, tables, features, is_layer):
        configs = [
            de.TableConfig(
                f"table_{number}",
                1 + number,
                key_dtype=KINDS[number % 3][0],
                value_dtype=KINDS[number % 3][1],
            )
            for number in range(tables)
        ]
        self.layer = None
        if is_layer:
            self.layer = de.layers.EmbeddingCollection(
                [de.FeatureConfig(str(each), configs[each % tables]) for each in range(features)]
            )
            self.tables = list(self.layer.tables.values())
        else:
            self.tables = [each.new_table(trainable=True) for each in configs]
        self.owners = [self.tables[feature % tables] for feature in range(features)]
        self.variables = [variable for each in self.tables for variable in each.trainable_variables]
        self.optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adagrad(0.1))
        self.optimizer.build(self.variables)

    def step(self, ids, weights):
        """Does a step on ids [n, features] and weights of the same shape."""
        features = [
            keys_of(ids[:, number], each.key_dtype) for number, each in enumerate(self.owners)
        ]
        with tf.GradientTape() as tape:
            if self.layer is None:
                rows = de.embedding_lookup_many(self.owners, features)
            else:
                rows = self.layer(features)
            loss = tf.add_n(
                [
                    tf.reduce_sum(tf.cast(each, tf.float32) ** 2 * weights[:, number, None])
                    for number, each in enumerate(rows)
                ]
            )
        gradients = tape.gradient(loss, self.variables)
        self.optimizer.apply_gradients(zip(gradients, self.variables, strict=True))


def batch_of(number, features):
    shape = [BATCH * workers, features]
    ids = tf.random.stateless_uniform(shape, [number, 0], 0, IDS, tf.int64)
    return ids, tf.random.stateless_normal(shape, [number, 1])


def collectives_of(function, *batch):
    """Returns the number of all-to-alls in a function."""
    definition = function.get_concrete_function(*batch).graph.as_graph_def()
    nodes = [
        *definition.node,
        *(node for each in definition.library.function for node in each.node_def),
    ]
    return sum(node.op == "CollectiveAllToAllV2" for node in nodes)


result = {"collectives": {}}
cases = [(1, 5, True), (3, 3, False)]
if workers == 2:
    cases = [(1, 1, False), (3, 8, True), (3, 8, False)]
for tables, features, is_layer in cases:
    with strategy.scope():
        shared = Model(tables, features, is_layer)
    lone = Model(tables, features, is_layer)
    together = tf.function(lambda *batch, model=shared: strategy.run(model.step, batch))
    for number in range(STEPS):
        whole = batch_of(number, features)
        mine = [each[task * BATCH : (task + 1) * BATCH] for each in whole]
        if number == 0:
            count = collectives_of(together, *mine)
            result["collectives"].setdefault(f"{tables}, {features}", []).append(count)
        together(*mine)
        lone.step(*whole)
    for one, other in zip(shared.tables, lone.tables, strict=True):
        keys = keys_of(tf.range(IDS + 5, dtype=tf.int64), one.key_dtype)
        rows, found = one.lookup(keys, return_exists=True)
        wanted, known = other.lookup(keys, return_exists=True)
        result.setdefault("differences", []).append(float(tf.reduce_max(tf.abs(rows - wanted))))
        result.setdefault("found", []).append(bool(tf.reduce_all(found == known)))

# All workers call the methods of a table of strings together. Each sees the rows of all workers.
words = shared.tables[1]
words.upsert([f"of {task}", "", "a" * 100_000], tf.fill([3, 2], float(task)))
words.remove(["a"])
exported, values = words.export()
result["words"] = {
    "contained": words.contains(["of 0", "of 1", "a" * 100_000, "a"]).numpy().tolist(),
    "size": [int(words.size()), len(set(exported.numpy().tolist())), len(exported)],
    "as looked up": float(tf.reduce_max(tf.abs(values - words.lookup(exported)))),
    "empty batch": words.lookup(tf.zeros([0], tf.string)).shape.as_list(),
}
de.checkpoint.save(words, folder / "words")
words.clear()
de.checkpoint.restore(words, folder / "words")
result["words"]["restored"] = [
    int(words.size()),
    float(tf.reduce_max(tf.abs(values - words.lookup(exported)))),
]
print("RESULT", json.dumps(result), flush=True)
