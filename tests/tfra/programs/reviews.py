"""Predicts whether a review helps: eager `minimize`, with wrappers that the loss collects."""

import made_up
import numpy as np
import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de

DIM, BATCH, STEPS = 4, 16, 30


class Reviews(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.features = de.get_variable(
            "review_features", dim=DIM, devices=["/CPU:0"], initializer=0.0
        )
        self.hidden = tf.keras.layers.Dense(8, activation="relu")
        self.score = tf.keras.layers.Dense(1)

    def call(self, features, wrappers=None):
        rows, wrapper = de.embedding_lookup_unique(
            self.features, tf.reshape(features, [-1]), name="rows", return_trainable=True
        )
        if wrappers is not None:
            wrappers.append(wrapper)
        rows = tf.reshape(rows, [-1, 2 * DIM])
        return tf.reshape(self.score(self.hidden(rows)), [-1])


def main():
    users, items, stars = made_up.ratings(BATCH * STEPS)
    features = np.stack([users, items], 1)
    helpful = (stars > 3).astype(np.float32)
    model = Reviews()
    model(tf.constant(features[:2]))
    ids = np.concatenate([made_up.USER_IDS, made_up.ITEM_IDS])
    model.features.upsert(ids, made_up.rows(ids, DIM))
    made_up.set_weights([model.hidden, model.score])
    optimizer = de.DynamicEmbeddingOptimizer(tf.keras.optimizers.legacy.Adam(1e-2))
    dense = model.hidden.trainable_weights + model.score.trainable_weights

    def step(batch):
        wrappers, losses = [], []

        def loss_fn():
            logits = model.call(tf.constant(features[batch]), wrappers)
            losses.append(tf.nn.sigmoid_cross_entropy_with_logits(helpful[batch], logits))
            return tf.reduce_mean(losses[0])

        optimizer.minimize(loss_fn, var_list=lambda: dense + wrappers)
        return tf.reduce_mean(losses[0])

    losses = [float(step(slice(first, first + BATCH))) for first in range(0, len(users), BATCH)]
    rows = model.features.lookup(ids)
    made_up.write(losses=losses, rows=np.ravel(rows)[:40])


if __name__ == "__main__":
    main()
