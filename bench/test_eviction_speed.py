"""The cost of policies in a training step, and how long an eviction lets another writer wait.

A step is lookup, gradient and Adam on 8192 ids. One id in twenty is new, as in a continuing log.
The other ids are Zipf draws of ids with rows. A limited table is full, so a new id evicts another
row. The table without a policy grows instead.

For the wait, one thread writes new ids to a full table, and another thread writes ids that have
rows. The same threads run on a table without a bound, in turns, because each writer also waits for
locks and for a processor.
"""

import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from bench.rounds import Bar, Rounds

pytestmark = pytest.mark.benchmark

BATCH, DIM, STEPS = 8192, 32, 8
BAR, BETTER = 0.9, 0.97
#: Milliseconds that an eviction may add to the longest wait of another writer.
LONGEST_WAIT_MS = 5.0


def policies(rows):
    return {
        "no policy": {},
        "timestamp": {"restrict_policy": de.TimestampRestrictPolicy},
        "LRU": {"eviction": de.EvictionLRU(max_rows=rows)},
        "LFU": {"eviction": de.EvictionLFU(max_rows=rows)},
        "TTL": {"eviction": de.EvictionTTL(steps=100_000, seconds=1e6)},
        "count": {"admission": de.AdmissionCount(2)},
        "Bloom": {"admission": de.AdmissionBloom(2, capacity=10 * rows)},
        "probability": {"admission": de.AdmissionProbability(0.1)},
        "LRU and count": {
            "eviction": de.EvictionLRU(max_rows=rows),
            "admission": de.AdmissionCount(2),
        },
    }


class Trained:
    """A table that is trained on the log."""

    def __init__(self, name, rows, arguments, log):
        self.table = de.Variable(dim=DIM, name=f"speed {name}", init_size=rows, **arguments)
        for first in range(0, rows, 100_000):
            keys = tf.range(first, min(rows, first + 100_000), dtype=tf.int64)
            self.table.upsert(keys, tf.ones([len(keys), DIM]))
        self.optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam())
        self.optimizer.build(self.table.trainable_variables)
        self.log, self.at = log, 0
        self.step = tf.function(self._step)

    def _step(self, ids):
        with tf.GradientTape() as tape:
            rows = de.embedding_lookup(self.table, ids)
            loss = tf.reduce_mean(rows * rows)
        variables = self.table.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)

    def run(self):
        for _ in range(STEPS):
            self.step(self.log[self.at % len(self.log)])
            self.at += 1


def log_of(rows, steps):
    random = np.random.default_rng(0)
    weights = np.arange(1, rows + 1, dtype=np.float64) ** -1.05
    ids = random.choice(rows, size=(steps, BATCH), p=weights / weights.sum())
    fresh = random.random(ids.shape) < 0.05
    ids[fresh] = rows + np.arange(int(fresh.sum()))
    return [tf.constant(batch, tf.int64) for batch in ids]


def test_policies_cost_less_than_a_tenth_of_a_step(report, rows, rounds):
    rows, rounds = rows // 4, 2 * rounds  # a full table evicts 1/16 of its rows every few rounds
    log = log_of(rows, STEPS * (rounds + 1))
    turns = Rounds()
    for name, arguments in policies(rows).items():
        turns.add(name, STEPS * BATCH, Trained(name, rows, arguments, log).run)
    turns.run(rounds)
    # Use the total time, not a median round: evictions are rare and long.
    totals = {name: sum(measured.wall) for name, measured in turns.measured.items()}
    ratios = {name: totals["no policy"] / total for name, total in totals.items()}
    for name, ratio in ratios.items():
        report.row(
            f"Policies, {rows} rows of {DIM}, Adam",
            {
                "policy": name,
                "M ids/s": rounds * STEPS * BATCH / totals[name] / 1e6,
                "of no policy": ratio,
                "longest round / median": max(turns.measured[name].wall)
                / float(np.median(turns.measured[name].wall)),
            },
        )
        if name != "no policy":
            report.bars.append(Bar(f"step with {name}", ratio, BAR, BETTER))
    missed = {name: ratio for name, ratio in ratios.items() if ratio < BAR}
    assert missed == {}


class TwoWriters:
    """A table with two writers: one writes new ids, the other one writes ids that have rows."""

    def __init__(self, name, rows, arguments):
        self.table = de.Variable(
            dim=DIM, name=f"two writers {name}", init_size=2 * rows, **arguments
        )
        for first in range(0, rows, 100_000):
            keys = tf.range(first, min(rows, first + 100_000), dtype=tf.int64)
            self.table.upsert(keys, tf.ones([len(keys), DIM]))
        self.next, self.new = rows, rows // 8
        self.values = tf.ones([BATCH, DIM])
        self.present = tf.range(rows - 256, rows, dtype=tf.int64)
        self.waits = []

    def run(self):
        """Inserts new ids, and keeps the longest wait of the other writer, in seconds."""
        inserting = threading.Thread(target=self._insert)
        inserting.start()
        longest = 0.0
        while inserting.is_alive():
            begin = time.perf_counter()
            self.table.upsert(self.present, self.values[:256])
            longest = max(longest, time.perf_counter() - begin)
        inserting.join()
        self.waits.append(longest)

    def _insert(self):
        for first in range(self.next, self.next + self.new, BATCH):
            self.table.upsert(tf.range(first, first + BATCH, dtype=tf.int64), self.values)
        self.next += self.new


def test_an_eviction_does_not_stop_another_writer(report, rows, rounds):
    bounds = {"no bound": {}, "LRU": {"eviction": de.EvictionLRU(max_rows=rows)}}
    writers = {name: TwoWriters(name, rows, given) for name, given in bounds.items()}
    turns = Rounds()
    for name, writer in writers.items():
        turns.add(name, rows // 8, writer.run)
    turns.run(rounds)
    assert writers["LRU"].table.stats()["evicted"] > 0
    longest = {name: 1e3 * float(np.median(each.waits)) for name, each in writers.items()}
    for name, wait in longest.items():
        report.row(
            f"Longest wait of a writer while another writes new ids, {rows} rows of {DIM}",
            {"table": name, "median of the rounds, ms": wait},
        )
    assert longest["LRU"] < longest["no bound"] + LONGEST_WAIT_MS
