"""Restriction, eviction and admission: after any operations the rows match a model of dicts."""

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings

import de_core as de
from de_core.tables.sharded import TableStep
from tests.support.policy_model import TableModel, keep_best

KEYS = st.lists(st.integers(-2, 60), min_size=1, max_size=12)
VERBS = ["upsert", "find_or_insert", "train", "train", "remove", "restrict", "restart"]


class Pair:
    """A Variable, and a `TableModel` per shard. Every operation runs on both."""

    def __init__(self, tables, column, **limits):
        restrict = {"time": de.TimestampRestrictPolicy, "uses": de.FrequencyRestrictPolicy}
        eviction = []
        if limits.get("max_rows"):
            bounded = {"time": de.EvictionLRU, "uses": de.EvictionLFU, "score": de.EvictionScore}
            eviction.append(bounded[column](max_rows=limits["max_rows"] * tables))
        if limits.get("ttl_steps"):
            eviction.append(de.EvictionTTL(steps=limits["ttl_steps"]))
        count = limits.get("min_count", 1)
        self.arguments = {
            "dim": 1,
            "initializer": 0.5,
            "devices": ["/CPU:0"] * tables,
            "restrict_policy": restrict.get(column),
            "admission": de.AdmissionCount(count) if count > 1 else None,
            "eviction": eviction,
        }
        self.variable = de.Variable(**self.arguments)
        self.models = [TableModel(column, **limits) for _ in range(tables)]

    def split(self, keys):
        shards = de.default_partition_fn(tf.constant(keys, tf.int64), len(self.models)).numpy()
        return [
            [k for k, s in zip(keys, shards, strict=True) if s == i]
            for i in range(len(self.models))
        ]

    def each(self, verb, keys, *arguments):
        for model, part in zip(self.models, self.split(keys), strict=True):
            getattr(model, verb)(part, *arguments)

    def upsert(self, keys):
        values = np.arange(len(keys), dtype=np.float32)[:, None]
        self.variable.upsert(keys, values)
        last = dict(zip(keys, values[:, 0].tolist(), strict=True))
        for model, part in zip(self.models, self.split(keys), strict=True):
            model.upsert([(key, last[key]) for key in part])

    def find_or_insert(self, keys):
        read = self.variable.find_or_insert(keys).numpy()[:, 0].tolist()
        assert read == [self.model_of(key).read(key) for key in keys]
        self.each("find_or_insert", keys)

    def train(self, keys):
        gradient = tf.IndexedSlices(tf.fill([len(keys), 1], 0.25), tf.constant(keys, tf.int64))
        TableStep(gradient, self.variable._table, [1.0], "sgd", "sgd", average=False).run()
        self.each("train", keys, 0.25)

    def remove(self, keys):
        self.variable.remove(keys)
        self.each("remove", keys)

    def restrict(self, keys):
        if self.variable.restrict_policy is None:
            return
        # The Variable removes expired rows first.
        for model in self.models:
            model.expire()
        count = len(keys) + abs(keys[0])
        self.variable.restrict(count)
        keep_best(self.models, count)
        assert int(self.variable.size()) == sum(len(model.rows) for model in self.models)

    def restart(self, _):
        if len(self.models) > 1 and (self.models[0].max_rows or self.models[0].min_count > 1):
            return  # a table may read all rows before it evicts others
        saved = {}
        self.variable.save_own_variables(saved)
        self.variable = de.Variable(**self.arguments)
        self.variable.load_own_variables(saved)
        for model in self.models:  # a snapshot contains no expired rows
            model.expire()
            model.step = max(each.step for each in self.models)

    def model_of(self, key):
        return next(m for m, part in zip(self.models, self.split([key]), strict=True) if part)

    def check(self):
        keys = range(-2, 61)
        live = set().union(*(model.live_keys() for model in self.models))
        values, found = self.variable.lookup(keys, return_exists=True)
        assert {k for k, f in zip(keys, found.numpy(), strict=True) if f} == live
        read = values.numpy()[:, 0].tolist()
        assert read == [self.model_of(key).read(key) for key in keys]
        assert set(self.variable.export()[0].numpy().tolist()) == live
        if self.variable.restrict_policy is not None and live:
            column, known = self.variable.restrict_policy.status, sorted(live)
            got = column.lookup(known).numpy()[:, 0]
            want = [getattr(self.model_of(key).rows[key], column.column) for key in known]
            if column.column == "uses":
                assert got.tolist() == want
            elif len(self.models) == 1:  # compare only the order: the model has its own clock
                assert np.array_equal(
                    np.unique(got, return_inverse=True)[1], np.unique(want, return_inverse=True)[1]
                )


@pytest.mark.each_choice
@pytest.mark.parametrize("tables", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize(
    ("column", "limits"),
    [
        ("time", {}),
        ("uses", {}),
        ("time", {"max_rows": 20}),
        ("uses", {"max_rows": 8, "min_count": 2}),
        ("time", {"ttl_steps": 3}),
        ("uses", {"ttl_steps": 2, "max_rows": 20, "min_count": 3}),
    ],
)
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(script=st.lists(st.tuples(st.sampled_from(VERBS), KEYS), min_size=5, max_size=25))
def test_rows_are_those_of_the_dicts(tables, column, limits, script):
    if tables > 1 and (column == "time" or limits.get("ttl_steps")):
        # Shards read the clock separately, and each frees expired rows when it chooses. The model
        # cannot follow that.
        limits = {key: limit for key, limit in limits.items() if key == "min_count"}
        column = "uses"
    pair = Pair(tables, column, **limits)
    for verb, keys in script:
        getattr(pair, verb)(keys)
        pair.check()


@settings(max_examples=15, deadline=None)
@given(
    batches=st.lists(
        st.tuples(KEYS, st.lists(st.integers(-9, 9), min_size=12, max_size=12)),
        min_size=3,
        max_size=12,
    )
)
def test_a_full_table_evicts_its_lowest_scores(batches):
    pair = Pair(1, "score", max_rows=16)
    for keys, scores in batches:
        pair.upsert(keys)
        pairs = dict(zip(keys, scores, strict=False))
        pair.variable.assign_scores(list(pairs), list(pairs.values()))
        pair.models[0].assign_scores(pairs.items())
        pair.check()
