"""Small models with a table, and what the tests ask of tables and of served models."""

import json

import keras
import numpy as np
import tensorflow as tf

import de_core as de

#: Ids that are asked of a served model: some with a row, some without.
ASKED = tf.constant([*range(0, 2000, 7), -1, 10**12], tf.int64)


def rows_of(table):
    """Returns all rows of a table, by key."""
    keys, values = (each.numpy().tolist() for each in table.export())
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, values, strict=True))


def looker(table, shape=(None,)):
    """Returns a module with the function `look`, which looks up ids in a table."""
    module = tf.Module()
    module.table = table
    specs = [tf.TensorSpec(shape, table.key_dtype, name="ids")]
    # `table` has a default value, so an exported signature has only `ids`.
    module.look = tf.function(lambda ids, table=table: table.lookup(ids), input_signature=specs)
    return module


def functional(shards=1):
    """Returns a Keras model of the inputs `user` and `item`, with a table for each."""
    inputs = {name: keras.Input([], dtype="int64", name=name) for name in ("user", "item")}
    options = {"initializer": "uniform", "devices": ["/CPU:0"] * shards}
    rows = [
        de.layers.Embedding(8, name=f"{name}s", **options)(each) for name, each in inputs.items()
    ]
    hidden = keras.layers.Dense(16, activation="relu")(keras.layers.Concatenate()(rows))
    return keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))


class Subclassed(keras.Model):
    """The same model with one table as a layer and one as a Variable."""

    def __init__(self):
        super().__init__()
        self.users = de.layers.Embedding(8, initializer="uniform", name="users")
        self.items = de.Variable(dim=8, initializer="uniform", name="items")
        self.hidden = keras.layers.Dense(16, activation="relu")
        self.score = keras.layers.Dense(1, activation="sigmoid")

    def call(self, inputs):
        items = de.embedding_lookup(self.items, inputs["item"])
        return self.score(self.hidden(tf.concat([self.users(inputs["user"]), items], -1)))


class Scores(tf.Module):
    """Scores users by the sums of their rows, times a weight."""

    def __init__(self, tables=1, dim=4, rows=2000, **options):
        super().__init__()
        self.users = de.Variable(
            dim=dim, name="users", initializer="normal", devices=["/CPU:0"] * tables, **options
        )
        self.users.upsert(np.arange(rows), np.ones([rows, dim], np.float32))
        self.scale = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="user")])
    def __call__(self, user):
        return {"score": tf.reduce_sum(self.users.lookup(user), -1) * self.scale}

    def change(self, number):
        """Trains a little: changes some rows and the weight, removes and inserts rows."""
        ids = np.arange(number * 10, number * 10 + 20)
        self.users.upsert(ids, np.full([20, 4], number + 0.5, np.float32))
        self.users.remove(np.arange(number * 50, number * 50 + 5))
        self.users.upsert([10**12 + number], np.full([1, 4], 7.0, np.float32))
        self.scale.assign(number + 1.0)


def stats(path):
    """Returns what a version says of its tables, by name."""
    (text,) = tf.saved_model.load(str(path)).signatures["de_stats"]().values()
    return {each["table"]: each for each in json.loads(text.numpy())}


def served(path, **inputs):
    """Returns what a version's default signature answers: an array, or arrays by name."""
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    specs = serve.structured_input_signature[1]
    tensors = {name: tf.constant(each, specs[name].dtype) for name, each in inputs.items()}
    found = {name: each.numpy() for name, each in serve(**tensors).items()}
    return found if len(found) > 1 else next(iter(found.values()))


def answers(path):
    """Returns the scores of `ASKED` by a version of `Scores`."""
    return served(path, user=ASKED)
