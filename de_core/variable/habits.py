"""What Python and TensorFlow users write out of habit: a table read like a dict or an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.types import Id, TensorLike

if TYPE_CHECKING:
    from de_core.variable.variable import Variable


class Habits:
    """Lets a `Variable` be indexed, counted and printed.

    Example:
    >>> import de_core as de
    >>> users = de.Variable(dim=1, name="users")
    >>> users.upsert([7], [[0.5]])
    >>> users[[7]].numpy().tolist(), 7 in users, 8 in users, len(users)
    ([[0.5]], True, False, 1)
    """

    def __getitem__(self: Variable, keys: TensorLike) -> tf.Tensor:
        """Looks up keys."""
        return self.lookup(keys)

    def __contains__(self: Variable, key: Id) -> bool:
        """Returns whether a key has a row. Eager mode only."""
        return bool(self.contains([key])[0])

    def __len__(self: Variable) -> int:
        """Returns the number of rows. Eager mode only."""
        return int(self.size())

    def __bool__(self) -> bool:
        """Returns True, also for an empty table."""
        return True

    __iter__ = None  # Without it Python would look up the keys 0, 1, 2, … without an end.

    def __tf_tensor__(self, dtype: object = None, name: object = None) -> NoReturn:
        """Refuses to become a tensor. TensorFlow calls it, for example in `tf.gather`."""
        raise TypeError(
            "A table is no tensor, because its rows have no numbers: look up ids by "
            f"de.embedding_lookup(table, ids). {received(table=self)}"
        )

    def __str__(self: Variable) -> str:
        """Returns the `repr`, in eager mode with the number of rows and their bytes."""
        if not tf.executing_eagerly():
            return repr(self)
        _, rows, size = self.count_params().parts
        return f"{repr(self)[:-1]}, {rows}, {size}>"
