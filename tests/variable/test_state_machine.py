"""After any operations, saves and restores, a Variable equals a Python dict."""

import copy
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import de_core as de

DIM = 2
FEW = 12  # keys that repeat
SHARDS = st.integers(1, 3)
INITIALIZERS = st.sampled_from([0.0, 0.25, "uniform"])
# Quarters, because their sums and differences are exact.
ROW = st.tuples(*[st.integers(-4000, 4000).map(lambda n: n / 4)] * DIM)


def keys_of(dtype):
    if dtype is tf.string:
        return st.one_of(st.integers(0, FEW).map(lambda n: b"\0" * n), st.binary(max_size=40))
    bits = dtype.size * 8 - 1
    return st.one_of(
        st.integers(-3, FEW),
        st.integers(0, 2**20).map(lambda n: n << (bits - 23)),
        st.sampled_from([-(2**bits), 2**bits - 1, 2 ** (bits - 1)]),
        st.integers(-(2**bits), 2**bits - 1),
    )


class Model:
    """A dict of the rows, and the observed values of keys without a row."""

    def __init__(self):
        self.rows = {}
        self.initial = {}

    def read(self, key, row):
        """Returns the value that `key` must have. Records `row`, as read, if the key has no row."""
        if key in self.rows:
            return self.rows[key]
        return self.initial.setdefault(key, tuple(row))


class VariableMachine(RuleBasedStateMachine):
    key_dtype: tf.DType
    keys: st.SearchStrategy
    tiered = False  # True: memory for a few rows; the others are on disk

    @initialize(shards=SHARDS, initializer=INITIALIZERS)
    def make(self, shards, initializer):
        self.model = Model()
        self.saved = []
        self.folder = tempfile.TemporaryDirectory()
        self.table = self.variable(shards, initializer)

    def variable(self, shards, initializer):
        return de.Variable(
            key_dtype=self.key_dtype,
            dim=DIM,
            devices=["/CPU:0"] * shards,
            initializer=initializer,
            tier=de.DiskTier(self.folder.name, memory_bytes=256) if self.tiered else None,
        )

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def draw_keys(self, data, most=8):
        keys = data.draw(st.lists(self.keys, max_size=most))
        if self.model.rows:
            there = sorted(self.model.rows)
            keys += data.draw(st.lists(st.sampled_from(there), max_size=3))
        return keys

    def tensor(self, keys):
        return tf.constant(keys, self.key_dtype, shape=[len(keys)])

    def draw_rows(self, data, keys):
        rows = data.draw(st.lists(ROW, min_size=len(keys), max_size=len(keys)))
        return rows, tf.constant(rows, tf.float32, shape=[len(keys), DIM])

    @rule(data=st.data())
    def upsert(self, data):
        keys = self.draw_keys(data)
        rows, values = self.draw_rows(data, keys)
        self.table.upsert(self.tensor(keys), values)
        self.model.rows.update(zip(keys, rows, strict=True))

    @rule(data=st.data())
    def lookup(self, data):
        keys = self.draw_keys(data)
        values, exists = self.table.lookup(self.tensor(keys), return_exists=True)
        has_row = [key in self.model.rows for key in keys]
        assert exists.numpy().tolist() == has_row
        assert self.table.contains(self.tensor(keys)).numpy().tolist() == has_row
        for key, row in zip(keys, values.numpy().tolist(), strict=True):
            assert tuple(row) == self.model.read(key, row)

    @rule(data=st.data())
    def find_or_insert(self, data):
        keys = self.draw_keys(data, most=4)
        values = self.table.find_or_insert(self.tensor(keys))
        for key, row in zip(keys, values.numpy().tolist(), strict=True):
            assert tuple(row) == self.model.read(key, row)
            self.model.rows[key] = tuple(row)

    @rule(data=st.data())
    def accum(self, data):
        keys = self.draw_keys(data)
        old, old_values = self.draw_rows(data, keys)
        new, new_values = self.draw_rows(data, keys)
        # Use only keys whose rows are multiples of a quarter. Sums of other rows depend on the
        # order of the additions.
        exact = np.array([not self.is_random(key) for key in keys], bool)
        self.table.accum(
            self.tensor([key for key, kept in zip(keys, exact, strict=True) if kept]),
            tf.boolean_mask(old_values, exact),
            tf.boolean_mask(new_values, exact),
        )
        for key, before, after, kept in zip(keys, old, new, exact, strict=True):
            if not kept:
                continue
            if key in self.model.rows:
                row = self.model.rows[key]
                after = tuple(r + a - b for r, a, b in zip(row, after, before, strict=True))
            self.model.rows[key] = after

    def is_random(self, key):
        return any(4 * element % 1 for element in self.model.rows.get(key, ()))

    @rule(data=st.data())
    def remove(self, data):
        keys = self.draw_keys(data)
        self.table.remove(self.tensor(keys))
        for key in keys:
            self.model.rows.pop(key, None)

    @rule()
    def clear(self):
        self.table.clear()
        self.model.rows.clear()

    @rule(rows=st.sampled_from([0, 1, 20000]))
    def reserve(self, rows):
        self.table.reserve(rows)

    @rule()
    def shrink_to_fit(self):
        self.table.shrink_to_fit()

    @precondition(lambda self: len(self.saved) < 3)
    @rule()
    def save(self):
        path = str(Path(self.folder.name) / str(len(self.saved)))
        tf.train.Checkpoint(table=self.table).write(path)
        self.saved.append((path, copy.deepcopy(self.model)))

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def restore(self, data):
        """Restores in place: later writes are lost."""
        path, model = data.draw(st.sampled_from(self.saved))
        tf.train.Checkpoint(table=self.table).read(path).assert_consumed()
        self.model = copy.deepcopy(model)

    @precondition(lambda self: self.saved)
    @rule(data=st.data(), shards=SHARDS, initializer=INITIALIZERS)
    def restore_into_another(self, data, shards, initializer):
        """Restores into another number of shards; initial rows stay the same."""
        self.table = self.variable(shards, initializer)
        self.restore(data)

    @invariant()
    def holds_the_rows_of_the_model(self):
        keys, values = self.table.export()
        assert int(self.table.size()) == len(keys) == len(self.model.rows)
        exported = zip(keys.numpy().tolist(), map(tuple, values.numpy().tolist()), strict=True)
        assert dict(exported) == self.model.rows
        assert self.table.stats()["rows"] == len(keys)


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("tiered", "examples"),
    [
        pytest.param(False, 8, id="in memory"),
        pytest.param(True, 4, id="tiered"),
        pytest.param(False, 40, id="in memory, long", marks=pytest.mark.slow),
        pytest.param(True, 15, id="tiered, long", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("key_dtype", [tf.int64, tf.int32, tf.string], ids=lambda d: d.name)
def test_a_variable_is_a_dict_through_any_sequence_of_verbs(key_dtype, tiered, examples):
    own = {"key_dtype": key_dtype, "keys": keys_of(key_dtype), "tiered": tiered}
    machine = type("Machine", (VariableMachine,), own)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
