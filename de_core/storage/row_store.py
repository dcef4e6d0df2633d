"""What a storage other than main memory must do: keep rows of bytes, in columns, by key."""

from __future__ import annotations

import abc
import threading
from collections.abc import Iterator, Mapping, Sequence

#: One row of a column, or None where there is none.
Row = bytes | None


class RowStore(abc.ABC):
    """The rows of one table, as `KVCreator.create` returns them.

    A column is a name and at most one row of bytes a key. Every key with a row has one in the first
    column, `VALUE`; optimizers add columns of their own. Methods may be called from any number of
    threads at once. One that cannot do all that it was asked for raises: it never returns None for
    a row that it could not read.
    """

    #: The column of the values.
    VALUE = "value"

    _lock = threading.Lock()

    @abc.abstractmethod
    def read(self, columns: Sequence[str], keys: Sequence[bytes]) -> list[list[Row]]:
        """Returns for each column the rows of `keys`.

        Args:
            columns: Names; one that was never written has no rows.
            keys: Distinct.
        """

    @abc.abstractmethod
    def write(self, keys: Sequence[bytes], columns: Mapping[str, Sequence[bytes]]) -> None:
        """Inserts or overwrites rows.

        Args:
            keys: Distinct.
            columns: For each column one row a key.
        """

    @abc.abstractmethod
    def erase(self, keys: Sequence[bytes]) -> None:
        """Removes the rows of `keys` from all columns."""

    @abc.abstractmethod
    def drop(self, column: str) -> None:
        """Removes a column with all its rows."""

    @abc.abstractmethod
    def columns(self) -> list[str]:
        """Returns the names of all columns that were written."""

    @abc.abstractmethod
    def scan(self) -> Iterator[Sequence[bytes]]:
        """Yields the keys, some at a time; one that is there throughout comes exactly once."""

    @abc.abstractmethod
    def size(self) -> int:
        """Returns the number of keys."""

    @abc.abstractmethod
    def clear(self) -> None:
        """Removes everything but the description."""

    @abc.abstractmethod
    def describe(self, text: str) -> str:
        """Returns the description that the rows were first kept under; keeps `text` if none was."""

    def swap(
        self,
        keys: Sequence[bytes],
        old: Mapping[str, Sequence[Row]],
        new: Mapping[str, Sequence[bytes]],
    ) -> list[bool]:
        """Writes each key's new rows if its old ones are still there, and returns where it did.

        This one is atomic among the threads of one process. A storage that several processes
        write to overrides it, or they lose updates.

        Args:
            keys: Distinct.
            old: For each column what was read, one row or None a key.
            new: For the same columns what to write.
        """
        with self._lock:
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
