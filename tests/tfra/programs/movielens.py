"""Predicts ratings: a subclassed Keras model with two squashed embeddings, trained by `fit`."""

import made_up
import numpy as np
import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de

DIM, BATCH, STEPS = 8, 32, 30


class Ratings(tf.keras.Model):
    def __init__(self):
        super().__init__()
        zeros = tf.keras.initializers.Zeros()
        self.users = de.keras.layers.SquashedEmbedding(DIM, initializer=zeros, name="users")
        self.movies = de.keras.layers.SquashedEmbedding(DIM, initializer=zeros, name="movies")
        self.hidden = tf.keras.layers.Dense(16, activation="relu")
        self.stars = tf.keras.layers.Dense(1)

    def call(self, features):
        user = self.users(tf.reshape(features["user"], [-1, 1]))
        movie = self.movies(tf.reshape(features["movie"], [-1, 1]))
        return self.stars(self.hidden(tf.concat([user, movie], axis=1)))


class Losses(tf.keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
        self.seen.append(logs["loss"])


def main():
    users, movies, stars = made_up.ratings(BATCH * STEPS)
    features = {"user": users, "movie": movies}
    model = Ratings()
    model({name: values[:2] for name, values in features.items()})
    model.users.params.upsert(made_up.USER_IDS, made_up.rows(made_up.USER_IDS, DIM))
    model.movies.params.upsert(made_up.ITEM_IDS, made_up.rows(made_up.ITEM_IDS, DIM))
    made_up.set_weights([model.hidden, model.stars])
    optimizer = de.DynamicEmbeddingOptimizer(tf.keras.optimizers.Adam(1e-2))
    model.compile(optimizer=optimizer, loss=tf.keras.losses.MeanSquaredError())
    losses = Losses()
    model.fit(
        features,
        stars[:, None],
        batch_size=BATCH,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[losses],
    )
    predicted = model.predict(features, batch_size=BATCH, verbose=0).ravel()
    rows = model.users.params.lookup(made_up.USER_IDS)
    made_up.write(losses=losses.seen, predicted=predicted[:40], rows=np.ravel(rows)[:40])


if __name__ == "__main__":
    main()
