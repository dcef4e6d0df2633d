"""The same training twice: with tables, and with dense variables and the original optimizer.

The loss looks up two tables at three places, with many duplicates, and has an ordinary variable
too. In variables and slots, the dense run undoes each step's changes to rows without a gradient,
because tables do not change such rows. The dense run uses nothing of this library.
"""

import os
import re

import keras
import numpy as np
import tensorflow as tf

import de_core as de

if os.environ.get("TF_USE_LEGACY_KERAS") == "1":
    import tf_keras as keras_of_models
else:
    keras_of_models = keras

IDS, DIM, BATCH = 12, 3, 8
TABLES = ("users", "items")
#: Settings of Ftrl optimizers.
FTRL = {
    "l1_regularization_strength": 0.01,
    "l2_regularization_strength": 0.02,
    "l2_shrinkage_regularization_strength": 0.01,
    "beta": 0.1,
}


def batches(steps, seed=0):
    """Yields history [8, 2], user [8], item [8], labels [8]. Not every batch has every id."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        draw = lambda *shape: tf.constant(rng.integers(0, IDS, size=shape) ** 2 // IDS)  # noqa: E731
        yield (
            draw(BATCH, 2),
            draw(BATCH),
            draw(BATCH),
            tf.constant(rng.normal(size=BATCH), tf.float32),
        )


def loss_of(users, items, dense, batch):
    history, user, item, labels = batch
    rows = tf.reduce_sum(users(history), axis=1) * items(item) + users(user)
    return tf.reduce_mean((tf.linalg.matvec(rows, dense) - labels) ** 2)


def touched(batch):
    history, user, item, _ = (each.numpy() for each in batch)
    return {"users": np.union1d(history, user), "items": np.unique(item)}


def initial_rows():
    rng = np.random.default_rng(3)
    return {name: rng.normal(scale=0.5, size=(IDS, DIM)).astype(np.float32) for name in TABLES}


class Dense:
    """Trains dense variables.

    With `by_row`, each row is a variable of its own, for optimizers that use a variable's norm:
    tables use the norm of each row.
    """

    def __init__(self, optimizer, by_row=False, scales=True):
        self.optimizer = optimizer
        self.scales = scales
        rows = initial_rows()
        self.parts = {
            name: [
                tf.Variable(part, name=f"{name}_{number}")
                for number, part in enumerate(np.split(rows[name], IDS) if by_row else [rows[name]])
            ]
            for name in TABLES
        }
        self.dense = tf.Variable(tf.ones([DIM]), name="dense")
        self.waiting = {name: set() for name in TABLES}
        self.steps = 0

    @property
    def variables(self):
        return [*(each for part in self.parts.values() for each in part), self.dense]

    def rows(self, name):
        return tf.concat(self.parts[name], 0)

    def run(self, data):
        losses = []
        for batch in data:
            for name, ids in touched(batch).items():
                self.waiting[name] |= set(ids.tolist())
            losses.append(self.step(batch))
        return losses

    def gradients(self, batch):
        lookups = [
            lambda ids, name=name: tf.tensordot(tf.one_hot(ids, IDS), self.rows(name), 1)
            for name in TABLES
        ]
        with tf.GradientTape() as tape:
            loss = loss_of(*lookups, self.dense, batch)
            scaled = self.optimizer.scale_loss(loss) if self.scales else loss
        return loss, tape.gradient(scaled, self.variables)

    def step(self, batch):
        optimizer = self.optimizer
        self.steps += 1
        if self.steps == 1:
            make_slots = getattr(optimizer, "_create_all_weights", None) or optimizer.build
            make_slots(self.variables)
        loss, gradients = self.gradients(batch)
        state = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
        of_rows = [
            (name, number, path_of(each), tf.convert_to_tensor(each), each)
            for name in TABLES
            for number, variable in enumerate(self.parts[name])
            for each in [variable, *(s for s in state if is_slot_of(s, name, number))]
        ]
        start = {place[:2]: place[3] for place in reversed(of_rows)}
        count = int(optimizer.iterations)
        every = getattr(optimizer, "use_ema", False) and optimizer.ema_overwrite_frequency
        optimizer.apply_gradients(zip(gradients, self.variables, strict=True))
        k = getattr(optimizer, "gradient_accumulation_steps", None)
        if k and self.steps % k:
            return float(loss)
        for name, number, path, old, each in of_rows:
            if len(each.shape) == 0:
                continue
            if count == 0 and is_average(path):
                old = start[name, number]  # a moving average starts at the initial rows
            rows = np.arange(IDS) if each.shape[0] == IDS else np.array([number])
            moved = np.isin(rows, list(self.waiting[name]))
            moved = moved.reshape([-1] + [1] * (len(each.shape) - 1))
            each.assign(tf.where(moved, tf.convert_to_tensor(each), old))
            if every and (count + 1) % every == 0 and is_average(path):
                self.parts[name][number].assign(tf.convert_to_tensor(each))
        self.waiting = {name: set() for name in TABLES}
        return float(loss)

    def finish(self):
        return [self.rows(name).numpy() for name in TABLES] + [self.dense.numpy()]


def path_of(variable):
    return getattr(variable, "path", variable.name)


def is_average(path):
    return re.search("average(?!_gradient)", path)


def is_slot_of(variable, name, number):
    path = path_of(variable)
    return "gradient_accumulator" not in path and re.search(rf"{name}_{number}(?!\d)", path)


class FitModel(keras_of_models.Model):
    """A Keras model whose mean squared error is the loss described above."""

    def __init__(self, tables):
        super().__init__()
        self.users, self.items = tables.values()
        self.head = self.add_weight(name="dense", shape=(DIM,), initializer="ones")

    def call(self, inputs):
        history, user, item = inputs
        rows = tf.reduce_sum(self.users.lookup(history), 1) * self.items.lookup(item)
        return tf.linalg.matvec(rows + self.users.lookup(user), tf.convert_to_tensor(self.head))


class OwnTrainStep(FitModel):
    """The same model with its own `train_step`, as in Keras's guides."""

    def __init__(self, tables):
        super().__init__(tables)
        self.mean_loss = keras_of_models.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.mean_loss]

    def train_step(self, data):
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(inputs, training=True) - labels) ** 2)
            scale = getattr(self.optimizer, "scale_loss", lambda loss: loss)
            scaled = scale(loss)
        variables = self.trainable_variables
        gradients = tape.gradient(scaled, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        self.mean_loss.update_state(loss)
        return {"loss": self.mean_loss.result()}


#: The modes that call Keras's `fit`.
FITS = ("fit", "fit eagerly", "fit by threes", "train_step")
MODES = ("eager", "function", *FITS)


class Tables:
    """Trains tables in one of `MODES`. `of_table` has arguments of each Variable, by name."""

    def __init__(
        self, optimizer, mode="function", shards=1, scales=True, of_table=None, **arguments
    ):
        self.optimizer = optimizer
        self.scales = scales
        rows = initial_rows()
        key_dtype = arguments.get("key_dtype", tf.int64)
        self.key = (
            tf.strings.as_string
            if key_dtype == tf.string
            else (lambda ids: tf.cast(ids, key_dtype))
        )
        self.tables = {
            name: de.Variable(
                dim=DIM,
                devices=["/CPU:0"] * shards,
                name=name,
                **arguments,
                **(of_table or {}).get(name, {}),
            )
            for name in TABLES
        }
        for name, table in self.tables.items():
            table.upsert(self.key(tf.range(IDS)), rows[name])
        self.dense = tf.Variable(tf.ones([DIM]), name="dense")
        self.variables = [
            *(each for table in self.tables.values() for each in table.trainable_variables),
            self.dense,
        ]
        self.step = tf.function(self._step) if mode == "function" else self._step
        self.model = None
        if mode in FITS:
            self.model = (OwnTrainStep if mode == "train_step" else FitModel)(self.tables)
            self.dense = self.model.head
            self.variables = self.model.trainable_variables
        self.eagerly = mode == "fit eagerly"
        self.steps_a_call = 3 if mode == "fit by threes" else 1

    def _step(self, batch):
        users, items = (
            lambda ids, table=table: de.embedding_lookup(table, self.key(ids))
            for table in self.tables.values()
        )
        with tf.GradientTape() as tape:
            loss = loss_of(users, items, self.dense, batch)
            scaled = self.optimizer.scale_loss(loss) if self.scales else loss
        gradients = tape.gradient(scaled, self.variables)
        self.optimizer.apply_gradients(zip(gradients, self.variables, strict=True))
        return loss

    def run(self, data):
        """Does one step per batch; returns the losses, summed over the steps of one call."""
        if self.model is not None:
            return self.fit(data)
        return [float(self.step(batch)) for batch in data]

    def fit(self, data):
        losses = []
        at_end = keras_of_models.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: losses.append(logs["loss"] * (batch + 1))
        )
        self.model.compile(
            self.optimizer,
            "mse",
            run_eagerly=self.eagerly,
            steps_per_execution=self.steps_a_call,
        )
        *inputs, labels = (tf.concat(part, 0).numpy() for part in zip(*data, strict=True))
        self.model.fit(inputs, labels, BATCH, shuffle=False, verbose=0, callbacks=[at_end])
        return np.diff([0.0, *losses])  # Keras reports the mean so far

    def finish(self):
        keys = self.key(tf.range(IDS))
        return [table.lookup(keys).numpy() for table in self.tables.values()] + [self.dense.numpy()]


