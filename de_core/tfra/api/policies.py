"""Restrict policies that also work beside a Variable that was made without them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.types import TensorLike, WholeNumber
from de_core.tables import keys_and_values, restrict
from de_core.variable.variable import Variable


class _AlsoAlone:
    """Gives a policy a table of its own if its Variable was made without the policy."""

    _kind: type[restrict.RestrictPolicy]

    def __init__(self, var: Variable) -> None:
        super().__init__(var)  # type: ignore[call-arg]
        column: str = self.columns[0]  # type: ignore[attr-defined]
        self._alone: Any = None
        if column not in var._table.policy.columns:
            self._alone = Variable(
                var.key_dtype,
                tf.int8,
                devices=var.devices,
                partitioner=var.partition_fn,
                name=f"{var.name}/{column}",
                trainable=False,
                checkpoint=var.checkpoint,
                restrict_policy=self._kind,
            )
            # Set the methods here: an optimizer step calls an overridden `apply_update`.
            vars(self).update(apply_update=self._update, apply_restriction=self._restrict)

    @property
    def status(self) -> Any:
        """The column that ranks the rows."""
        return super().status if self._alone is None else self._alone.restrict_policy.status  # type: ignore[misc]

    def _update(self, ids: TensorLike) -> tf.Operation | None:
        """Records that keys were used now."""
        keys = keys_and_values.checked_keys(ids, self._alone._table)
        return self._alone.upsert(keys, tf.zeros_like(keys, tf.int8))

    def _restrict(self, num_reserved: WholeNumber, **kwargs: Any) -> tf.Operation | None:
        """Removes the recorded keys with the lowest values from the Variable."""
        var: Variable = self.var  # type: ignore[attr-defined]
        reserved, most = restrict.row_counts(num_reserved, **kwargs)

        def worst() -> tf.Tensor:
            keys, values = self.status.export()
            best_first = tf.argsort(values[:, 0], direction="DESCENDING", stable=True)
            return tf.gather(keys, best_first[reserved:])

        removed = tf.cond(var.size() > most, worst, lambda: tf.zeros([0], var.key_dtype))
        done = [var.remove(removed), self._alone.remove(removed)]
        return None if tf.executing_eagerly() else tf.group(*done)

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

    _kind = restrict.TimestampRestrictPolicy


class FrequencyRestrictPolicy(_AlsoAlone, restrict.FrequencyRestrictPolicy):
    """Keeps the rows that were used most often; see `de.FrequencyRestrictPolicy`.

    Args:
        var: The Variable. If it was made without the policy, only `apply_update` counts keys.
    """

    _kind = restrict.FrequencyRestrictPolicy
