"""The first write to a table that a mapped file answers for reads the rows on several threads."""

import json
import os
from pathlib import Path

import pytest
import tensorflow as tf

from de_core.base.ops import library
from tests.support.applies import applies_if

ROWS, DIM = 400_000, 16
TASKS = Path("/proc/self/task")

pytestmark = [
    pytest.mark.quiet,
    applies_if(len(os.sched_getaffinity(0)) > 1, "two cores"),
]


def cpu_of_threads():
    """Returns the CPU nanoseconds of each thread of this process."""
    times = {}
    for task in TASKS.iterdir():
        try:
            times[task.name] = int((task / "schedstat").read_text("utf-8").split()[0])
        except FileNotFoundError:  # the thread has ended
            continue
    return times


def make_table():
    return library.de_table(anonymous=True, key_dtype=tf.int64, value_dtype=tf.float32, dim=DIM)


def test_the_first_write_uses_several_threads(tmp_path):
    path = str(tmp_path / "rows")
    saved = make_table()
    library.de_table_insert_or_assign(saved, tf.range(ROWS, dtype=tf.int64), tf.ones([ROWS, DIM]))
    library.de_table_save(saved, path, metadata=["partition", "hash", "shard", "0/1"])
    table = make_table()
    report = library.de_table_restore(table, [path], map=True)
    assert json.loads(report.numpy())["read"] == 0, "the file answers until the first write"
    before = cpu_of_threads()
    library.de_table_insert_or_assign(table, tf.constant([-1], tf.int64), tf.zeros([1, DIM]))
    spent = sorted(time - before.get(task, 0) for task, time in cpu_of_threads().items())
    assert library.de_table_size(table) == ROWS + 1
    assert spent[-2] > 0.1 * sum(spent), f"CPU time of the threads: {spent}"
