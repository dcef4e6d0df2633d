"""A worker of TensorFlow 1 that trains models over tables and over dense variables.

Its servers are threads of the same process. Argument: "v1" for `disable_v2_behavior`. Prints for
each model the largest relative difference between tables and dense variables, and how far training
moved the rows.
"""

import json
import sys

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
from tests.support.ports import held_ports

tf1 = tf.compat.v1
SERVERS = 2
if sys.argv[1] == "v1":
    tf1.disable_v2_behavior()
addresses = [f"127.0.0.1:{port}" for port in held_ports(SERVERS + 1)]
cluster = tf.train.ClusterSpec({"ps": addresses[:SERVERS], "worker": addresses[SERVERS:]})
servers = [tf1.train.Server(cluster, "ps", task) for task in range(SERVERS)]
worker = tf1.train.Server(cluster, "worker", 0)
setter = tf1.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")
places = [f"/job:ps/replica:0/task:{task}/device:CPU:0" for task in range(SERVERS)]


def trained(model, target, device, devices):
    """Returns losses, rows and dense variables of a few steps."""
    with tf.Graph().as_default(), tf1.device(device):
        fed = tf1.placeholder(tf.int64, batch_of(0).shape)
        variables = {}

        def dense(name, shape):
            variables[name] = tf1.get_variable(name, initializer=start_of(name, shape))
            return variables[name]

        optimizer = tf1.train.AdagradOptimizer(0.1)
        if devices is None:
            found = {
                name: tf1.get_variable(name, initializer=start) for name, start in START.items()
            }
            rows, fill = DenseRows(found), tf.no_op()
        else:
            optimizer = de.DynamicEmbeddingOptimizer(optimizer)
            tables = {
                name: de.get_variable(name, key_dtype=dtype, dim=4, devices=devices)
                for name, dtype in KEY_DTYPES.items()
            }
            numbers = tf.range(ROWS, dtype=tf.int64)
            fill = [tables[name].upsert(keys_of(numbers, name), START[name]) for name in tables]
            found = {name: tables[name].lookup(keys_of(numbers, name)) for name in tables}
            rows = TableRows(tables)
        loss = tf.reduce_mean(model(rows, dense, fed))
        train = optimizer.minimize(loss)
        start = tf1.global_variables_initializer()
        with tf1.Session(target) as session:
            session.run(start)
            session.run(fill)
            losses = [session.run([loss, train], {fed: batch_of(step)})[0] for step in range(STEPS)]
            return session.run({**found, **variables}) | {"losses": np.array(losses)}


result = {}
for model in MODELS:
    wanted = trained(model, "", None, None)
    found = trained(model, worker.target, setter, places)
    result[model.__name__] = {
        "difference": max(relative_difference(found[name], wanted[name]) for name in wanted),
        "moved": max(float(np.abs(found[name] - START[name]).max()) for name in START),
    }
print("RESULT", json.dumps(result), flush=True)
