"""A synchronous worker. Trains until an error, and prints it."""

import json
import os

import keras
import tensorflow as tf

import de_core as de

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    users = de.Variable(dim=2, name="users")
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0))
    optimizer.build(users.trainable_variables)


def step():
    with tf.GradientTape() as tape:
        loss = -tf.reduce_sum(de.embedding_lookup(users, tf.range(50, dtype=tf.int64)))
    gradients = tape.gradient(loss, users.trainable_variables)
    optimizer.apply_gradients(zip(gradients, users.trainable_variables, strict=True))


together = tf.function(lambda: strategy.run(step))
together()
print("training", flush=True)
try:
    while True:
        together()
except tf.errors.OpError as error:
    print("RESULT", json.dumps({"error": type(error).__name__}), flush=True)
os._exit(0)
