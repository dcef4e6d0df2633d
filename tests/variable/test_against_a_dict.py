"""A Variable behaves like a Python dict with a default value."""

import tempfile

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import de_core as de

INT_KEYS = st.one_of(
    st.integers(-3, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**20).map(lambda n: n << 40),
)
STRING_KEYS = st.binary(max_size=3)
ROW = st.tuples(*[st.floats(-1e6, 1e6, width=32)] * 2)


class TableMachine(RuleBasedStateMachine):
    key_dtype: tf.DType
    keys: st.SearchStrategy
    tiered = False  # True: memory for a few rows; the others are on disk

    @initialize(shards=st.integers(1, 3), default=st.sampled_from([0.0, 0.25]))
    def make(self, shards, default):
        self.default = [default, default]
        self.model = {}
        self.folder = tempfile.TemporaryDirectory()
        self.table = de.Variable(
            key_dtype=self.key_dtype,
            dim=2,
            devices=["/CPU:0"] * shards,
            initializer=default,
            tier=de.DiskTier(self.folder.name, memory_bytes=256) if self.tiered else None,
        )

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def tensor(self, keys):
        return tf.constant(keys, self.key_dtype, shape=[len(keys)])

    @rule(data=st.data())
    def upsert(self, data):
        pairs = data.draw(st.lists(st.tuples(self.keys, ROW), max_size=8))
        rows = tf.constant([row for _, row in pairs], tf.float32, shape=[len(pairs), 2])
        self.table.upsert(self.tensor([key for key, _ in pairs]), rows)
        self.model.update(pairs)

    @rule(data=st.data())
    def remove(self, data):
        keys = data.draw(st.lists(self.keys, max_size=4))
        self.table.remove(self.tensor(keys))
        for key in keys:
            self.model.pop(key, None)

    @rule(data=st.data())
    def lookup(self, data):
        keys = data.draw(st.lists(self.keys, max_size=8)) + list(self.model)[:3]
        values, exists = self.table.lookup(self.tensor(keys), return_exists=True)
        expected = np.array([self.model.get(key, self.default) for key in keys], np.float32)
        np.testing.assert_array_equal(values, expected.reshape(-1, 2))
        assert exists.numpy().tolist() == [key in self.model for key in keys]

    @rule()
    def clear(self):
        self.table.clear()
        self.model.clear()

    @invariant()
    def exports_its_rows(self):
        keys, values = self.table.export()
        assert int(self.table.size()) == len(self.model)
        exported = dict(zip(keys.numpy().tolist(), values.numpy().tolist(), strict=True))
        assert exported == {key: list(row) for key, row in self.model.items()}


@pytest.mark.each_choice
@pytest.mark.parametrize("tiered", [False, True], ids=["in memory", "tiered"])
@pytest.mark.parametrize(
    ("key_dtype", "keys"), [(tf.int64, INT_KEYS), (tf.string, STRING_KEYS)], ids=["int64", "string"]
)
def test_a_table_is_a_dict_with_a_default(key_dtype, keys, tiered):
    own = {"key_dtype": key_dtype, "keys": keys, "tiered": tiered}
    machine = type("Machine", (TableMachine,), own)
    machine.TestCase.settings = settings(
        max_examples=25,
        stateful_step_count=15,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    machine.TestCase("runTest").runTest()
