"""Stores rows in Redis. A table's keys are divided into slices. Each slice has a hash per column.

All hashes of a slice have the same hash tag. So in a Cluster, a row's value and its optimizer slots
are on one node, and one script can change them together. The table's description has a name that
does not depend on the slices, so that a process with other slices finds it and is refused.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from redis.crc import key_slot

from de_core.storage.redis.config import SLOTS, Settings
from de_core.storage.redis.connection import Connection, Marks
from de_core.storage.row_store import Row, RowStore

# Reads rows of one moment. KEYS: the columns' hashes. ARGV: the rows' keys.
_READ = """
local found = {}
for column = 1, #KEYS do
  found[column] = {}
  for row = 1, #ARGV do
    found[column][row] = redis.call('HGET', KEYS[column], ARGV[row])
  end
end
return found
"""
# Compare-and-swap of rows. KEYS: a hash that stores the last call and its answer, then the columns'
# hashes. ARGV: the call's number, the number of rows, and per row: its key, its old row in each
# column ('' for none), its new row in each column. If an answer is lost, the client sends the same
# call again. The script then returns the stored answer and changes nothing.
_SWAP = """
local last = redis.call('HMGET', KEYS[1], 'call', 'answer')
if last[1] == ARGV[1] then return last[2] end
local columns, at, answer = #KEYS - 1, 2, {}
for row = 1, tonumber(ARGV[2]) do
  local key, same = ARGV[at + 1], '1'
  for column = 1, columns do
    local now = redis.call('HGET', KEYS[column + 1], key) or ''
    if now ~= ARGV[at + 1 + column] then same = '0' break end
  end
  if same == '1' then
    for column = 1, columns do
      redis.call('HSET', KEYS[column + 1], key, ARGV[at + 1 + columns + column])
    end
  end
  answer[row] = same
  at = at + 1 + 2 * columns
