"""Communication between the processes of a `MultiWorkerMirroredStrategy`.

All workers must make the same calls in the same order. TensorFlow's all-to-all sends pieces of
equal size, so batches are padded. Their size is rounded up to one of a few sizes, because for each
collective key, TensorFlow requires the shape of the key's first use. The ops count as stateful, so
a `tf.function` runs them one after the other and never uses a key twice at the same time.
"""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from de_core.base.ops import library

# No other collective of this process uses this key, because strategies count their keys from 1.
_GROUP_KEY = 0x0DEC0DE
#: Dtypes that TensorFlow's collectives support.
DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64)
# The sizes of padded pieces. The smallest size that fits is at most one sixteenth too large.
_SIZES = np.unique([(16 + part) << shift >> 4 for shift in range(31) for part in range(16)])
_SIZES = _SIZES[(_SIZES > 0) & (_SIZES < 2**31)].astype(np.int64)
# Collective keys are numbered: first one key per dtype and padded size, then one per dtype and
# fixed width.
_SIZES_A_DTYPE = 512
_MAX_WIDTH = 1 << 20
_WORD = 8


class Workers:
    """The group of processes.

    Attributes:
        count: Number of processes.
        here: This process's number, from 0.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.here = 0
        # Every worker sends i to worker i. So each worker receives its own number.
        self.here = int(self.swap(tf.range(count)[:, tf.newaxis])[0, 0])

    def swap(self, pieces: tf.Tensor, size_number: tf.Tensor | None = None) -> tf.Tensor:
        """Sends piece i to worker i, and returns the pieces that the workers sent to this one.

        Args:
            pieces: [count, n], of the same shape on all workers.
            size_number: Index of n in `_SIZES`; None if n is fixed.

        Returns:
            Pieces like `pieces`, in the order of the workers.
        """
        kind = DTYPES.index(pieces.dtype)
        if size_number is None:
            key = len(DTYPES) * _SIZES_A_DTYPE + kind * _MAX_WIDTH + pieces.shape[-1]
        else:
            key = kind * _SIZES_A_DTYPE + tf.cast(size_number, tf.int32)
        with tf.device("/CPU:0"):
            return tf.raw_ops.CollectiveAllToAllV2(
                input=pieces,
                group_size=self.count,
                group_key=_GROUP_KEY,
                instance_key=key,
                ordering_token=[],
                communication_hint="auto",
            )

    def collected(self, values: tf.Tensor) -> tf.Tensor:
        """Concatenates the tensors of all workers along the first dimension, in the workers' order.

        Args:
            values: [n, ...]; n may differ between workers.
        """
        size = tf.shape(values)[0]
        shards = tf.repeat(tf.range(self.count), size)
        copies = [self.count, *[1] * (values.shape.rank - 1)]
        return Delivery(self, [shards]).send([tf.tile(values, copies)])[0]


class Delivery:
    """Sends the items of several batches to their workers, and sends answers back.

    One collective exchanges the numbers of items. Each `send` or `answer` needs one collective per
    dtype, for any number of batches.

    Args:
        workers: The participating workers.
        shards: For each batch, the worker of each item, int32 [n].
    """

    def __init__(self, workers: Workers, shards: Sequence[tf.Tensor]) -> None:
        count, batches = workers.count, len(shards)
        self._workers = workers
        sent = tf.stack(
            [
                tf.math.bincount(each, minlength=count, maxlength=count, dtype=tf.int64)
                for each in shards
            ],
            1,
        )
        most = tf.broadcast_to(tf.reduce_max(sent, 0), tf.shape(sent))
        swapped = workers.swap(tf.ensure_shape(tf.concat([sent, most], 1), [count, 2 * batches]))
        received, mosts = tf.split(swapped, 2, 1)
        heights = tf.unstack(tf.reduce_max(mosts, 0), num=batches)
        self._routes = [
            _Route(each, sent[:, number], received[:, number], heights[number])
            for number, each in enumerate(shards)
        ]

    def send(self, batches: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sends each item of the batches, each [n, ...], to its worker.

        Returns:
            For each batch, the items received by this worker, [m, ...], in the order of the
            senders.
        """
        return self._moved(batches, lambda route: (route.places, route.arrived))

    def answer(self, batches: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sends an answer for each received item.

        Args:
            batches: For each batch that `send` returned, the answers to its items, [m, ...], in the
                same order. The last batches may be left out: their senders get no answers.

        Returns:
            The answers to this worker's items, each [n, ...].
        """
        return self._moved(batches, lambda route: (route.arrived, route.places))

    def _moved(
        self,
        batches: Sequence[tf.Tensor],
        ends_of: Callable[[_Route], tuple[tf.Tensor, tf.Tensor]],
    ) -> list[tf.Tensor]:
        numbers = collections.defaultdict(list)
        for number, values in enumerate(batches):
            numbers[values.dtype].append(number)
        moved: dict[int, tf.Tensor] = {}
        for members in numbers.values():
            routes = [self._routes[number] for number in members]
            widths = [batches[number].shape[1:].num_elements() for number in members]
            pieces = [
                self._padded(batches[number], ends_of(route)[0], route.height, width)
                for number, route, width in zip(members, routes, widths, strict=True)
            ]
            sizes = [route.height * width for route, width in zip(routes, widths, strict=True)]
            parts = self._swapped(pieces, sizes)
            for number, part, route, width in zip(members, parts, routes, widths, strict=True):
                rows = tf.gather(tf.reshape(part, [-1, width]), ends_of(route)[1])
                moved[number] = tf.reshape(rows, [-1, *batches[number].shape[1:]])
        return [moved[number] for number in range(len(batches))]

    def _padded(
        self, values: tf.Tensor, places: tf.Tensor, height: tf.Tensor, width: int
    ) -> tf.Tensor:
        """Returns a padded piece for each worker, [count, height * width]."""
        count = self._workers.count
        shape = tf.stack([count * height, tf.cast(width, tf.int64)])
        rows = tf.scatter_nd(places[:, tf.newaxis], tf.reshape(values, [-1, width]), shape)
        return tf.reshape(rows, [count, -1])

    def _swapped(self, pieces: list[tf.Tensor], sizes: list[tf.Tensor]) -> list[tf.Tensor]:
        """Sends the pieces of several batches as one piece. Result i is [count, sizes[i]]."""
        total = tf.add_n(sizes)
        number = tf.searchsorted(_SIZES, total[tf.newaxis])[0]
        rest = tf.gather(_SIZES, number) - total
        padding = tf.zeros(tf.stack([self._workers.count, rest]), pieces[0].dtype)
        arrived = self._workers.swap(tf.concat([*pieces, padding], 1), number)
        return tf.split(arrived, tf.stack([*sizes, rest]), 1, num=len(sizes) + 1)[:-1]


class _Route:
    """The positions of a batch's sent and received items in the padded pieces."""

    def __init__(
        self, shards: tf.Tensor, sent: tf.Tensor, received: tf.Tensor, height: tf.Tensor
    ) -> None:
        self.height = height
        # The sort is stable, so the items of one worker keep their order.
        order = tf.argsort(shards, stable=True)
        starts = tf.cumsum(sent, exclusive=True)
        owners = tf.cast(tf.gather(shards, order), tf.int64)
        inside = tf.range(tf.size(shards, tf.int64)) - tf.gather(starts, owners)
        self.places = tf.scatter_nd(
            order[:, tf.newaxis], owners * height + inside, tf.shape(owners)
        )
        filled = tf.sequence_mask(received, height)
        self.arrived = tf.reshape(tf.where(tf.reshape(filled, [-1])), [-1])


class KeyDelivery(Delivery):
    """Sends keys and their values to the keys' workers, and sends answers back.

    TensorFlow's collectives send only numbers. So strings are sent as two batches per table: their
    lengths, and their bytes.

    Args:
        workers: The participating workers.
        keys: For each table, its keys [n], integers or strings.
        shards: For each table, the worker of each key, int32 [n].

    Attributes:
        arrived: For each table, the keys received by this worker, [m], in the order of the workers.
    """

    def __init__(
        self, workers: Workers, keys: Sequence[tf.Tensor], shards: Sequence[tf.Tensor]
    ) -> None:
        batches, all_shards = [], list(shards)
        words_of = []
        for each, shards_of in zip(keys, shards, strict=True):
            if each.dtype == tf.string:
                words, lengths = library.de_strings_to_words(each)
                words_of.append(words)
                all_shards.append(tf.repeat(shards_of, (lengths + _WORD - 1) // _WORD))
                batches.append(lengths)
            else:
                batches.append(tf.cast(each, tf.int64))
        super().__init__(workers, all_shards)
        came = self.send([*batches, *words_of])
        words_here = iter(came[len(keys) :])
        self.arrived = [
            library.de_words_to_strings(next(words_here), part)
            if each.dtype == tf.string
            else tf.cast(part, each.dtype)
            for each, part in zip(keys, came, strict=False)
        ]

    def part(self, numbers: Sequence[int]) -> KeyDelivery:
        """Returns the delivery of the keys of some tables, to send values of these keys."""
        part = copy.copy(self)
        part._routes = [self._routes[number] for number in numbers]
        part.arrived = [self.arrived[number] for number in numbers]
        return part
