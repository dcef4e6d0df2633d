"""Times, counts, scores, steps and admission of policies survive a restart."""

import json

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.tables.test_eviction import train


def tables_on(shards):
    devices = ["/CPU:0"] * shards
    users = de.Variable(
        dim=1,
        name="users",
        devices=devices,
        restrict_policy=de.TimestampRestrictPolicy,
        admission=de.AdmissionCount(3),
        eviction=de.EvictionTTL(steps=4),
    )
    bloom = de.Variable(
        dim=1,
        name="bloom",
        devices=devices,
        admission=de.AdmissionBloom(2, capacity=1000, error=0.001),
    )
    return users, bloom, tf.train.Checkpoint(users=users, bloom=bloom)


def train_and_save(shards, path):
    users, bloom, checkpoint = tables_on(shards)
    for _ in range(3):
        train(users, [1, 2, 3])
    train(users, [1, 10])
    train(users, [10, 11])
    train(bloom, range(50))
    checkpoint.write(path)
    print(users.restrict_policy.status.lookup([1, 2, 3]).numpy().ravel().tolist())


@pytest.mark.parametrize(("before", "after"), [pytest.param(1, 1, marks=pytest.mark.slow), (3, 2)])
def test_times_and_counts_outlive_the_process(forks, tmp_path, before, after):
    path = str(tmp_path / "saved")
    done = forks.call(train_and_save, before, path)
    assert done.returncode == 0, done.stderr[-4000:]
    times = json.loads(done.stdout.splitlines()[-1])
    users, bloom, checkpoint = tables_on(after)
    checkpoint.read(path).assert_consumed()

    assert users.restrict_policy.status.lookup([1, 2, 3]).numpy().ravel().tolist() == times
    train(users, [10, 11])  # step 6: key 10 occurs for the third time, 11 for the second
    assert users.contains([10, 11]).numpy().tolist() == [True, False]
    train(users, [11])  # step 7: rows 2 and 3, written in step 3, live four more steps
    assert users.contains([1, 2, 3, 11]).numpy().tolist() == [True, True, True, True]
    train(users, [99])  # step 8: row 1, written in step 4, still lives
    assert users.contains([1, 2, 3]).numpy().tolist() == [True, False, False]
    newest = users.restrict_policy.status.lookup([11]).numpy()
    assert (newest > np.max(times)).all()
    train(bloom, range(50))
    assert int(bloom.size()) == 50  # even if the saved filters were of another size