end
answer = table.concat(answer)
redis.call('HSET', KEYS[1], 'call', ARGV[1], 'answer', answer)
redis.call('EXPIRE', KEYS[1], 3600)
return answer
"""


class RedisStore(RowStore):
    """The rows of one table."""

    def __init__(self, name: str, settings: Settings) -> None:
        self._name = name
        self._settings = settings
        known_by = (
            hashlib.md5(name.encode()).hexdigest() if settings.using_md5_prefix_name else name
        )
        self._prefix = f"{settings.model_tag_runtime}:{known_by}"
        self._tags = settings.redis_hash_tags_runtime or _spread_tags(settings.slices)
        self._marks = Marks(name, [self._hash("mark", part) for part in range(len(self._tags))])
        self._connection = Connection(settings, self._marks.questions, self._marks.check)
        self._client = uuid.uuid4().hex
        self._calls = itertools.count()

    def read(self, columns: Sequence[str], keys: Sequence[bytes]) -> list[list[Row]]:
        """Returns the rows of `keys` per column."""
        parts = self._parts(keys)
        commands = [
            ("HMGET", self._hash(column, part), *_of(keys, numbers))
            for column in columns
            for part, numbers in parts
        ]
        numbers = [numbers for _ in columns for _, numbers in parts]
        answers = iter(self._run(commands, numbers, "read"))
        found: list[list[Row]] = []
        for _ in columns:
            rows: list[Row] = [None] * len(keys)
            for _, numbers_of in parts:
                for number, row in zip(numbers_of, next(answers), strict=True):
                    rows[number] = row
            found.append(rows)
        return found

    def read_together(self, columns: Sequence[str], keys: Sequence[bytes]) -> list[list[Row]]:
        """Like `read`, but all rows of a key are of the same moment."""
        if len(columns) == 1:  # the script takes longer
            return self.read(columns, keys)
        found: list[list[Row]] = [[None] * len(keys) for _ in columns]
        parts = self._parts(keys)
        commands = []
        for part, numbers in parts:
            names = [self._hash(column, part) for column in columns]
            commands.append(("EVAL", _READ, len(names), *names, *_of(keys, numbers)))
        answers = self._run(commands, [numbers for _, numbers in parts], "read")
        for (_, numbers), answer in zip(parts, answers, strict=True):
            for rows, some in zip(found, answer, strict=True):
                for number, row in zip(numbers, some, strict=True):
                    rows[number] = row
        return found

    def write(self, keys: Sequence[bytes], columns: Mapping[str, Sequence[bytes]]) -> None:
        """Inserts or overwrites rows."""
        parts = self._parts(keys)
        commands = [self._noting(columns)]
        commands += [
            (
                "HSET",
                self._hash(column, part),
                *itertools.chain.from_iterable(
                    zip(_of(keys, numbers), _of(rows, numbers), strict=True)
                ),
            )
            for part, numbers in parts
            for column, rows in columns.items()
        ]
        numbers = [numbers for _, numbers in parts for _ in columns]
        self._run(commands, [(), *numbers], "written")

    def swap(
        self,
        keys: Sequence[bytes],
        old: Mapping[str, Sequence[Row]],
        new: Mapping[str, Sequence[bytes]],
    ) -> list[bool]:
        """Writes a key's new rows if its old rows are unchanged. Atomic per key."""
        parts = self._parts(keys)
        commands = [self._noting(new)]
        # A forked process has the same client, thread and count.
        caller = f"{self._client}:{os.getpid()}:{threading.get_ident()}"
        for at, (part, numbers) in enumerate(parts):
            arguments: list[Any] = [next(self._calls), len(numbers)]
            for number in numbers:
                arguments.append(keys[number])
                arguments.extend(old[column][number] or b"" for column in new)
                arguments.extend(rows[number] for rows in new.values())
            names = [self._hash(f"call:{caller}:{at}", part)]
            names += [self._hash(column, part) for column in new]
            commands.append(("EVAL", _SWAP, len(names), *names, *arguments))
        answers = self._run(commands, [(), *(numbers for _, numbers in parts)], "changed")[1:]
        done = [False] * len(keys)
        for (_, numbers), answer in zip(parts, answers, strict=True):
            for number, flag in zip(numbers, answer, strict=True):
                done[number] = flag == ord("1")
        return done

    def erase(self, keys: Sequence[bytes]) -> None:
        """Removes the rows of `keys` from all columns."""
        names, parts = dict.fromkeys([self.VALUE, *self.columns()]), self._parts(keys)
        commands = [
            ("HDEL", self._hash(column, part), *(keys[number] for number in numbers))
            for part, numbers in parts
            for column in names
        ]
        self._run(commands, [numbers for _, numbers in parts for _ in names], "removed")

    def drop(self, column: str) -> None:
        """Removes a column with all its rows."""
        self._each_slice("UNLINK", column)
        self._run([("SREM", self._hash("columns", 0), column)])

    def columns(self) -> list[str]:
        """Returns the names of all columns that were ever written."""
        [names] = self._run([("SMEMBERS", self._hash("columns", 0))])
        return sorted(name.decode() for name in names)

    def scan(self) -> Iterator[Sequence[bytes]]:
        """Yields keys in batches. Yields a key exactly once if it exists during the whole scan."""
        for part in range(len(self._tags)):
            cursor: bytes | None = b"0"
            seen: set[bytes] = set()
            while cursor is not None:
                name, count = self._hash(self.VALUE, part), self._settings.keys_sending_size
                [[following, rows]] = self._run([("HSCAN", name, cursor, "COUNT", count)])
                # A retried command returns a dict; a pipelined one keys and rows by turns.
                keys = rows if isinstance(rows, dict) else dict.fromkeys(rows[::2])
                new = [key for key in keys if key not in seen]
                seen.update(new)  # Redis may return a key twice while the hash grows.
                if new:
                    yield new
                cursor = None if int(following) == 0 else str(int(following)).encode()

    def size(self) -> int:
        """Returns the number of keys."""
        return int(sum(self._each_slice("HLEN", self.VALUE)))

    def clear(self) -> None:
        """Removes everything except the description. A table that lost its rows starts empty."""
        self._open(self._description, replace=True)
        for column in dict.fromkeys([self.VALUE, *self.columns()]):
            self._each_slice("UNLINK", column)
        self._run([("UNLINK", self._hash("columns", 0))])

    def describe(self, text: str) -> str:
        """Returns the stored description. Stores `text` first if there is none."""
        self._description = self._open(text, replace=self._settings.allow_empty)
        return self._description

    def _open(self, text: str, *, replace: bool) -> str:
        """Finds or creates the table and its marks. Returns the stored description.

        Args:
            text: The description of a new table.
            replace: Whether the table may have lost rows.
        """
        name, tags = f"{{{self._prefix}}}:description", json.dumps(self._tags)
        self._marks.generation = None  # Do not check the marks before they are there.
        new = {"table": text, "tags": tags, "generation": uuid.uuid4().hex}
        self._run([("HSETNX", name, field, value) for field, value in new.items()])
        [[found, kept, generation, is_marked]] = self._run([("HMGET", name, *new, "is_marked")])
        if kept.decode() != tags:
            raise ValueError(
                f"The hash tags of the slices must stay as they were when table {self._name!r} was "
                f"created, {kept.decode()}, because they determine where rows are. Received: "
                f"{tags}. Leave `storage_slice` and `redis_hash_tags_runtime` unchanged. To change "
                "them, save a checkpoint and restore it under another `model_tag_runtime`."
            )
        if replace or is_marked is None:
            # All processes set the same marks for a new table. A slice may have an older mark: then
            # only the description was lost, with the rows of its node.
            only_new = () if replace else ("NX",)
            self._run([("SET", mark, generation, *only_new) for mark in self._marks.names])
        self._marks.require(generation, self._run([("GET", mark) for mark in self._marks.names]))
        self._run([("HSET", name, "is_marked", "1")])
        if not self._settings.allow_empty:
            self._marks.generation = generation
        return str(found.decode())

    def _each_slice(self, command: str, column: str) -> list[Any]:
        return self._run([(command, self._hash(column, part)) for part in range(len(self._tags))])

    def _noting(self, columns: Iterable[str]) -> tuple[Any, ...]:
        """Returns the command before each write: another process may have cleared the table."""
        return ("SADD", self._hash("columns", 0), *columns)

    def _hash(self, column: str, part: int) -> str:
        return f"{{{self._tags[part]}}}{self._prefix}:{column}"

    def _parts(self, keys: Sequence[bytes]) -> list[tuple[int, Sequence[int]]]:
        """Returns pairs of a slice and positions of its keys, as many as one command takes."""
        count, size = len(self._tags), self._settings.keys_sending_size
        numbers: list[Sequence[int]] = [range(len(keys))]
        if count > 1:
            lists: list[list[int]] = [[] for _ in range(count)]
            for number, key in enumerate(keys):
                lists[zlib.crc32(key) % count].append(number)
            numbers = [*lists]
        return [
            (part, own[at : at + size])
            for part, own in enumerate(numbers)
            for at in range(0, len(own), size)
        ]

    def _run(
        self, commands: list[tuple[Any, ...]], numbers: Sequence[Sequence[int]] = (), verb: str = ""
    ) -> list[Any]:
        """Runs commands and returns their answers.

        Args:
            commands: See `Connection.run`.
            numbers: For each command, the positions of its keys.
            verb: The participle for the error message, such as "read".

        Raises:
            tf.errors.UnavailableError: A command failed. Other commands may have succeeded.
            tf.errors.DataLossError: Redis lost rows of the table.
            tf.errors.FailedPreconditionError: Redis may evict rows.
        """
        answers = self._connection.run(commands)
        failed = [at for at, each in enumerate(answers) if isinstance(each, Exception)]
        if not failed:
            return answers
        error = answers[failed[0]]
        if verb:
            lost = {number for at in failed for number in numbers[at]}
            every = {number for each in numbers for number in each}
            what = f"{len(lost)} of {len(every)} keys could not be {verb}"
        else:
            what = f"{len(failed)} of {len(commands)} commands failed"
        wanted, remedy = f"answer within {self._settings.redis_socket_timeout} ms", ""
        if "maxmemory" in str(error):
            wanted = "have memory for the rows that are written"
            remedy = " Raise `maxmemory` of Redis, add nodes, or remove rows."
        raise tf.errors.UnavailableError(
            None,
            None,
            f"Redis must {wanted}. Received: {what}, of table {self._name!r}: "
            f"{type(error).__name__}: {error}{remedy}",
        ) from error


def _of(items: Sequence[bytes], numbers: Sequence[int]) -> Sequence[bytes]:
    """Returns the items at these positions."""
    return [items[number] for number in numbers]


def _spread_tags(count: int) -> tuple[str, ...]:
    """Returns `count` hash tags. They divide a Cluster's slots evenly: one tag per equal range."""
    tags: dict[int, str] = {}  # by the number of the range
    for tag in map(str, itertools.count()):
        tags.setdefault(((key_slot(tag.encode()) + 1) * count - 1) // SLOTS, tag)
        if len(tags) == count:
            break
    return tuple(tags[part] for part in range(count))
