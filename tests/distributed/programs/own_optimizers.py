"""Trains a collection whose tables have optimizers of their own, and dense variables beside it.

Arguments: "servers" for the chief of parameter servers and a worker, "alone" for the only worker of
parameter servers, or "worker" for a synchronous worker; then "wrapped" or "plain", the optimizer of
the model. Prints how far rows and variables are from the dense ones, and how many
tensors or collectives a step needs.
"""

import collections
import json
import os
import pathlib
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

import de_core as de

kind, way = sys.argv[1:]
jobs = json.loads(os.environ["TF_CONFIG"])["cluster"]
IDS, BATCH, STEPS, RATE = 12, 16, 4, 0.01
KEYS = {"users": "int64", "items": "string", "tags": "int32"}
DIMS = {"users": 3, "items": 2, "tags": 4}
OPTIMIZERS = {
    "users": lambda: keras.optimizers.Adagrad(0.3),
    "items": lambda: keras.optimizers.Adam(
        keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    ),
    "tags": lambda: keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=0.1),
}
# The table, the combiner and the ids per example of each feature; one id has no dimension.
FEATURES = {
    "user": ("users", None, 1),
    "friends": ("users", "sum", 2),
    "item": ("items", None, 1),
    "bought": ("items", "mean", 2),
    "tag": ("tags", "sum", 3),
}
START = {
    name: np.random.default_rng(number).normal(size=[IDS, dim]).astype(np.float32)
    for number, (name, dim) in enumerate(DIMS.items())
}


def keys_of(numbers, table):
    dtype = KEYS[table]
    return tf.strings.as_string(numbers) if dtype == "string" else tf.cast(numbers, dtype)


def batch_of(step, count):
    """Returns row numbers of the features. Each step has all rows, as dense rules move all."""
    rng = np.random.default_rng(step)
    numbers = {}
    for name, (_, _, width) in FEATURES.items():
        drawn = rng.permutation(np.arange(count * width) % IDS).reshape([count, width])
        numbers[name] = tf.constant(drawn[:, 0] if width == 1 else drawn)
    return numbers


def loss_of(rows, dense):
    joined = tf.concat([rows[name] for name in FEATURES], 1)
    return tf.reduce_sum(tf.linalg.matvec(joined, dense) ** 2) / 10


def dense_rows(variables, numbers):
    rows = {}
    for name, (table, combiner, _) in FEATURES.items():
        found = tf.gather(variables[table], numbers[name])
        pools = {None: lambda each: each, "sum": tf.reduce_sum, "mean": tf.reduce_mean}
        rows[name] = pools[combiner](found, 1) if combiner else found
    return rows


def model_of(devices):
    tables = {
        name: de.TableConfig(
            name, DIMS[name], key_dtype=key, optimizer=OPTIMIZERS[name](), devices=devices
        )
        for name, key in KEYS.items()
    }
    layer = de.layers.EmbeddingCollection(
        {
            name: de.FeatureConfig(name, tables[table], combiner)
            for name, (table, combiner, _) in FEATURES.items()
        }
    )
    width = sum(DIMS[table] for table, _, _ in FEATURES.values())
    dense = tf.Variable(tf.ones([width]), name="dense")
    anchors = [table.trainable_variables[0] for table in layer.tables.values()]
    optimizer = keras.optimizers.SGD(RATE)
    if way == "wrapped":
        optimizer = de.DynamicEmbeddingOptimizer(optimizer)
    optimizer.build([dense, *anchors])
    for name, table in layer.tables.items():
        table.upsert(keys_of(tf.range(IDS), name), START[name])

    def step(numbers):
        keys = {name: keys_of(each, FEATURES[name][0]) for name, each in numbers.items()}
        with tf.GradientTape() as tape:
            loss = loss_of(layer(keys), dense)
        variables = [dense, *anchors]
        gradient, *of_rows = tape.gradient(loss, variables)
        if kind != "worker":  # Keras 3 cannot update variables in a coordinator's function
            dense.assign_sub(RATE * gradient)
            optimizer.apply(of_rows, anchors)
        else:
            optimizer.apply([gradient, *of_rows], variables)

    return layer, dense, step


