"""Bases stay in the page cache after a save; deltas do not."""

import ctypes
import json
import mmap
import os

import numpy as np
import pytest
import tensorflow as tf

from de_core.base.ops import library

MIB = 1 << 20


def part_in_the_page_cache(path):
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        begin = ctypes.c_char.from_buffer(mapped)
        found = libc.mincore(ctypes.byref(begin), ctypes.c_size_t(len(mapped)), pages)
        del begin
    assert found == 0, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in pages) / len(pages)


@pytest.fixture
def past_the_cache(tmp_path):
    """Skips on a file system that keeps every written file in memory."""
    path, block = tmp_path / "probe", mmap.mmap(-1, MIB)
    if not hasattr(os, "O_DIRECT"):
        pytest.skip("needs O_DIRECT")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    except OSError:
        pytest.skip("needs a file system that can write past the page cache")
    os.write(descriptor, block)
    os.close(descriptor)
    if part_in_the_page_cache(path) > 0:
        pytest.skip("needs a file system that writes past the page cache")


def filled(table, rows, dim):
    values = np.random.default_rng(rows).normal(size=[rows, dim]).astype(np.float32)
    library.de_table_insert_or_assign(table, tf.range(rows, dtype=tf.int64), values)
    return values


@pytest.mark.usefixtures("past_the_cache")
def test_deltas_bypass_the_page_cache_and_bases_do_not(make_table, tmp_path):
    table = make_table(dim=64)
    for name, options in (
        ("base", {"chain": "c"}),
        ("delta", {"chain": "c", "delta": True}),
        ("exported", {"values_only": True}),
    ):
        filled(table, 30_000, 64)
        library.de_table_save(table, str(tmp_path / name), **options)
    assert part_in_the_page_cache(tmp_path / "base") == 1
    assert part_in_the_page_cache(tmp_path / "delta") < 0.01  # all except the file's end
    assert part_in_the_page_cache(tmp_path / "exported") == 1


# Writes are in blocks of 1 MiB. These files end at different places of a block.
@pytest.mark.parametrize("rows", [100, 11_900, 12_000, 13_500, 17_777, 40_000])
def test_a_file_of_any_length_is_as_it_was_written(make_table, rows, tmp_path):
    table, other = make_table(dim=16), make_table(dim=16)
    base, delta = str(tmp_path / "base"), str(tmp_path / "delta")
    library.de_table_save(table, base, chain="c")
    values = filled(table, rows, 16)
    report = json.loads(library.de_table_save(table, delta, chain="c", delta=True).numpy())
    assert (tmp_path / "delta").stat().st_size == report["bytes"]
    library.de_table_restore(other, [base, delta])
    keys = tf.range(rows, dtype=tf.int64)
    found = library.de_table_find(other, keys, Tvalues=tf.float32, dim=16)[0]
    np.testing.assert_array_equal(found, values)
