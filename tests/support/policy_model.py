"""A model of tables with policies, made of Python dicts."""

import dataclasses

from tests.kernels.snapshot_reference_reader import mix64


def tie_of(key: int) -> int:
    """Returns a number that orders keys whose rows have equal values in the ranking column."""
    return mix64(mix64(key & 2**64 - 1))


@dataclasses.dataclass
class Row:
    value: float
    time: int = 0
    step: int = 0
    uses: int = 0
    score: int = 0


class TableModel:
    """One table with one value per row, ranked by `column`.

    A key gets a row at its `min_count`-th occurrence. A key without a row has the value `initial`.
    """

    def __init__(self, column="time", max_rows=None, ttl_steps=None, min_count=1, initial=0.5):
        self.column = column
        self.max_rows = max_rows
        self.ttl_steps = ttl_steps
        self.min_count = min_count
        self.initial = initial
        self.rows: dict[int, Row] = {}
        self.pending: dict[int, int] = {}
        self.clock = 0
        self.step = 0

    def rank(self, key):
        return getattr(self.rows[key], self.column), tie_of(key)

    def alive(self, key):
        if key not in self.rows:
            return False
        return self.ttl_steps is None or self.step - self.rows[key].step <= self.ttl_steps

    def read(self, key):
        return self.rows[key].value if self.alive(key) else self.initial

    def live_keys(self):
        return {key for key in self.rows if self.alive(key)}

    def admits(self, key):
        count = self.pending.pop(key, 0) + 1
        if count < self.min_count:
            self.pending[key] = count
        return count >= self.min_count

    def touch(self, key):
        row = self.rows[key]
        row.time, row.step, row.uses = self.clock, self.step, row.uses + 1

    def upsert(self, pairs):
        self.clock += 1
        for key, value in pairs:
            if not self.alive(key):
                self.rows[key] = Row(value)
            self.rows[key].value = value
            self.touch(key)
        self.bound()

    def find_or_insert(self, keys):
        self.clock += 1
        for key in keys:
            if not self.alive(key):
                if not self.admits(key):
                    continue
                self.rows[key] = Row(self.initial)
            self.touch(key)
        self.bound()

    def train(self, keys, gradient):
        """Does one gradient descent step with learning rate 1; every occurrence has `gradient`."""
        self.clock += 1
        self.step += 1
        for key in dict.fromkeys(keys):
            if not self.alive(key):
                if not self.admits(key):
                    continue
                self.rows[key] = Row(self.initial)
            self.rows[key].value -= gradient * keys.count(key)
            self.touch(key)
        self.bound()

    def remove(self, keys):
        for key in keys:
            self.rows.pop(key, None)
            self.pending.pop(key, None)

    def expire(self):
        for key in set(self.rows) - self.live_keys():
            del self.rows[key]

    def assign_scores(self, pairs):
        for key, score in pairs:
            if key in self.rows:
                self.rows[key].score = score

    def bound(self):
        if self.max_rows is None or len(self.rows) <= self.max_rows:
            return
        self.expire()  # expired rows go first
        if len(self.rows) > self.max_rows:
            self.keep(self.max_rows - self.max_rows // 16)

    def keep(self, count):
        for key in sorted(self.rows, key=self.rank)[: max(0, len(self.rows) - count)]:
            del self.rows[key]


def keep_best(tables, count):
    """Keeps the `count` best rows over all tables."""
    ranked = sorted((table.rank(key), key, table) for table in tables for key in table.rows)
    for _, key, table in ranked[: max(0, len(ranked) - count)]:
        del table.rows[key]
