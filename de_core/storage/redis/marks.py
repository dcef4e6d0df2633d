"""Detects that Redis lost rows of a table, or may evict them.

Every slice of a table has a mark beside its rows: a string with the table's generation. A Redis
that restarts without its rows has no marks either, or marks of another generation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.storage.redis.connection import CheckError

_POLICY = re.compile(rb"maxmemory_policy:(\S+)")


class RowsLostError(tf.errors.DataLossError, CheckError):
    """Redis lost rows."""


class MayEvictError(tf.errors.FailedPreconditionError, CheckError):
    """Redis may evict rows."""


class Marks:
    """The marks of one table.

    Args:
        table: The table's name.
        names: The names of the slices' marks in Redis.

    Attributes:
        generation: The value that all marks must have; None to check no marks.
        questions: Commands for a server. `check` takes the answers.
    """

    def __init__(self, table: str, names: Sequence[str]) -> None:
        self._table = table
        self.names = names
        self.generation: bytes | None = None
        self.questions = [("INFO", "memory"), *(("GET", name) for name in names)]

    def check(self, answers: Sequence[Any]) -> None:
        """Raises if a server lost rows or may evict rows.

        Args:
            answers: The answers to `questions`. An error says nothing: in a Cluster, most slices
                are on other nodes, and a user may be forbidden to call INFO.

        Raises:
            RowsLostError: A mark is missing or has another generation.
            MayEvictError: The server evicts keys when its memory is full.
        """
        info, *marks = answers
        policy = _POLICY.search(info) if isinstance(info, bytes) else None
        if policy is not None and policy[1] != b"noeviction":
            raise MayEvictError(
                None,
                None,
                f"Redis must not evict rows of table {self._table!r}, because lost rows read as "
                f"new. Received: maxmemory-policy={policy[1].decode()!r}. Set it to 'noeviction'. "
                "If Redis evicted keys already, restore a checkpoint.",
            )
        if self.generation is not None:
            self.require(self.generation, marks)

    def require(self, generation: bytes, marks: Sequence[Any]) -> None:
        """Raises RowsLostError if a mark is missing or has another generation.

        Args:
            generation: The value that the marks must have.
            marks: The slices' marks, or errors.
        """
        known = [each for each in marks if not isinstance(each, Exception)]
        lost = sum(each != generation for each in known)
        if lost:
            raise RowsLostError(
                None,
                None,
                f"Redis must keep the rows of table {self._table!r}. Received: {lost} of "
                f"{len(known)} slices without the mark that they had, as after a restart without "
                "persistence. Restore a checkpoint, or set `allow_empty` in the Redis "
                "configuration to continue without these rows.",
            )
