"""The interface of a storage, which stores rows as bytes, in columns, by key."""

from __future__ import annotations

import abc
import threading
from collections.abc import Iterator, Mapping, Sequence

#: A row of one column, or None if the key has no row there.
Row = bytes | None


class RowStore(abc.ABC):
    """The rows of one table. `KVCreator.create` returns it.

    A column has a name and at most one row of bytes per key. Every key with a row has a row in the
    first column, `VALUE`. Optimizers add further columns. Methods must be thread-safe. They must
    raise if any row cannot be read, and never return None for a read error.
    """

    #: The column of the values.
    VALUE = "value"

    __swapping = threading.Lock()  # a subclass may have a `_lock` of its own

    @abc.abstractmethod
    def read(self, columns: Sequence[str], keys: Sequence[bytes]) -> list[list[Row]]:
        """Returns the rows of `keys`, for each column.

        Args:
            columns: Column names. A column that was never written has no rows.
            keys: Distinct keys.
        """

    def read_together(self, columns: Sequence[str], keys: Sequence[bytes]) -> list[list[Row]]:
        """Like `read`, but all rows of a key are of the same moment. Saves call it.

        This default excludes only `swap` in the threads of one process. Override it for a storage
        that several processes write to, or a save may mix a key's rows of different moments.
        """
        with self.__swapping:
            return self.read(columns, keys)

    @abc.abstractmethod
    def write(self, keys: Sequence[bytes], columns: Mapping[str, Sequence[bytes]]) -> None:
        """Inserts or overwrites rows.

        Args:
            keys: Distinct keys.
            columns: For each column, one row per key.
        """

    @abc.abstractmethod
    def erase(self, keys: Sequence[bytes]) -> None:
        """Removes the rows of `keys` from all columns."""

    @abc.abstractmethod
    def drop(self, column: str) -> None:
        """Removes a column with all its rows."""

    @abc.abstractmethod
    def columns(self) -> list[str]:
        """Returns the names of all columns that were ever written."""

    @abc.abstractmethod
    def scan(self) -> Iterator[Sequence[bytes]]:
        """Yields keys in batches. Yields a key exactly once if it exists during the whole scan."""

    @abc.abstractmethod
    def size(self) -> int:
        """Returns the number of keys."""

    @abc.abstractmethod
    def clear(self) -> None:
        """Removes everything except the description."""

    @abc.abstractmethod
    def describe(self, text: str) -> str:
        """Returns the stored description. Stores `text` first if there is none."""

    def swap(
        self,
        keys: Sequence[bytes],
        old: Mapping[str, Sequence[Row]],
        new: Mapping[str, Sequence[bytes]],
    ) -> list[bool]:
        """Writes a key's new rows if its old rows are unchanged. Returns True per written key.

        This default is atomic only among the threads of one process. Override it for a storage that
        several processes write to, or they lose updates.

        Args:
            keys: Distinct keys.
            old: For each column, the rows that were read: one row or None per key.
            new: For the same columns, the rows to write.
        """
        with self.__swapping:
            now = self.read(list(old), keys)
            same = [
                all(column[index] == rows[index] for column, rows in zip(now, old.values()))  # noqa: B905
                for index in range(len(keys))
            ]
            chosen = [index for index, kept in enumerate(same) if kept]
            self.write(
                [keys[index] for index in chosen],
                {name: [rows[index] for index in chosen] for name, rows in new.items()},
            )
        return same