def assert_same(ours, theirs):
    for mine, dense in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, dense, rtol=1e-5, atol=1e-6)


def compare(tables, dense, steps=5):
    """Trains tables and dense variables; compares losses, rows and the ordinary variable."""
    data = list(batches(steps))
    losses = np.reshape(dense.run(data), [-1, getattr(tables, "steps_a_call", 1)]).sum(1)
    assert_same([tables.run(data)], [losses])
    assert_same(tables.finish(), dense.finish())


def check(make, steps=6, by_row=False, wrap=True, own=False, **settings):
    """Trains `Tables` and `Dense` by the same optimizer, and compares them.

    With `own`, the tables have optimizers of their own. `wrap` is about the model's optimizer.
    """
    of_table = {name: {"optimizer": make()} for name in TABLES} if own else {}
    optimizer = de.DynamicEmbeddingOptimizer(make()) if wrap else make()
    tables = Tables(optimizer, of_table=of_table, **settings)
    dense = Dense(make(), by_row)
    compare(tables, dense, steps)
    if getattr(dense.optimizer, "use_ema", False):
        for each in (tables, dense):
            each.optimizer.finalize_variable_values(each.variables)
        assert_same(tables.finish(), dense.finish())
    of_tables = [table.optimizer for table in tables.tables.values() if own]
    for each in [tables.optimizer, *of_tables]:
        assert int(each.iterations) == int(dense.optimizer.iterations)
    return tables, dense
