"""A worker of TensorFlow 1 that trains synchronously with another worker, by SyncReplicasOptimizer.

Argument: task. Prints how far rows and a dense variable are from the result of one process.
"""

import json
import os
import sys

import numpy as np
import tensorflow as tf

import de_core as de

tf1 = tf.compat.v1
task, STEPS, BATCH = int(sys.argv[1]), 5, 32
jobs = json.loads(os.environ["TF_CONFIG"])["cluster"]
workers = len(jobs["worker"])
keys = np.arange(-20, 20)


def batch_of(step):
    rng = np.random.default_rng(step)
    ids = rng.integers(-20, 20, BATCH * workers)
    return ids, rng.standard_normal([BATCH * workers, 2]).astype(np.float32)


def model(optimizer_of, devices=None):
    """Returns the op of a step on a fed batch, and the trained variables."""
    step = tf1.train.get_or_create_global_step()
    table = de.get_variable("users", dim=2, devices=devices, initializer=0.5)
    dense = tf1.get_variable("dense", initializer=tf.ones([2]))
    fed = tf1.placeholder(tf.int64, [None]), tf1.placeholder(tf.float32, [None, 2])
    rows = de.embedding_lookup(table, fed[0])
    loss = tf.reduce_mean(tf.reduce_sum(rows * dense * fed[1], 1))
    optimizer = optimizer_of(de.DynamicEmbeddingOptimizer(tf1.train.AdagradOptimizer(0.5)))
    train = optimizer.minimize(loss, global_step=step)
    return optimizer, train, fed, {"rows": table.lookup(keys), "dense": dense, "step": step}


with tf.Graph().as_default():
    _, train, fed, trained = model(lambda optimizer: optimizer)
    with tf1.train.MonitoredSession() as session:
        for number in range(STEPS):
            session.run(train, dict(zip(fed, batch_of(number), strict=True)))
        wanted = session.run(trained)

server = tf1.train.Server(tf.train.ClusterSpec(jobs), job_name="worker", task_index=task)
setter = tf1.train.replica_device_setter(
    cluster=tf.train.ClusterSpec(jobs), worker_device=f"/job:worker/task:{task}"
)
with tf.Graph().as_default(), tf1.device(setter):
    optimizer, train, fed, trained = model(
        lambda optimizer: de.optimizers.SyncReplicasOptimizer(optimizer, workers),
        [f"/job:ps/replica:0/task:{index}/device:CPU:0" for index in range(len(jobs["ps"]))],
    )
    hook = optimizer.make_session_run_hook(task == 0)
    with tf1.train.MonitoredTrainingSession(
        master=server.target, is_chief=task == 0, hooks=[hook], save_summaries_steps=None
    ) as session:
        for number in range(STEPS):
            part = [each[task * BATCH : (task + 1) * BATCH] for each in batch_of(number)]
            session.run(train, dict(zip(fed, part, strict=True)))
        found = session.run(trained)
        result = {name: float(np.abs(found[name] - wanted[name]).max()) for name in wanted}
        print("RESULT", json.dumps(result), flush=True)
        sys.stdin.readline()  # the other worker still needs the chief's queues: wait for the test
