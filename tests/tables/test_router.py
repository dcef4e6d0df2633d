import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.kernels.snapshot_reference_reader import MASK, hash_bytes, mix64


def documented_shard(key, shards):
    word = key & MASK if isinstance(key, int) else hash_bytes(key)
    return mix64(word ^ 0xD6E8FEB86659FD93) * shards >> 64


@pytest.mark.parametrize(
    "keys",
    [
        [0, 1, -1, 2**40, 2**63 - 1, -(2**63)],
        [b"", b"a", b"user-17", b"12345678", b"123456789\xff"],
    ],
)
@pytest.mark.parametrize("shards", [1, 2, 7, 1000])
def test_the_default_is_the_documented_hash(keys, shards):
    result = de.default_partition_fn(
        tf.constant(keys, None if keys[1] == b"a" else tf.int64), shards
    )
    assert result.dtype == tf.int32
    assert result.numpy().tolist() == [documented_shard(key, shards) for key in keys]


@pytest.mark.parametrize("shards", [2, 3, 7, 16])
def test_the_default_divides_evenly(shards):
    rng = np.random.default_rng(0)
    zipf = np.unique(np.minimum(rng.zipf(1.2, size=2_000_000), 2**40))
    numbers = np.arange(200_000)
    for keys in (numbers, numbers.astype(np.int32), numbers * 1024, zipf, -numbers * shards):
        counts = np.bincount(de.default_partition_fn(tf.constant(keys), shards))
        assert len(counts) == shards
        assert np.abs(counts / (len(keys) / shards) - 1).max() < 0.05
