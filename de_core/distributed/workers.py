"""The processes of a `MultiWorkerMirroredStrategy`, and what they send each other.

They run the same program in step: each of these calls is made by all of them, in the same order.
TensorFlow's all-to-all sends pieces of equal size, so batches are padded to a common height. That
is rounded up to one of few, because TensorFlow remembers the shape of each key for ever. The ops
count as stateful: a `tf.function` runs them one after the other, and each key is used by one at a
time.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

# No other collective of this process has this key: those of strategies count from 1.
_GROUP_KEY = 0x0DEC0DE
_DTYPES = (tf.int64, tf.int32, tf.float32, tf.float64, tf.float16, tf.bfloat16)
_KEYS_A_SHAPE = 128
_MAX_WIDTH = 8192
# At most a quarter more than what is asked for.
_HEIGHTS = np.unique([(4 + part) << shift >> 2 for shift in range(31) for part in range(4)])
_HEIGHTS = _HEIGHTS[(_HEIGHTS > 0) & (_HEIGHTS < 2**31)].astype(np.int64)


class Workers:
    """The group of processes.

    Args:
        count: Their number.

    Attributes:
        count: Their number.
        here: Which one this process is, from 0.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.here = 0
        # The piece for worker i is i: what arrives says who this one is.
        self.here = int(self.swap(tf.range(count)[:, tf.newaxis])[0, 0])

    def swap(self, pieces: tf.Tensor, height_number: tf.Tensor | int = 0) -> tf.Tensor:
        """Sends piece i to worker i, and returns what each sent here.

        Args:
            pieces: [count, ...], of the same shape on all workers.
            height_number: Which of the shapes of its width and dtype it has.

        Returns:
            As `pieces`, in the order of the workers.
        """
        kind = _DTYPES.index(pieces.dtype) * _MAX_WIDTH + pieces.shape[-1]
        with tf.device("/CPU:0"):
            return tf.raw_ops.CollectiveAllToAllV2(
                input=pieces,
                group_size=self.count,
                group_key=_GROUP_KEY,
                instance_key=kind * _KEYS_A_SHAPE + tf.cast(height_number, tf.int32),
                ordering_token=[],
                communication_hint="auto",
            )

    def total(self, value: tf.Tensor) -> tf.Tensor:
        """Returns the sum of a scalar over all workers."""
        return tf.reduce_sum(self.swap(tf.fill([self.count, 1], value)))

    def collected(self, values: tf.Tensor) -> tf.Tensor:
        """Returns what all workers have, joined along the first dimension in their order.

        Args:
            values: [n, ...], n may differ.
        """
        size = tf.shape(values)[0]
        shards = tf.repeat(tf.range(self.count), size)
        copies = [self.count, *[1] * (values.shape.rank - 1)]
        return Delivery(self, shards).send(tf.tile(values, copies))

    def texts(self, text: str) -> list[str]:
        """Returns the texts that the workers have, in their order; eager mode only.

        Args:
            text: That of this one.
        """
        data = tf.constant(np.frombuffer(text.encode(), np.uint8), tf.int32)
        ends = np.cumsum(self.collected(tf.reshape(tf.size(data), [1])).numpy())
        joined = self.collected(data).numpy().astype(np.uint8).tobytes()
        starts = [0, *ends[:-1]]
        return [joined[start:end].decode() for start, end in zip(starts, ends, strict=True)]


class Delivery:
    """Batches that travel by one division: each item to its worker, and answers back.

    Args:
        workers: Who takes part.
        shards: int32 [n], the worker of each item.
    """

    def __init__(self, workers: Workers, shards: tf.Tensor) -> None:
        count = workers.count
        self._workers = workers

        sent = tf.math.bincount(shards, minlength=count, maxlength=count, dtype=tf.int64)
        most = tf.fill([count], tf.reduce_max(sent))
        received, mosts = tf.unstack(workers.swap(tf.stack([sent, most], 1)), axis=1)
        number = tf.searchsorted(_HEIGHTS, tf.reduce_max(mosts)[tf.newaxis])[0]
        self._number, self._height = number, tf.gather(_HEIGHTS, number)
        # Where in the padded pieces each item lies, in the order of the workers and in its own.
        order = tf.argsort(shards, stable=True)
        starts = tf.cumsum(sent, exclusive=True)
        owners = tf.cast(tf.gather(shards, order), tf.int64)
        inside = tf.range(tf.size(shards, tf.int64)) - tf.gather(starts, owners)
        sorted_places = owners * self._height + inside
        self._places = tf.scatter_nd(order[:, tf.newaxis], sorted_places, tf.shape(owners))
        filled = tf.sequence_mask(received, self._height)
        self._arrived = tf.reshape(tf.where(tf.reshape(filled, [-1])), [-1])

    def send(self, values: tf.Tensor) -> tf.Tensor:
        """Sends each item to its worker.

        Args:
            values: [n, ...].

        Returns:
            What arrived here, [m, ...], in the order of the workers that sent it.
        """
        return self._moved(values, self._places, self._arrived)

    def answer(self, values: tf.Tensor) -> tf.Tensor:
        """Sends an answer to each item that arrived.

        Args:
            values: [m, ...], in the order in which `send` returned them.

        Returns:
            The answers to this worker's items, [n, ...].
        """
        return self._moved(values, self._arrived, self._places)

    def _moved(self, values: tf.Tensor, places: tf.Tensor, results: tf.Tensor) -> tf.Tensor:
        inner = values.shape[1:]
        rows = tf.reshape(values, [-1, inner.num_elements()])
        width, count = rows.shape[1], self._workers.count
        padded = tf.scatter_nd(
            places[:, tf.newaxis], rows, tf.stack([count * self._height, tf.cast(width, tf.int64)])
        )
        pieces = tf.reshape(padded, [count, -1, width])
        arrived = tf.reshape(self._workers.swap(pieces, self._number + 1), [-1, width])
        return tf.reshape(tf.gather(arrived, results), [-1, *inner])
