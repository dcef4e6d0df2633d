"""The environment of the real wheel works."""

import pytest

from tests.tfra.ancestor import run_ancestor

pytestmark = pytest.mark.slow


def test_a_program_runs_with_the_real_wheel_and_tf_keras():
    printed = run_ancestor("""
        import tensorflow as tf
        from tensorflow_recommenders_addons import dynamic_embedding as de
        table = de.get_variable("users", dim=2, initializer=0.5)
        table.upsert(tf.constant([7], tf.int64), tf.constant([[1.0, 2.0]]))
        print(table.lookup(tf.constant([7, 8], tf.int64)).numpy().tolist())
        print(tf.keras.Model.__module__)
    """)
    assert printed.splitlines()[-2:] == ["[[1.0, 2.0], [0.5, 0.5]]", "tf_keras.src.engine.training"]
