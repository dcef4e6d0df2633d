"""Measures RocksDB where `disk_rows_bench` measures cold rows: rows of 776 bytes, in batches.

Prints the rate of MultiGet with 4,096 random keys, the median of 15 rounds, and the rate of updates
by WriteBatch. Reads and compactions bypass the page cache. The block cache has a tenth of the rows.
Writes have no log, so rows that are only in memory are lost with the process, as a tier's are.

Only RocksDB's own calls count, not the time in which Python makes a batch. The updates end with a
flush. The second rate includes the wait for the compactions that the updates caused.

Run: pip install rocksdict, then python bench/rocksdb_rows.py DIRECTORY 1000000
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

ROW_BYTES = 776
BATCH = 4096
WRITTEN = 16384  # rows per WriteBatch, as a tier writes them
ROUNDS = 15
BUSY = [
    "rocksdb.num-running-compactions",
    "rocksdb.compaction-pending",
    "rocksdb.num-running-flushes",
    "rocksdb.mem-table-flush-pending",
]


def options(rows: int) -> Options:
    """Returns RocksDB's options for a table of `rows` rows."""
    blocks = BlockBasedOptions()
    blocks.set_block_size(4096)
    blocks.set_bloom_filter(12, False)
    blocks.set_block_cache(Cache(rows * ROW_BYTES // 10))
    blocks.set_cache_index_and_filter_blocks(True)
    made = Options(raw_mode=True)
    made.set_block_based_table_factory(blocks)
    made.set_use_direct_reads(True)
    made.set_use_direct_io_for_flush_and_compaction(True)
    made.set_compression_type(DBCompressionType.none())
    made.set_write_buffer_size(max(rows * ROW_BYTES // 40, 1 << 20))
    return made


def write(database: Rdict, keys: np.ndarray) -> float:
    """Writes a row for each key. Returns the seconds that RocksDB took."""
    how = WriteOptions()
    how.disable_wal = True
    batch = WriteBatch(raw_mode=True)
    for key in keys:
        word = int(key).to_bytes(8, "little")
        batch.put(word, word * (ROW_BYTES // 8))
    started = time.perf_counter()
    database.write(batch, how)
    return time.perf_counter() - started


def settle(database: Rdict) -> float:
    """Waits until no compaction runs or is needed. Returns the seconds."""
    started = time.perf_counter()
    while any(database.property_int_value(name) for name in BUSY):
        time.sleep(0.01)
    return time.perf_counter() - started


def main() -> None:
    path, rows = sys.argv[1], int(sys.argv[2])
    database, random = Rdict(path, options(rows)), np.random.default_rng(1)
    keys = random.permutation(rows)
    for begin in range(0, rows, WRITTEN):
        write(database, keys[begin : begin + WRITTEN])
    database.flush()
    settle(database)

    rates = []
    for _ in range(ROUNDS):
        words = [int(key).to_bytes(8, "little") for key in random.integers(0, rows, BATCH)]
        started = time.perf_counter()
        found = database[words]
        rates.append(BATCH / (time.perf_counter() - started))
        if any(row[:8] != word for row, word in zip(found, words, strict=True)):
            sys.exit("RocksDB returned a wrong row")
    print(f"lookups/s {statistics.median(rates):,.0f}")

    updated, seconds = 0, 0.0
    while updated < 3 * rows:
        keys = np.unique(random.integers(0, rows, WRITTEN))
        seconds += write(database, keys)
        updated += len(keys)
    started = time.perf_counter()
    database.flush()
    seconds += time.perf_counter() - started
    settled = seconds + settle(database)
    print(f"updates/s {updated / seconds:,.0f}, with the compactions {updated / settled:,.0f}")
    database.close()


if __name__ == "__main__":
    main()
