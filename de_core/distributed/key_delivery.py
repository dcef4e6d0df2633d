"""Sends the keys of several tables to the workers that have the keys' shards."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import tensorflow as tf

from de_core.base.ops import library
from de_core.distributed.workers import Delivery, Workers

_WORD = 8


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
        """Returns the delivery of the keys of some tables, to send values of these keys.

        Args:
            numbers: The numbers of the tables in `keys`.
        """
        part = copy.copy(self)
        part._routes = [self._routes[number] for number in numbers]
        part.arrived = [self.arrived[number] for number in numbers]
        return part
