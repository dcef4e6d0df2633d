"""Measures RocksDB where `disk_rows_bench` measures cold rows: rows of 776 bytes, in batches.

    python -m venv rocks && rocks/bin/pip install rocksdict numpy
    rocks/bin/python tests/benchmarks/rocksdb_rows.py DIRECTORY ROWS

Prints the rate of MultiGet with 4,096 random keys, the median of 15 rounds, and the rate of updates
by WriteBatch. Reads and compactions bypass the page cache. The block cache has a tenth of the rows.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, WriteBatch

ROW_BYTES = 776
BATCH = 4096
ROUNDS = 15
UPDATES = 30


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


def write(database: Rdict, keys: np.ndarray) -> None:
    """Writes a row for each key."""
    batch = WriteBatch(raw_mode=True)
    for key in keys:
        word = int(key).to_bytes(8, "little")
        batch.put(word, word * (ROW_BYTES // 8))
    database.write(batch)


def main() -> None:
    """Fills a database, then measures lookups and updates."""
    path, rows = sys.argv[1], int(sys.argv[2])
    database = Rdict(path, options(rows))
    random = np.random.default_rng(1)
    part = rows // 100
    keys = random.permutation(rows)
    for begin in range(0, rows, part):
        write(database, keys[begin : begin + part])
    database.flush()
    rates = []
    for _ in range(ROUNDS):
        words = [int(key).to_bytes(8, "little") for key in random.integers(0, rows, BATCH)]
        started = time.perf_counter()
        found = database[words]
        rates.append(BATCH / (time.perf_counter() - started))
        if any(row[:8] != word for row, word in zip(found, words, strict=True)):
            sys.exit("RocksDB returned a wrong row")
    print(f"lookups/s {statistics.median(rates):,.0f}")
    updated = 0
    started = time.perf_counter()
    for _ in range(UPDATES):
        keys = np.unique(random.integers(0, rows, part))
        write(database, keys)
        updated += len(keys)
    database.flush()
    print(f"updates/s {updated / (time.perf_counter() - started):,.0f}")
    database.close()


if __name__ == "__main__":
    main()