def tensors_of(function, *inputs):
    """Returns the most tensors that a step sends to a server, and that a server sends."""
    with tempfile.TemporaryDirectory() as folder:
        with tf.summary.create_file_writer(folder).as_default():
            tf.summary.trace_on()
            function(*inputs)
            tf.summary.trace_export("step", step=0)
        [file] = pathlib.Path(folder).iterdir()
        records = [each.numpy() for each in tf.data.TFRecordDataset(str(file))]
    values = [v for each in records for v in tf.compat.v1.Event.FromString(each).summary.value]
    content = tf.make_ndarray(values[0].tensor).item()
    traced = tf.compat.v1.RunMetadata.FromString(content).function_graphs
    every = [crossings_of(each) for each in traced]
    found = max(every, key=lambda each: each.total(), default=collections.Counter())
    return [
        max((count for key, count in found.items() if key[0] == up), default=0)
        for up in (True, False)
    ]


def crossings_of(graphs):
    """Counts the tensors between two processes in the graphs of a function."""
    found = collections.Counter()
    for node in (node for graph in graphs.partition_graphs for node in graph.node):
        if node.op == "_Recv" and node.attr["tensor_type"].type != tf.resource.as_datatype_enum:
            sent, got = (node.attr[name].s.decode() for name in ("send_device", "recv_device"))
            if sent != got:
                found["/job:ps" in got, sent.split("/dev")[0], got.split("/dev")[0]] += 1
    return found


result = {}
if kind != "worker":
    cluster = tf.train.ClusterSpec(jobs)
    if kind == "servers":
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            cluster, rpc_layer="grpc", task_type="chief", task_id=0
        )
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    else:
        tf.config.experimental_connect_to_cluster(cluster, job_name="worker")
    devices = [f"/job:ps/replica:0/task:{index}/device:CPU:0" for index in range(len(jobs["ps"]))]
    layer, dense, step = model_of(devices)
    together = tf.function(step, autograph=False)
    for number in range(STEPS):
        if kind == "servers":
            coordinator.schedule(together, args=(batch_of(number, BATCH),))
            coordinator.join()
        else:
            together(batch_of(number, BATCH))
    workers = 1
else:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    task = strategy.cluster_resolver.task_id
    workers = strategy.num_replicas_in_sync
    with strategy.scope():
        layer, dense, step = model_of(None)
    together = tf.function(lambda batch: strategy.run(step, (batch,)), autograph=False)
    for number in range(STEPS):
        whole = batch_of(number, BATCH * workers)
        together({name: each[task * BATCH :][:BATCH] for name, each in whole.items()})
    definition = together.get_concrete_function(batch_of(0, BATCH)).graph.as_graph_def()
    nodes = [*definition.node, *(n for each in definition.library.function for n in each.node_def)]
    result["collectives"] = sum(node.op == "CollectiveAllToAllV2" for node in nodes)

variables = {name: tf.Variable(start) for name, start in START.items()}
wanted = tf.Variable(tf.ones(dense.shape))
optimizers = {name: make() for name, make in OPTIMIZERS.items()}
of_dense = keras.optimizers.SGD(RATE)
for number in range(STEPS):
    with tf.GradientTape() as tape:
        loss = loss_of(dense_rows(variables, batch_of(number, BATCH * workers)), wanted)
    gradients, gradient = tape.gradient(loss, [variables, wanted])
    for name, optimizer in optimizers.items():
        optimizer.apply([tf.convert_to_tensor(gradients[name])], [variables[name]])
    of_dense.apply([gradient], [wanted])
found = {
    name: table.lookup(keys_of(tf.range(IDS), name)).numpy() for name, table in layer.tables.items()
}
result["rows"] = max(float(np.abs(found[name] - variables[name]).max()) for name in KEYS)
result["moved"] = min(float(np.abs(found[name] - START[name]).max()) for name in KEYS)
result["dense"] = float(tf.reduce_max(tf.abs(dense - wanted)))
result["steps"] = [
    int(tf.convert_to_tensor(table.optimizer.iterations)) for table in layer.tables.values()
]
if kind == "alone":
    # TensorFlow records the graphs of a function when it first runs it.
    counted = [tensors_of(tf.function(step, autograph=False), batch_of(0, BATCH)) for _ in range(2)]
    result["tensors"] = max(counted)
print("RESULT", json.dumps(result), flush=True)
