"""Retrieves items: two towers, a softmax over the batch, and a loop with a `tf.GradientTape`."""

import made_up
import numpy as np
import tensorflow as tf
import tensorflow_recommenders_addons as tfra

de = tfra.dynamic_embedding
DIM, BATCH, STEPS = 8, 16, 40


def main():
    users, items, _ = made_up.ratings(BATCH * STEPS)
    names = np.array([f"user-{user}" for user in users])
    queries = de.keras.layers.BasicEmbedding(
        DIM, key_dtype=tf.string, initializer=0.0, name="queries"
    )
    candidates = de.keras.layers.Embedding(DIM, initializer=0.0, name="candidates")
    known = sorted(set(names.tolist()))
    queries.params.upsert(tf.constant(known), tf.constant(made_up.rows(known, DIM)))
    candidates.params.upsert(made_up.ITEM_IDS, made_up.rows(made_up.ITEM_IDS, DIM))
    tower = tf.keras.Sequential([tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(DIM)])
    tower.build([None, DIM])
    made_up.set_weights(tower.layers)
    optimizer = de.DynamicEmbeddingOptimizer(tf.keras.optimizers.legacy.Adagrad(0.1))

    def step(names, items):
        with tf.GradientTape() as tape:
            logits = tf.matmul(tower(queries(names)), candidates(items), transpose_b=True)
            labels = tf.range(tf.shape(logits)[0])
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            )
        trained = (
            tower.trainable_variables + queries.trainable_variables + candidates.trainable_variables
        )
        optimizer.apply_gradients(zip(tape.gradient(loss, trained), trained, strict=True))
        return loss

    losses = [
        float(
            step(
                tf.constant(names[first : first + BATCH]), tf.constant(items[first : first + BATCH])
            )
        )
        for first in range(0, len(users), BATCH)
    ]
    scores = tf.matmul(
        tower(queries(tf.constant(known))), candidates(made_up.ITEM_IDS), transpose_b=True
    )
    made_up.write(losses=losses, scores=np.ravel(scores)[:40])


if __name__ == "__main__":
    main()
