"""A process asks the system for huge pages of a served table's files, and for their bytes."""

import ctypes
from pathlib import Path

import numpy as np
import tensorflow as tf

import de_core as de
from de_core.tables.served_copy import SUFFIX
from tests.support.models import looker
from tests.support.shims import shims

HUGE = 2 << 20
ROWS, DIM = 1 << 17, 16  # a file of 10 MB
MADV_RANDOM, MADV_HUGEPAGE, MADV_POPULATE_READ = 1, 14, 22


def table_file(path):
    (file,) = (Path(path) / "assets").glob(f"*{SUFFIX}")
    assert file.stat().st_size > 4 * HUGE
    return file


def advised(library, file):
    """Returns the bytes and the advice of each call for a mapped file."""
    lines = Path("/proc/self/maps").read_text("utf-8").splitlines()
    places = [line.split()[0].split("-") for line in lines if line.endswith(str(file.resolve()))]
    ranges = [range(int(begin, 16), int(end, 16)) for begin, end in places]
    count = ctypes.c_int64.in_dll(library, "advised_count").value
    assert count < 4096
    calls = np.frombuffer((ctypes.c_int64 * (3 * 4096)).in_dll(library, "advised"), np.int64)
    return [
        (size, advice)
        for at, size, advice in calls.reshape(-1, 3)[:count].tolist()
        if any(at in each for each in ranges)
    ]


def load_versions(folder):
    library = shims()
    model = looker(de.Variable(dim=DIM, name="rows"))
    model.table.upsert(tf.range(ROWS, dtype=tf.int64), tf.ones([ROWS, DIM]))
    base = table_file(de.publish(model, folder, model.look))
    model.table.upsert(tf.range(ROWS, dtype=tf.int64), tf.zeros([ROWS, DIM]))
    path = Path(de.publish(model, folder, model.look, full_part=10))
    base = path / "assets" / base.name
    (delta,) = set(path.glob(f"assets/*{SUFFIX}")) - {base}
    loaded = tf.saved_model.load(str(path))
    of_delta, of_base = (advised(library, file) for file in (delta, base))
    for file, calls in ((delta, of_delta), (base, of_base)):
        assert (file.stat().st_size, MADV_HUGEPAGE) in calls, calls
        assert MADV_RANDOM not in [advice for _, advice in calls]
    # A delta bypasses the page cache when it is written. So all of it is read before a lookup.
    assert (delta.stat().st_size, MADV_POPULATE_READ) in of_delta, of_delta
    # The check of the files reads ahead only the huge pages that it touches.
    assert max([0, *(size for size, advice in of_base if advice == MADV_POPULATE_READ)]) <= HUGE
    answer = loaded.signatures["de_lookup/rows"](ids=tf.range(ROWS, dtype=tf.int64))
    assert not np.any(answer["embeddings"])


def test_files_are_advised_before_they_are_looked_up(in_shims, tmp_path):
    in_shims(load_versions, tmp_path)
