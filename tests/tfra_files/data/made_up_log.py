"""A made-up log of users and items, and optimizers, for tfra and for this library."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

#: By name, for the optimizers of Keras 2, new or legacy.
OPTIMIZERS = {
    "adagrad": lambda kind: kind.Adagrad(0.1),
    "adadelta": lambda kind: kind.Adadelta(1.0),
    "adam": lambda kind: kind.Adam(0.01),
    "adamax": lambda kind: kind.Adamax(0.01),
    "amsgrad": lambda kind: kind.Adam(0.01, amsgrad=True),
    "ftrl": lambda kind: kind.Ftrl(0.1),
    "momentum": lambda kind: kind.SGD(0.05, momentum=0.9, nesterov=True),
    "nadam": lambda kind: kind.Nadam(0.01),
    "rmsprop": lambda kind: kind.RMSprop(0.01, momentum=0.5, centered=True),
    "sgd": lambda kind: kind.SGD(0.1),
}
TF1_OPTIMIZERS = {
    "adam": lambda: tf.compat.v1.train.AdamOptimizer(0.01),
    "adagrad": lambda: tf.compat.v1.train.AdagradOptimizer(0.1),
    "momentum": lambda: tf.compat.v1.train.MomentumOptimizer(0.05, 0.9),
    "rmsprop": lambda: tf.compat.v1.train.RMSPropOptimizer(0.01, momentum=0.5),
    "ftrl": lambda: tf.compat.v1.train.FtrlOptimizer(0.1),
    "adadelta": lambda: tf.compat.v1.train.AdadeltaOptimizer(1.0),
}


def batches(first: int, count: int) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Yields ids and labels of some steps. New ids appear in every step; some ids repeat."""
    for step in range(first, first + count):
        numbers = np.arange(6, dtype=np.int64)
        users = (numbers * (step % 5 + 1) + step) % 29 + 2**40
        items = (numbers // 2 + step) % 17
        labels = ((users + items) % 3 / 2).astype(np.float32)[:, None]
        yield {"user_id": users, "item_id": items}, labels
