"""Tests `de.export`'s options for a table's rows: stored dtype, kept rows, and the report."""

import json
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

import de_core as de
from server.engines.embedded.warm_up import read_records
from tests.support.models import looker, served, stats

IDS = np.arange(100)
ROWS = np.random.default_rng(0).normal(size=[100, 8]).astype(np.float32)
UNKNOWN = tf.constant([10**9], tf.int64)


PAIR = [tf.TensorSpec([None], tf.int64, name=name) for name in ("user", "item")]


class Scores(tf.Module):
    """A model that scores a user and an item."""

    def __init__(self, **options):
        super().__init__()
        self.users = de.Variable(dim=8, name="users", initializer="normal", **options)
        self.items = de.Variable(dim=8, name="items", initializer="normal")
        for table in (self.users, self.items):
            table.upsert(IDS, ROWS)

    @tf.function(input_signature=PAIR)
    def __call__(self, user, item):
        return {"score": tf.reduce_sum(self.users.lookup(user) * self.items.lookup(item), -1)}


def find(path, ids, table="users"):
    loaded = tf.saved_model.load(path)
    dtype = loaded.signatures[f"de_lookup/{table}"].structured_input_signature[1]["ids"].dtype
    found = loaded.signatures[f"de_lookup/{table}"](ids=tf.constant(ids, dtype))
    return found["embeddings"].numpy(), found["found"].numpy()


@pytest.mark.parametrize(("dtype", "off"), [("float16", 2e-3), ("bfloat16", 2e-2), ("int8", 2e-2)])
def test_values_are_stored_smaller_and_the_error_is_said(dtype, off, tmp_path):
    module = Scores()
    full = de.export(module, tmp_path)
    small = de.export(module, tmp_path, dtype={"users": dtype})
    values, found = find(small, IDS)
    assert found.all()
    report = small.report["tables"]["users"]
    errors = np.abs(values - ROWS)
    np.testing.assert_allclose(report["max_error"], errors.max(), rtol=1e-5)
    np.testing.assert_allclose(report["mean_error"], errors.mean(), rtol=1e-4)
    assert 0 < report["max_error"] < off
    assert report["bytes"] < full.report["tables"]["users"]["bytes"]
    assert "max_error" not in small.report["tables"]["items"]
    np.testing.assert_array_equal(find(small, IDS, "items")[0], ROWS)
    assert stats(small)["users"]["stored_as"] == dtype
    assert stats(small)["users"]["value_dtype"] == "float32"


def test_the_error_of_no_rows_and_of_one_too_large(tmp_path):
    module = Scores()
    module.users.clear()
    for row, error in ((None, 0.0), (np.full([1, 8], 1e30, np.float32), np.inf)):
        if row is not None:
            module.users.upsert([1], row)
        path = de.export(module, tmp_path, dtype="float16")
        report = path.report["tables"]["users"]
        assert (report["max_error"], report["mean_error"]) == (error, error)
        text = (Path(path) / "assets.extra/de_report.json").read_text("utf-8")
        kept = json.loads(text, parse_constant=pytest.fail)["tables"]["users"]
        assert (float(kept["max_error"]), float(kept["mean_error"])) == (error, error)


def test_the_export_error_of_the_scores_of_a_sample_is_said(tmp_path):
    module = Scores()
    sample = {"user": IDS[:50], "item": IDS[50:]}
    report = de.export(module, tmp_path, dtype="int8", sample=sample).report
    got = served(de.export(module, tmp_path, dtype="int8"), **sample)
    expected = module(**{name: tf.constant(ids) for name, ids in sample.items()})["score"]
    off = np.abs(got.astype(float) - expected.numpy())
    assert off.max() > 0
    np.testing.assert_allclose(report["scores"]["score"]["max"], off.max())
    np.testing.assert_allclose(report["scores"]["score"]["mean"], off.mean())
    exact = de.export(module, tmp_path, sample=[sample, sample]).report
    assert exact["scores"]["score"] == {"max": 0, "mean": 0}


@pytest.mark.parametrize(
    ("oov", "reads", "said"),
    [
        ("zeros", np.zeros(8), {"oov": "zeros"}),
        (0.1, np.full(8, 0.1), {"oov": "constant", "oov_value": 0.1}),
        (np.arange(8), np.arange(8), {"oov": "row", "oov_value": list(range(8))}),
        ("initial", None, {"oov": "initial"}),
    ],
)
def test_unknown_ids_read_as_oov_says(oov, reads, said, tmp_path):
    module = Scores()
    path = de.export(module, tmp_path, oov={"users": oov}, dtype="int8")
    reads = module.users.lookup(UNKNOWN)[0] if reads is None else reads
    values, found = find(path, [10**9, 5])
    np.testing.assert_array_equal(values[0], np.asarray(reads, np.float32))
    assert found.tolist() == [False, True]
    np.testing.assert_array_equal(find(path, [10**9], "items")[0], module.items.lookup(UNKNOWN))
    assert said.items() <= stats(path)["users"].items()
    assert stats(path)["items"]["oov"] == "initial"


