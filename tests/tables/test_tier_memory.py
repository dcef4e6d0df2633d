"""A table with a tier keeps to its bound of memory, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROWS, DIM, BATCH = 300_000, 192, 4096
# Buffers of a batch: its rows as tensors, rows that move in and out, blocks of the files. malloc
# keeps some of them. All rows in memory would take 47 MiB more than is allowed.
BUFFERS = 16 * BATCH * DIM * 4

SCRIPT = f"""
import os, sys
import numpy as np
import de_core as de

def resident(name):
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return 1024 * int(lines[name].split()[0])

memory = 128 << 20
random = np.random.default_rng(1)
small = de.Variable(dim={DIM}, name="small")
ones = np.ones([{BATCH}, {DIM}], np.float32)
small.upsert(np.arange({BATCH}), ones)  # what TensorFlow needs for a batch
small.lookup(np.arange({BATCH}))
before = resident("VmRSS")
table = de.Variable(dim={DIM}, name="t", tier=de.DiskTier(sys.argv[1], memory_bytes=memory))
for begin in range(0, {ROWS}, {BATCH}):
    table.upsert(np.arange(begin, begin + {BATCH}), ones)
for _ in range(50):
    ids = random.integers(0, {ROWS}, {BATCH})
    table.lookup(ids)
    table.accum(np.unique(ids), ones[: len(np.unique(ids))], 2 * ones[: len(np.unique(ids))])
tier = table.stats()["tier"]
assert tier["cold_rows"] > 100_000, tier
allowed = 1.1 * (memory + tier["filter_bytes"]) + {BUFFERS}
peak = resident("VmHWM") - before
print(f"peak {{peak / 2**20:.0f}} MiB, allowed {{allowed / 2**20:.0f}} MiB, "
      f"the table's rows {{{ROWS} * {DIM} * 4 / 2**20:.0f}} MiB", tier)
assert peak <= allowed
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_stays_within_the_bound(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
