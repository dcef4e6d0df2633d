"""A served table larger than memory: a lookup requests its rows from the disk together."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import de_core as de

ROWS, DIM = 160_000, 256
LIMIT = 620 << 20  # the table takes more than a quarter of it
GROUPS = pathlib.Path("/sys/fs/cgroup")

LOOK_UP = f"""
import ctypes, json, os, resource, sys
import numpy as np, tensorflow as tf
import de_core
from de_core.base.ops import library

group, path = sys.argv[1:]
if group:
    with open(group, "w") as processes:
        processes.write(str(os.getpid()))
table = library.de_frozen_table(
    shared_name="t", key_dtype=tf.int64, value_dtype=tf.float32, dim={DIM}
)
library.de_frozen_table_open(table, [path])  # reads all rows to verify them
with open("/proc/self/maps") as maps:
    for line in maps:
        if line.rstrip().endswith(path):
            begin, end = (int(each, 16) for each in line.split()[0].split("-"))
            ctypes.CDLL(None).madvise(
                ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), 4  # MADV_DONTNEED
            )
file = os.open(path, os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

def used():
    with open("/proc/self/io") as io:
        numbers = dict(line.split(": ") for line in io.read().splitlines())
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    return np.array([faults, int(numbers["read_bytes"])])

keys = np.random.default_rng(0).integers(0, {ROWS}, 1000)
before = used()
values, found = library.de_table_find(table, tf.constant(keys), Tvalues=tf.float32, dim={DIM})
faults, read = (used() - before).tolist()
assert found.numpy().all()
np.testing.assert_array_equal(values, np.repeat(keys[:, None], {DIM}, 1).astype("f4"))
print(json.dumps([faults, read]))
"""


@pytest.fixture
def small_group():
    """A control group with a limit of memory; the file that moves a process into it."""
    is_version_1 = (GROUPS / "memory").is_dir()
    group = GROUPS / ("memory" if is_version_1 else "") / f"de_core_{os.getpid()}"
    try:
        group.mkdir()
        limit = "memory.limit_in_bytes" if is_version_1 else "memory.max"
        (group / limit).write_text(str(LIMIT))
    except OSError:
        pytest.skip("needs the right to limit the memory of a control group")
    yield group / "cgroup.procs"
    group.rmdir()


@pytest.mark.slow
def test_a_lookup_reads_its_rows_together_and_no_others(tmp_path, small_group):
    table = de.Variable(dim=DIM, name="t")
    for begin in range(0, ROWS, 20_000):
        keys = np.arange(begin, begin + 20_000)
        table.upsert(keys, np.repeat(keys[:, None], DIM, 1).astype("f4"))
    de.checkpoint.save(table, tmp_path)
    [path] = tmp_path.glob("*.de")
    assert path.stat().st_size > LIMIT / 4
    os.sync()

    def look_up(group):
        done = subprocess.run(
            [sys.executable, "-c", LOOK_UP, str(group), str(path)],
            env=os.environ,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return json.loads(done.stdout.splitlines()[-1])

    _, read = look_up("")
    if read == 0:
        pytest.skip("needs a disk with a page cache")
    faults, read = look_up(small_group)
    # 1,000 rows lie in some 1,500 pages, and their index lines in as many as 1,000. A file system
    # with large folios reads a few times as much.
    assert read < path.stat().st_size / 4
    assert faults < 100