def test_unknown_ids_can_be_an_error(tmp_path):
    path = de.export(Scores(), tmp_path, oov="error")
    with pytest.raises(tf.errors.NotFoundError, match="key=77777, table=users") as missed:
        find(path, [1, 77777])
    assert str(tmp_path) not in str(missed.value)  # clients see this message
    with pytest.raises(tf.errors.NotFoundError, match="key=77777"):
        served(path, user=[1], item=[77777])
    assert find(path, [1])[1].all()
    assert stats(path)["users"]["oov"] == "error"
    ids = 10**6 + np.arange(16384)  # enough ids for several threads; no id has a row
    for first in (0, 5000, 12000):
        ids[:first] = 1
        with pytest.raises(tf.errors.NotFoundError, match=f"key={10**6 + first}, table=users"):
            find(path, ids)


def test_strings_have_a_constant_too(tmp_path):
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.names = de.Variable(tf.string, tf.string, dim=1, name="names")
            self.names.upsert(["a"], [["Anna"]])

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="id")])
        def __call__(self, id):
            return self.names.lookup(id)

    for wrong in (0.0, [1.0], None):
        with pytest.raises(TypeError, match="`oov` must fit the table's values, string"):
            de.export(Module(), tmp_path, oov=wrong)
    path = de.export(Module(), tmp_path, oov=b"nobody")
    values, _ = find(path, ["a", "b"], "names")
    assert values.tolist() == [[b"Anna"], [b"nobody"]]
    assert stats(path)["names"]["oov_value"] == "nobody"


def test_rows_are_kept_by_frequency_last_use_score_and_predicate(tmp_path):
    def kept(table, **bounds):
        module = looker(table)
        path = de.export(module, tmp_path, module.look, keep=de.KeepRows(**bounds))
        found = find(path, IDS, table.name)[1]
        assert stats(path)[table.name]["rows"] == found.sum()
        assert path.report["tables"][table.name]["rows"] == found.sum()
        return set(IDS[found].tolist())

    often = de.Variable(dim=8, name="often", restrict_policy=de.FrequencyRestrictPolicy)
    often.upsert(IDS, ROWS)
    often.upsert(IDS[:7], ROWS[:7])
    assert kept(often, min_uses=2) == kept(often, min_uses=np.int64(2)) == set(range(7))
    assert kept(often, min_uses=2, where=lambda keys: keys % 2 == 0) == {0, 2, 4, 6}
    recent = de.Variable(dim=8, name="recent", eviction=de.EvictionLRU(max_rows=1000))
    recent.upsert(IDS, ROWS)
    assert kept(recent, max_age_seconds=600) == set(IDS.tolist())
    assert kept(recent, max_age_seconds=-600) == set()
    scored = de.Variable(dim=8, name="scored", eviction=de.EvictionScore(max_rows=1000))
    scored.upsert(IDS, ROWS)
    scored.assign_scores(IDS, IDS)
    assert kept(scored, min_score=90) == set(range(90, 100))
    plain = de.Variable(dim=8, name="plain")
    plain.upsert(IDS, ROWS)
    assert kept(plain, where=lambda keys: keys < 3) == {0, 1, 2}
    with pytest.raises(ValueError, match="keep the column 'uses'"):
        kept(plain, min_uses=2)


def test_last_use_has_microsecond_resolution(tmp_path, monkeypatch):
    table = de.Variable(dim=8, name="recent", restrict_policy=de.TimestampRestrictPolicy)
    table.upsert(IDS, ROWS)
    between = time.time()
    table.upsert(IDS[:5], ROWS[:5])
    monkeypatch.setattr("de_core.exports.served_rows.time.time", lambda: between)
    module = looker(table)
    path = de.export(module, tmp_path, module.look, keep=de.KeepRows(max_age_seconds=0))
    assert path.report["tables"]["recent"]["rows"] == 5


def test_warm_up_requests_are_those_of_the_sample(tmp_path):
    samples = [{"user": IDS[:3], "item": IDS[:3]}, {"user": [2**62], "item": [-1]}]
    path = Path(de.export(Scores(), tmp_path / "ranker", sample=samples))
    records = read_records(path / "assets.extra/tf_serving_warmup_requests")
    assert len(records) == len(list(tf.data.TFRecordDataset(str(next(path.glob("assets.e*/tf*"))))))
    for record, sample in zip(records, samples, strict=True):
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        assert request.model_spec.name == "ranker"
        assert request.model_spec.signature_name == "serving_default"
        assert set(request.inputs) == {"user", "item"}
        for name, ids in sample.items():
            assert tf.make_ndarray(request.inputs[name]).tolist() == list(ids)


# A served graph may contain no op with one of these words in its name, except to restore weights.
FORBIDDEN = ("Random", "Apply", "Assign", "Insert", "Scatter", "Optimizer", "Dropout", "Erase")


