"""A chief that trains tables on servers and saves, and that may be killed between two saves.

Arguments: a folder for checkpoints, the number of steps in all, and the step after which the chief
kills itself, before it saves; 0 for never.
"""

import json
import os
import signal
import sys

import keras
import tensorflow as tf

import de_core as de

folder, until, killed_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
jobs = json.loads(os.environ["TF_CONFIG"])["cluster"]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec(jobs), rpc_layer="grpc"
)
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
IDS = tf.range(50, dtype=tf.int64)

with strategy.scope():
    users = de.Variable(dim=2, name="users")
    bias = tf.Variable(0.0)
    count = tf.Variable(0, dtype=tf.int64)
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0))
    variables = [*users.trainable_variables, bias]
    optimizer.build(variables)


def train():
    with tf.GradientTape() as tape:
        loss = -tf.reduce_sum(de.embedding_lookup(users, IDS)) - bias
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    count.assign_add(1)


step = tf.function(lambda: strategy.run(train))
state = tf.train.Checkpoint(users=users, bias=bias, count=count, optimizer=optimizer)
manager = de.checkpoint.Manager(state, folder)
manager.restore()
result = {"began": int(count), "began_at": int(optimizer.iterations)}
while count < until:
    for _ in range(5):
        coordinator.schedule(step)
    coordinator.join()
    if count == killed_at:
        os.kill(os.getpid(), signal.SIGKILL)
    manager.save()
rows = users.lookup(IDS)
result |= {
    "rows": [float(tf.reduce_min(rows)), float(tf.reduce_max(rows))],
    "size": int(users.size()),
    "bias": float(bias),
    "steps": int(optimizer.iterations),
}
print("RESULT", json.dumps(result), flush=True)
os._exit(0)  # a normal exit would wait for the workers
