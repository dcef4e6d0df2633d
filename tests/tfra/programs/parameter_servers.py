"""Trains on parameter servers with TensorFlow 1: `replica_device_setter` and a monitored session.

All servers of the cluster run in this process.
"""

import socket

import made_up
import numpy as np
import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de

v1 = tf.compat.v1
DIM, BATCH, STEPS = 4, 32, 40


def held_port():
    """Returns a socket that keeps a port from others."""
    # It does not listen. So a server of this process may, because gRPC sets SO_REUSEADDR too.
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def main():
    held = [held_port() for _ in range(3)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in held]
    cluster = tf.train.ClusterSpec({"ps": addresses[:2], "worker": addresses[2:]})
    servers = [v1.train.Server(cluster, job_name="ps", task_index=task) for task in (0, 1)]
    worker = v1.train.Server(cluster, job_name="worker", task_index=0)
    users, items, stars = made_up.ratings(BATCH * STEPS)
    draws = np.random.default_rng(6)
    with tf.Graph().as_default():
        user, item = (v1.placeholder(tf.int64, [None]) for _ in range(2))
        star = v1.placeholder(tf.float32, [None])
        with v1.device(
            v1.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")
        ):
            step = v1.train.get_or_create_global_step()
            weights = v1.get_variable(
                "weights",
                initializer=draws.normal(0.0, 0.3, [2 * DIM, 1]).astype(np.float32),
            )
            places = [f"/job:ps/replica:0/task:{task}/CPU:0" for task in (0, 1)]
            tables = [
                de.get_variable(name, dim=DIM, devices=places, initializer=0.0)
                for name in ("users", "items")
            ]
            looked_up = [
                de.embedding_lookup_unique(table, ids, name=f"rows_{number}", return_trainable=True)
                for number, (table, ids) in enumerate(zip(tables, (user, item), strict=True))
            ]
            predicted = tf.reshape(
                tf.matmul(tf.concat([r for r, _ in looked_up], 1), weights), [-1]
            )
            loss = tf.reduce_mean(tf.square(predicted - star))
            loss += 1e-3 * sum(tf.nn.l2_loss(wrapper) for _, wrapper in looked_up)
            optimizer = de.DynamicEmbeddingOptimizer(v1.train.AdamOptimizer(0.02))
            train = optimizer.minimize(loss, global_step=step)
            filled = [
                table.upsert(tf.constant(ids), tf.constant(made_up.rows(ids, DIM)))
                for table, ids in zip(tables, (made_up.USER_IDS, made_up.ITEM_IDS), strict=True)
            ]
            sizes = [table.size() for table in tables]
        losses = []
        with v1.train.MonitoredTrainingSession(master=worker.target, is_chief=True) as session:
            session.run(filled)
            for first in range(0, len(users), BATCH):
                batch = slice(first, first + BATCH)
                feed = {user: users[batch], item: items[batch], star: stars[batch]}
                losses.append(session.run([loss, train], feed)[0])
            counted = session.run(sizes)
    made_up.write(losses=losses, sizes=counted)
    del servers


if __name__ == "__main__":
    main()
