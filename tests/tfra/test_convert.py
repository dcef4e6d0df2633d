"""A converted SavedModel of the real tfra answers as it did there, from mapped tables."""

import importlib
import json
import pathlib
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from de_core.tfra import convert_saved_model
from de_core.tfra.graph import all_nodes
from de_core.tfra.ops import load_ops
from de_core_cli.main import main
from tests.tfra import exported

v1 = tf.compat.v1


def message_of(path):
    message = importlib.import_module("tensorflow.core.protobuf.saved_model_pb2").SavedModel()
    message.ParseFromString((pathlib.Path(path) / "saved_model.pb").read_bytes())
    return message


def ops_of(path):
    return {node.op for node in all_nodes(message_of(path).meta_graphs[0].graph_def)}


def rows_of(expected):
    """Returns tfra's rows by table, shards joined."""
    tables = {}
    for name, rows in expected["tables"].items():
        stem = name.rpartition("/")[2].partition("_mht_")[0]
        tables.setdefault(stem, {}).update({key: row for key, row in rows})
    return tables


@pytest.mark.each_choice
@pytest.mark.parametrize("name", exported.NAMES)
def test_a_converted_model_answers_as_tfra_did(tmp_path, name):
    path = exported.saved_model(name)
    expected = exported.answers(path)
    made = convert_saved_model(path, tmp_path / "model")
    assert made == str(tmp_path / "model" / "1")
    exported.check_answers(exported.in_session(made, expected), expected)
    assert [op for op in ops_of(made) if op.startswith("TFRA>")] == []
    loaded = tf.saved_model.load(made)
    tables = rows_of(expected)
    for table, report in made.report["tables"].items():
        assert report["rows"] == len(tables[table])
        lookup = loaded.signatures[f"de_lookup/{table}"]
        dtype = lookup.structured_input_signature[1]["ids"].dtype
        found = lookup(ids=tf.constant(list(tables[table]), dtype))
        assert found["found"].numpy().all()
        assert found["embeddings"].numpy().tolist() == list(tables[table].values())


def changed(source, target, name, value):
    """Copies a SavedModel and changes the first element of one of its tensors."""
    shutil.copytree(source, target)
    reader = tf.train.load_checkpoint(str(source / "variables" / "variables"))
    names = sorted(reader.get_variable_to_shape_map())
    values = {each: np.array(reader.get_tensor(each)) for each in names}
    values[name].flat[0] = value
    shutil.rmtree(target / "variables")
    tf.raw_ops.SaveV2(
        prefix=str(target / "variables" / "variables"),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(values[each]) for each in names],
    )
    return target


