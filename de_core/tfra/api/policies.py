"""Restrict policies that also work beside a Variable that was made without them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.types import TensorLike
from de_core.tables import keys_and_values, restrict
from de_core.variable.variable import Variable


class _Alone:
    """The status of a policy whose Variable has no column for it: a table of its own.

    Args:
        var: The Variable.
        column: "time" or "uses".
    """

    def __init__(self, var: Variable, column: str) -> None:
        self._column = column
        self._var = var
        self.status = Variable(
            var.key_dtype,
            tf.int64,
            devices=var.devices,
            partitioner=var.partition_fn,
            name=f"{var.name}/{column}",
            trainable=False,
            checkpoint=var.checkpoint,
        )

    def apply_update(self, ids: TensorLike) -> tf.Operation | None:
        """Records that keys were used now.

        Args:
            ids: Tensor of the key dtype, any shape.
        """
        keys = tf.reshape(keys_and_values.checked_keys(ids, self._var._table), [-1])
        unique, _, counts = tf.unique_with_counts(keys, tf.int64)
        if self._column == "uses":
            return self.status.accum(unique, tf.zeros_like(counts), counts)
        now = tf.cast(tf.timestamp() * 1e6, tf.int64)
        return self.status.upsert(unique, tf.fill([tf.size(unique)], now))

    def apply_restriction(self, num_reserved: Any, trigger: Any = None) -> tf.Operation | None:
        """Removes the recorded keys with the lowest values from the Variable.

        Args:
            num_reserved: Number of recorded keys to keep.
            trigger: Does nothing unless the Variable has more rows than this.
        """
        keys, values = self.status.export()
        trigger = num_reserved if trigger is None else trigger
        few = self._var.size() <= tf.cast(trigger, tf.int64)
        kept = tf.where(few, tf.size(keys), tf.cast(num_reserved, tf.int32))
        best_first = tf.argsort(values[:, 0], direction="DESCENDING", stable=True)
        removed = tf.gather(keys, best_first[kept:])
        done = [self._var.remove(removed), self.status.remove(removed)]
        return None if tf.executing_eagerly() else tf.group(*done)


class _AlsoAlone:
    """Gives a policy a status of its own if its Variable was made without the policy."""

    def __init__(self, var: Variable) -> None:
        super().__init__(var)  # type: ignore[call-arg]
        column = self.columns[0]  # type: ignore[attr-defined]
        self._alone = None if column in var._table.policy.columns else _Alone(var, column)
        if self._alone is not None:
            # Set the methods here: an optimizer step calls an overridden `apply_update`.
            vars(self).update(
                apply_update=self._alone.apply_update,
                apply_restriction=self._alone.apply_restriction,
            )

    @property
    def status(self) -> Any:
        """The table or column that ranks the rows."""
        return super().status if self._alone is None else self._alone.status  # type: ignore[misc]


    # The names of `status` in tfra. Counts and times are int64; times are in microseconds.
    freq_var = tstp_var = status


class TimestampRestrictPolicy(_AlsoAlone, restrict.TimestampRestrictPolicy):
    """Keeps the rows that were used last; see `de.TimestampRestrictPolicy`.

    Args:
        var: The Variable. If it was made without the policy, only `apply_update` records keys.

    Example:
    >>> from de_core import tfra
    >>> de = tfra.dynamic_embedding
    >>> users = de.Variable(dim=1, name="restricted_users")
    >>> users.upsert([1, 2, 3], [[0.0]] * 3)
    >>> policy = de.TimestampRestrictPolicy(users)
    >>> for key in (1, 3):
    ...     policy.apply_update([key])
    >>> policy.apply_restriction(1)
    >>> sorted(users.export()[0].numpy().tolist())
    [2, 3]
    """


class FrequencyRestrictPolicy(_AlsoAlone, restrict.FrequencyRestrictPolicy):
    """Keeps the rows that were used most often; see `de.FrequencyRestrictPolicy`.

    Args:
        var: The Variable. If it was made without the policy, only `apply_update` counts keys.
    """
