"""Removes rows by policy, and reads and sets the scores that rank rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import check_integer, received
from de_core.base.no_autograph import no_autograph
from de_core.base.ops import library
from de_core.base.types import TensorLike, WholeNumber
from de_core.tables import keys_and_values
from de_core.tables.admission import Admission
from de_core.tables.eviction import Eviction
from de_core.tables.policy import TablePolicy
from de_core.tables.restrict import RestrictPolicy
from de_core.tables.sharded import ShardedTable


class Retention:
    """Applies the policies that decide which rows a table keeps. A base class of `Variable`."""

    _table: ShardedTable
    _restriction: RestrictPolicy | None

    @property
    def restrict_policy(self) -> RestrictPolicy | None:
        """The policy that chooses the rows that `restrict` keeps, or None."""
        return self._restriction

    @property
    def admission(self) -> Admission | None:
        """The policy that decides which keys get a row; None for all keys."""
        return self._table.policy.admission

    @property
    def eviction(self) -> tuple[Eviction, ...]:
        """The policies that evict rows; empty for none."""
        return self._table.policy.evictions

    @no_autograph
    def restrict(self, num_reserved: WholeNumber, **kwargs: Any) -> tf.Operation | None:
        """Removes all rows except the `num_reserved` best. The `restrict_policy` ranks the rows.

        A row is removed with its optimizer slots and the policy's metadata.

        Args:
            num_reserved: Exact number of rows to keep in the whole table.
            **kwargs: Further arguments of the policy's `apply_restriction`, such as `trigger`.

        Returns:
            The operation; None in eager mode or without a `restrict_policy`.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=1, restrict_policy=de.TimestampRestrictPolicy)
        >>> for key in (1, 2, 3):
        ...     users.upsert([key], [[0.5]])
        >>> users.restrict(2)
        >>> sorted(users.export()[0].numpy().tolist())
        [2, 3]
        """
        if self.restrict_policy is None:
            return None
        with tf.name_scope("restrict"):
            return self.restrict_policy.apply_restriction(num_reserved, **kwargs)

    @no_autograph
    def evict_expired(self, name: str | None = None) -> tf.Operation | None:
        """Removes the rows that are expired by `de.EvictionTTL`, and frees their memory.

        Args:
            name: Name of the operation.

        Returns:
            The operation, or None in eager mode.
        """
        with tf.name_scope(name or "evict_expired"):
            return self._table.each(library.de_table_evict_expired)

    @no_autograph
    def take_evicted_keys(self, capacity: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the keys of the rows that a policy removed since the previous call.

        An index beside the table must remove these keys too. The first call returns none: it makes
        the table record the keys that `eviction` and `restrict` remove, but not those that `remove`
        and `clear` remove. An expired row counts once its memory is freed (`evict_expired`), unless
        it is written before. A returned key may have a new row: ask `contains`.
        Rebuild the index if keys were lost, if the call fails, and after a restore: checkpoints do
        not contain the recorded keys.

        Args:
            capacity: Record about this many keys until the next call: each shard at most an even
                part, rounded up. Later keys are lost. 0 stops recording. An integer key takes up to
                16 bytes, a string key up to 64 bytes and its length.

        Returns:
            The keys [n], and the number of lost keys, an int64 scalar.

        Raises:
            TypeError: `capacity` is not a whole number.
            ValueError: `capacity` is negative.
            NotImplementedError: Some rows are outside this process.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=1, eviction=de.EvictionLRU(max_rows=2))
        >>> _ = users.take_evicted_keys(1000)
        >>> for key in (1, 2, 3):
        ...     users.upsert([key], [[0.5]])
        >>> users.take_evicted_keys(1000)[0].numpy().tolist()
        [1]
        """
        check_integer("capacity", capacity, 0)
        table = self._table
        if table.is_remote or table.outlives_its_process:
            raise NotImplementedError(
                f"`take_evicted_keys` needs rows in this process. {received(table=table.name)} "
                "Ask `contains` for the keys of the index instead."
            )
        part = tf.constant(-(-int(capacity) // len(table.tables)), tf.uint64)
        op, key_dtype = library.de_table_take_evicted_keys, table.spec.key_dtype
        with tf.name_scope("take_evicted_keys"):
            taken = [shard.run(op, part, Tkeys=key_dtype) for shard in table.tables]
            keys, lost = zip(*taken, strict=True)
            return tf.concat(list(keys), 0), tf.add_n(list(lost))

    @no_autograph
    def assign_scores(
        self, keys: TensorLike, scores: TensorLike, name: str | None = None
    ) -> tf.Operation | None:
        """Sets the scores that `de.EvictionScore` compares. Ignores keys without a row.

        Args:
            keys: Tensor, array or list of the key dtype, any shape.
            scores: int64, keys.shape. The rows with the lowest scores are evicted first.
            name: Name of the operation.

        Returns:
            The operation, or None in eager mode.

        Raises:
            TypeError: `keys` have another dtype, or `scores` are not int64.
            ValueError: The Variable has no `de.EvictionScore`, or `scores` have another shape.
        """
        if self._table.policy.rank_column != "score":
            raise ValueError(
                f"Table {self._table.name!r} must have been made with eviction=de.EvictionScore(…) "
                f"to have scores. {received(eviction=self.eviction)}"
            )
        with tf.name_scope(name or "assign_scores"):
            keys = keys_and_values.checked_keys(keys, self._table)
            scores = keys_and_values.converted("scores", scores, tf.int64, self._table.name)
            if not scores.shape.is_compatible_with(keys.shape):
                raise ValueError(
                    f"`scores` must have the shape of `keys`, {keys.shape}. "
                    + received(scores_shape=scores.shape)
                )
            flat = tf.reshape(keys, [-1])
            return self._table.assign_slot(flat, tf.reshape(scores, [-1, 1]), "de/score")

    @no_autograph
    def export_keys_and_scores(
        self, split_size: int = 1, name: str | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all keys and the numbers that rank their rows, in no particular order.

        The `eviction` policy, or else the `restrict_policy`, defines the number: the time of the
        last write in microseconds since 1970, the number of writes, or the score.

        Args:
            split_size: Ignored, for compatibility. The table is always read in small parts.
            name: Name of the operation.

        Returns:
            Keys [n] and scores, int64 [n].

        Raises:
            ValueError: The Variable has no policy that ranks rows, or `split_size` is not positive.
        """
        check_integer("split_size", split_size, 1)
        column = self._table.policy.rank_column
        if not column:
            raise ValueError(
                f"Table {self._table.name!r} must have been made with an `eviction` or "
                "`restrict_policy` that ranks rows to have scores. "
                + received(eviction=self.eviction, restrict_policy=self.restrict_policy)
            )
        with tf.name_scope(name or "export_keys_and_scores"):
            keys, scores = self._table.export(column)
            return keys, tf.squeeze(scores, -1)


def checked_policy(
    restrict_policy: type[RestrictPolicy] | None,
    admission: Admission | None,
    eviction: Eviction | Sequence[Eviction] | None,
) -> TablePolicy:
    """Combines the policies of a `Variable` after checking them.

    Raises:
        TypeError: An argument is not a policy.
        ValueError: Two eviction policies are of the same kind.
    """
    is_policy = isinstance(restrict_policy, type) and issubclass(restrict_policy, RestrictPolicy)
    if restrict_policy is not None and not is_policy:
        raise TypeError(
            "`restrict_policy` must be a subclass of de.RestrictPolicy, such as "
            "de.TimestampRestrictPolicy, or None. " + received(restrict_policy=restrict_policy)
        )
    if admission is not None and not isinstance(admission, Admission):
        raise TypeError(
            "`admission` must be a policy such as de.AdmissionCount(2), or None. "
            + received(admission=admission)
        )
    given: Any = () if eviction is None else eviction
    evictions = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    for each in evictions:
        if not isinstance(each, Eviction):
            raise TypeError(
                "`eviction` must be a policy such as de.EvictionLRU(max_rows=10**6), a list of "
                f"them, or None. {received(eviction=each)}"
            )
    for ranks in (True, False):
        if sum(bool(each.column) == ranks for each in evictions) > 1:
            kind = "bounds the table" if ranks else "limits the time to live"
            raise ValueError(
                f"At most one `eviction` policy that {kind} may be given. "
                + received(eviction=eviction)
            )
    columns = () if restrict_policy is None else tuple(restrict_policy.columns)
    return TablePolicy(columns, admission, evictions)