def test_converted_models_are_published_as_deltas(tmp_path, capsys):
    path = exported.saved_model("simple_save")
    later = changed(path, tmp_path / "later", "items/items_mht_1of3-values", 7.0)
    for number, source in enumerate((path, later), 1):
        new, root = str(tmp_path / "new"), str(tmp_path / "published")
        assert main(["convert", str(source), new, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["version"] == f"{new}/{number}"
        assert said["tables"]["items"]["rows"] == 20
        assert main(["publish", "add", f"{new}/{number}", root, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
    assert report["kind"] == "delta"
    assert report["tables"]["items"]["rows"] == 1
    expected = exported.answers(path)
    found = exported.in_session(tmp_path / "published" / "2", expected)
    rows = found["signatures"]["serving_default"]["embeddings"]
    wanted = np.array(expected["signatures"]["serving_default"]["outputs"]["embeddings"])
    assert (rows != wanted.astype(np.float32)).sum() <= 2
    assert main(["convert", str(path), str(tmp_path / "new"), "--version", "9"]) == 0
    assert "items" in capsys.readouterr().out


@pytest.mark.parametrize("as_it_is", [True, False])
def test_runs_at_once_do_not_read_each_others_ids(tmp_path, as_it_is):
    """tfra's lookups write ids to variables; a server runs several requests at once."""
    from server.engines.embedded.saved_model import SavedModel

    path = exported.saved_model("keras_save")
    if not as_it_is:
        path = pathlib.Path(convert_saved_model(path, tmp_path))
    model = SavedModel(path)
    try:
        ids = np.arange(60_000).reshape(-1, 1)
        requests = [
            {name: ids * step % last for name in ("user", "movie")}
            for step, last in ((1, 40_000), (7, 50_001), (3, 19), (11, 60_001))
        ]
        alone = [model.run("serving_default", each)["score"] for each in requests]

        def ask(number):
            for _ in range(15):
                score = model.run("serving_default", requests[number])["score"]
                np.testing.assert_array_equal(score, alone[number])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(ask, range(4)))
    finally:
        model.close()


def exporting(path, make):
    """Exports a graph with tfra's ops. `make(table, ids)` returns the output."""
    with tf.Graph().as_default(), v1.Session() as session:
        ids = v1.placeholder(tf.int64, [None])
        table = load_ops().tfra_cuckoo_hash_table_of_tensors(
            key_dtype=tf.int64, value_dtype=tf.float32, value_shape=[2], name="users_mht_1of1"
        )
        output = make(table, ids)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(path), {"ids": ids}, {"rows": output})
    return path


def test_ref_variables_and_outputs_that_are_inputs_are_converted(tmp_path):
    def make(table, ids):
        weight = v1.get_variable("w", initializer=[[2.0, 3.0]], use_resource=False)
        rows = load_ops().tfra_cuckoo_hash_table_find(table, ids, [1.0, 2.0])
        size = load_ops().tfra_cuckoo_hash_table_size(table)
        return rows * weight + tf.cast(size, tf.float32)

    made = convert_saved_model(exporting(tmp_path / "a", make), tmp_path / "made")
    function = tf.saved_model.load(made).signatures["serving_default"]
    assert function(ids=tf.constant([1], tf.int64))["rows"].numpy().tolist() == [[2.0, 6.0]]
    again = exporting(tmp_path / "b", lambda _, ids: ids)
    with pytest.raises(ValueError, match="must use a dynamic table"):
        convert_saved_model(again, tmp_path / "other")


def test_tables_of_one_last_name_are_converted(tmp_path):
    ops = load_ops()
    with tf.Graph().as_default(), v1.Session() as session:
        ids = v1.placeholder(tf.int64, [None])
        tables = [
            ops.tfra_cuckoo_hash_table_of_tensors(
                key_dtype=tf.int64, value_dtype=tf.float32, value_shape=[2], name=f"{scope}/users"
            )
            for scope in ("a", "b")
        ]
        fill = [
            ops.tfra_cuckoo_hash_table_insert(table, tf.constant([7], tf.int64), [[number, 0.0]])
            for number, table in zip((1.0, 2.0), tables, strict=True)
        ]
        rows = [ops.tfra_cuckoo_hash_table_find(each, ids, [0.0, 0.0]) for each in tables]
        v1.saved_model.simple_save(
            session, str(tmp_path / "a"), {"ids": ids}, {"rows": tf.concat(rows, 1)}, tf.group(fill)
        )
    made = convert_saved_model(tmp_path / "a", tmp_path / "made")
    function = tf.saved_model.load(made).signatures["serving_default"]
    assert function(ids=tf.constant([7], tf.int64))["rows"].numpy().tolist() == [
        [1.0, 0.0, 2.0, 0.0]
    ]


def inserting(table, ids):
    rows = tf.ones([tf.size(ids), 2])
    insert = load_ops().tfra_cuckoo_hash_table_insert(table, ids, rows)
    with tf.control_dependencies([insert]):
        return tf.identity(rows)


def assigning(table, ids):
    count = v1.get_variable("n", initializer=0, use_resource=True)
    with tf.control_dependencies([count.assign_add(1), count.assign(tf.size(ids))]):
        return load_ops().tfra_cuckoo_hash_table_find(table, ids, tf.zeros([2]))


def mutable(table, ids):
    del table
    return tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0).lookup(ids)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (inserting, "must only read tables.*TFRA>CuckooHashTableInsert"),
        (assigning, "must not change variables.*AssignVariableOp"),
        (mutable, "static hash tables.*MutableHashTableV2"),
    ],
)
def test_a_signature_that_cannot_be_converted_is_refused_by_name(tmp_path, make, said):
    path = exporting(tmp_path / "exported", make)
    with pytest.raises(ValueError, match=f"(?s){said}"):
        convert_saved_model(path, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_unknown_ops_files_and_other_models_are_refused(tmp_path):
    path = shutil.copytree(exported.saved_model("module"), tmp_path / "gpu")
    message = message_of(path)
    for node in all_nodes(message.meta_graphs[0].graph_def):
        node.op = node.op.replace("TFRA>Cuckoo", "TFRA>Hkv")
    (path / "saved_model.pb").write_bytes(message.SerializeToString())
    with pytest.raises(
        ValueError, match="Received: TFRA>HkvHashTableExport, TFRA>HkvHashTableFind"
    ):
        convert_saved_model(path, tmp_path / "made")
    with pytest.raises(ValueError, match="Received: rows in files of tfra's FileSystemSaver"):
        convert_saved_model(exported.saved_model("simple_save_files"), tmp_path / "made")
    with pytest.raises(ValueError, match=r"Received: no file .*saved_model\.pb"):
        convert_saved_model(tmp_path / "nowhere", tmp_path / "made")
    plain = tf.Module()
    plain.call = tf.function(lambda x: x, [tf.TensorSpec([], tf.float32)])
    tf.saved_model.save(plain, str(tmp_path / "plain"), plain.call.get_concrete_function())
    with pytest.raises(ValueError, match="Received: a graph without its ops"):
        convert_saved_model(tmp_path / "plain", tmp_path / "made")
    (tmp_path / "plain" / "saved_model.pb").write_bytes(b"garbage!")
    with pytest.raises(tf.errors.DataLossError, match=r"Received: damaged file .*saved_model\.pb"):
        convert_saved_model(tmp_path / "plain", tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_sparse_input_is_refused_by_name(tmp_path):
    path = shutil.copytree(exported.saved_model("module"), tmp_path / "sparse")
    message = message_of(path)
    info = message.meta_graphs[0].signature_def["found"].inputs["ids"]
    info.coo_sparse.values_tensor_name = info.name
    (path / "saved_model.pb").write_bytes(message.SerializeToString())
    with pytest.raises(ValueError, match=r"signature 'found' must be dense.*'ids'"):
        convert_saved_model(path, tmp_path / "made")
