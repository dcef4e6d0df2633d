"""Bases are written through the page cache and stay there; deltas are written past it."""

import ctypes
import json

import numpy as np
import pytest
import tensorflow as tf

from de_core.base.ops import library
from tests.support.shims import shims


def filled(table, rows, dim):
    values = np.random.default_rng(rows).normal(size=[rows, dim]).astype(np.float32)
    library.de_table_insert_or_assign(table, tf.range(rows, dtype=tf.int64), values)
    return values


def save_bases_and_deltas(folder):
    cached, direct = (
        ctypes.c_int64.in_dll(shims(), f"written_{name}") for name in ("cached", "direct")
    )
    table = library.de_table(anonymous=True, key_dtype=tf.int64, value_dtype=tf.float32, dim=64)

    def part_past_the_cache(name, **options):
        filled(table, 30_000, 64)
        shims().begin_counting_writes()
        library.de_table_save(table, f"{folder}/{name}", **options)
        assert cached.value + direct.value > 30_000 * 64 * 4
        return direct.value / (cached.value + direct.value)

    assert part_past_the_cache("base", chain="c") == 0
    assert part_past_the_cache("delta", chain="c", delta=True) > 0.99  # all except the file's end
    assert part_past_the_cache("exported", values_only=True) == 0


def test_deltas_bypass_the_page_cache_and_bases_do_not(in_shims, tmp_path):
    in_shims(save_bases_and_deltas, tmp_path)


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