@pytest.mark.parametrize("entry_point", ["export", "publish"])
def test_the_graph_holds_nothing_of_training(entry_point, ratings, tmp_path):
    users, items, pleases = ratings
    inputs = {name: keras.Input([], dtype="int64", name=name) for name in ("user", "item")}
    rows = [de.layers.Embedding(4, name=f"{name}s")(each) for name, each in inputs.items()]
    hidden = keras.layers.Dropout(0.5)(keras.layers.Concatenate()(rows))
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.05)), "mse")
    model.fit({"user": users, "item": items}, pleases, epochs=1, verbose=0)
    path = Path(getattr(de, entry_point)(model, tmp_path))
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    (graph,) = (each.graph_def for each in saved.meta_graphs)
    restoring = "__inference__traced_restore"
    ops = {node.op for node in graph.node}
    for function in graph.library.function:
        if restoring not in function.signature.name:
            ops |= {node.op for node in function.node_def}
    assert {"DeTableFind", "DeFrozenTable"} <= ops
    assert "DeTable" not in ops
    # Weights are assigned once, by the ops that restore them.
    assert {op for op in ops if any(word in op for word in FORBIDDEN)} <= {"AssignVariableOp"}
    names = [name for name, _ in tf.train.list_variables(str(path / "variables/variables"))]
    assert not any("optimizer" in name or "adam" in name for name in names)
    assert b"adam" not in b"".join(file.read_bytes() for file in (path / "assets").iterdir())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dtype": "float64"}, ValueError, "`dtype` must be one of"),
        ({"dtype": "int4"}, ValueError, "`dtype` must be one of"),
        ({"dtype": {"users": "int8", "nobody": "int8"}}, ValueError, r"Received: \['nobody'\]"),
        ({"oov": "error!"}, ValueError, "`oov` must be one of"),
        ({"oov": None}, TypeError, "`oov` must fit"),
        ({"oov": b"x"}, TypeError, "`oov` must fit"),
        ({"oov": [1.0, 2.0]}, ValueError, r"shape \(8,\). Received: shape=\(2,\)"),
        ({"oov": 1e39}, ValueError, "numbers that float32 can hold"),
        ({"oov": [1e39] * 8}, ValueError, "numbers that float32 can hold"),
        ({"keep": 5}, TypeError, "must be a de.KeepRows"),
        ({"sample": {"user": [1]}}, ValueError, "must have the signature's inputs"),
        ({"sample": []}, ValueError, "1 to 1000 requests"),
        ({"sample": [3]}, TypeError, "a dict of inputs"),
    ],
)
def test_bad_arguments_write_nothing(arguments, error, message, tmp_path):
    with pytest.raises(error, match=message):
        de.export(Scores(), tmp_path / "new", **arguments)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("dtype", "refused", "taken"),
    [
        (tf.int32, [1.5, 2**40, [1.5, 2], [1, 2**31]], [-7, [3, 4]]),
        (tf.int64, [2**63, 0.5, np.full(2, 2**63)], [2**53, 2**53 + 1, [2**53 + 1, -1]]),
        (tf.int8, [128], [-128]),
        (tf.bool, [2, [0, 3]], [True, [0, 1]]),
        (tf.float16, [1e6, [0, -1e6], np.inf], [0.1, [0, 5]]),
        (tf.bfloat16, [1e39, np.nan, [1, -np.inf]], [1e38]),
    ],
)
def test_unknown_ids_read_as_what_the_values_can_be(dtype, refused, taken, tmp_path):
    module = looker(de.Variable(value_dtype=dtype, dim=2, name="users"))
    for oov in refused:
        with pytest.raises(ValueError, match=f"numbers that {dtype.name} can hold"):
            de.export(module, tmp_path, module.look, oov=oov)
    for oov in taken:
        path = de.export(module, tmp_path, module.look, oov=oov)
        expected = np.broadcast_to(np.asarray(oov), [1, 2]).astype(dtype.as_numpy_dtype)
        np.testing.assert_array_equal(find(path, [1])[0], expected)


def test_names_of_signatures_and_tables(tmp_path):
    long = "t" * 300
    tables = [de.Variable(dim=1, name=f"{long}{end}") for end in "ab"]
    for number, table in enumerate(tables):
        table.upsert([1], [[float(number)]])
    modules = [looker(table) for table in tables]
    for name in ("de_stats", f"de_lookup/{long}a"):
        with pytest.raises(ValueError, match="names that an export adds"):
            de.export(modules[0], tmp_path, {name: modules[0].look})
    signatures = {"a": modules[0].look, "b": modules[1].look}
    path = de.export(modules[0], tmp_path, signatures, sample={"ids": [1]})
    for number, table in enumerate(tables):
        assert find(path, [1], table.name)[0] == [[number]]
        table.save_to_file_system(str(tmp_path / "files"))
    for number, table in enumerate(tables):
        table.load_from_file_system(str(tmp_path / "files"))
        assert table.lookup([1]) == [[number]]


@pytest.mark.parametrize(
    ("bounds", "error"),
    [({}, ValueError), ({"min_uses": "2"}, TypeError), ({"min_score": np.nan}, ValueError),
     ({"where": 3}, TypeError)],
)  # fmt: skip
def test_bad_bounds(bounds, error):
    with pytest.raises(error, match="Received"):
        de.KeepRows(**bounds)
