"""Saves and restores a model with tables on servers, all in this process.

Arguments: a folder for checkpoints.
"""

import json
import os
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import de_core as de
from tests.distributed.support.servers_here import cluster_here

folder = pathlib.Path(sys.argv[1])
cluster, servers = cluster_here(ps=2, worker=2)
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
strategy = tf.distribute.ParameterServerStrategy(
    resolver, tf.distribute.experimental.partitioners.MinSizePartitioner(max_shards=2)
)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
IDS = tf.range(40, dtype=tf.int64)
result = {}


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.users = de.Variable(dim=2, name="users", initializer="uniform")
        self.kernel = tf.Variable(tf.ones([2, 1]), name="kernel")
        self.count = tf.Variable(0, dtype=tf.int64)
        self.optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1))
        self.optimizer.build([*self.users.trainable_variables, self.kernel])

    def step(self):
        variables = [*self.users.trainable_variables, self.kernel]
        with tf.GradientTape() as tape:
            rows = de.embedding_lookup(self.users, IDS)
            loss = tf.reduce_sum((rows @ self.kernel - 1.0) ** 2)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.count.assign_add(1)

    def state(self):
        slots = self.users.get_slot_variables(self.optimizer)
        return [
            self.users.lookup(IDS).numpy(),
            *(slot.lookup(IDS).numpy() for slot in slots),
            self.kernel.numpy(),
            self.count.numpy(),
            self.optimizer.iterations.numpy(),
        ]


with strategy.scope():
    model = Model()
result["devices"] = model.users.devices
beside = de.Variable(dim=1, name="beside")  # in the chief's memory
step = tf.function(lambda: strategy.run(model.step))


def train(steps):
    for _ in range(steps):
        coordinator.schedule(step)
        coordinator.join()  # one step at a time, so that the same steps give the same numbers


def error_of(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


with strategy.scope():
    result["outside"] = error_of(model.step)
train(3)
result["sizes"] = [int(model.users.size(index)) for index in range(2)]


def goes_back(save, restore):
    """Returns what a checkpoint did not bring back, and whether the same steps did not follow."""
    beside.upsert([1], [[1.0]])
    path, before = save(), model.state()
    train(2)
    after = model.state()
    model.users.upsert([99], [[9.0, 9.0]])
    beside.clear()
    restore(path)
    parts = ["rows", "m", "v", "kernel", "count", "iterations"]
    now = [*zip(parts, model.state(), before, strict=True)]
    now += [("size", int(model.users.size()), 40), ("beside", int(beside.size()), 1)]
    wrong = [part for part, found, wanted in now if not np.array_equal(found, wanted)]
    train(2)
    later = zip(parts, model.state(), after, strict=True)
    return wrong + [f"later {part}" for part, *pair in later if not np.allclose(*pair)]


whole = tf.train.Checkpoint(model=model, beside=beside)
result["Checkpoint"] = goes_back(
    lambda: whole.write(str(folder / "whole")),
    lambda path: whole.read(path).assert_consumed(),
)
manager = tf.train.CheckpointManager(whole, str(folder / "managed"), max_to_keep=2)
result["CheckpointManager"] = goes_back(manager.save, whole.restore)
for _ in range(2):
    manager.save()
result["kept"] = sorted(path.name[:6] for path in (folder / "managed").glob("*.data-r*"))
ours = de.checkpoint.Manager(whole, folder / "ours")
ours.save()
result["Manager"] = goes_back(ours.save, ours.restore)
ours.save()
model.users.upsert([1, 2], [[6.0, 6.0]] * 2)
last = ours.save()
result["written"] = sum(each["rows"] for each in ours.reports["users"])
newest = next(path for path in (folder / "ours").iterdir() if path.name.startswith("ckpt-4.data-r"))
newest.write_bytes(newest.read_bytes()[:20])
result["damaged"] = error_of(ours.restore, last)
local = de.Variable(dim=2, name="users")
de.checkpoint.restore(local, folder / "whole")
result["local"] = int(local.size())
print("RESULT", json.dumps(result), flush=True)
os._exit(0)  # the servers' threads would delay a normal exit
