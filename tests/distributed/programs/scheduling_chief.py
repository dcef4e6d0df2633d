"""A chief that keeps scheduling steps while a process of its cluster is killed.

Arguments: a file that it waits for after half of the steps, and the seconds that a server may be
silent, 100 by default.
"""

import json
import os
import pathlib
import sys
import time

import keras
import tensorflow as tf

import de_core as de

STEPS = 200
jobs = json.loads(os.environ["TF_CONFIG"])["cluster"]
# The watch ends this process if a server is silent. Scheduling alone would go on waiting for it.
de.distributed.ServerWatch(jobs, seconds=float([*sys.argv, 100][2])).start()
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec(jobs), rpc_layer="grpc", task_type="chief", task_id=0
)
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
devices = [f"/job:ps/replica:0/task:{index}/device:CPU:0" for index in range(len(jobs["ps"]))]
users = de.Variable(dim=2, name="users", devices=devices)
optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0))
optimizer.build(users.trainable_variables)


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = -tf.reduce_sum(de.embedding_lookup(users, tf.range(50, dtype=tf.int64)))
    gradients = tape.gradient(loss, users.trainable_variables)
    optimizer.apply_gradients(zip(gradients, users.trainable_variables, strict=True))


result = {"steps": STEPS, "error": None}
for _ in range(STEPS // 2):
    coordinator.schedule(step)
coordinator.join()
print("waiting", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
try:
    for _ in range(STEPS // 2):
        coordinator.schedule(step)
    coordinator.join()
    rows = users.lookup(range(50)).numpy()
    result.update(least=float(rows.min()), most=float(rows.max()))
except tf.errors.OpError as error:
    result["error"] = type(error).__name__
print("RESULT", json.dumps(result), flush=True)
os._exit(0)  # a normal exit would wait for threads that wait for missing servers
