"""SyncReplicasOptimizer of TensorFlow 1: two workers and one server match one process."""

import pytest
import tensorflow as tf

import de_core as de
from tests.distributed.support.processes import PROGRAMS, result_of

tf1 = tf.compat.v1


@pytest.mark.slow
def test_replicas_in_step_give_the_numbers_of_one_with_the_whole_batch(cluster):
    processes = cluster(ps=1, worker=2)
    processes.serve("ps", 0)
    names = [f"worker_{task}" for task in range(2)]
    for task, name in enumerate(names):
        processes.start(name, PROGRAMS / "sync_worker.py", task)
    for name in names:
        found = result_of(processes.wait_until_printed(name, "RESULT"))
        assert found["rows"] < 1e-6
        assert found["dense"] < 1e-6
        assert found["step"] == 0


def minimized(wrap):
    with tf.Graph().as_default():
        table = de.get_variable("users", dim=2)
        loss = tf.reduce_sum(de.embedding_lookup(table, tf.constant([1, 2], tf.int64)))
        optimizer = wrap(de.DynamicEmbeddingOptimizer(tf1.train.GradientDescentOptimizer(1.0)))
        return optimizer.minimize(loss, global_step=tf1.train.get_or_create_global_step())


def test_tensorflows_own_class_is_refused_with_the_remedy():
    with pytest.raises(NotImplementedError, match=r"use de\.optimizers\.SyncReplicasOptimizer"):
        minimized(lambda optimizer: tf1.train.SyncReplicasOptimizer(optimizer, 2))


def test_wrong_arguments_say_what_must_hold():
    plain = tf1.train.GradientDescentOptimizer(1.0)
    with pytest.raises(TypeError, match=r"must be what de\.DynamicEmbeddingOptimizer made"):
        de.optimizers.SyncReplicasOptimizer(plain, 2)
    with pytest.raises(NotImplementedError, match="All replicas must take part"):
        minimized(lambda optimizer: de.optimizers.SyncReplicasOptimizer(optimizer, 2, 3))
