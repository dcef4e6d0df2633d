"""SavedModels of the real tfra answer as they did there; bad input to the ops is an error."""

import shutil
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from de_core.base import environment
from de_core.tfra.ops import load_ops
from tests.server.support.gateway_process import GatewayProcess
from tests.support.commands import run
from tests.tfra import exported
from tests.tfra.wheel import run_wheel


@pytest.fixture(scope="module")
def ops():
    return load_ops()


def table(ops, key_dtype=tf.int64, value_dtype=tf.float32, shape=(2,), **attributes):
    return ops.tfra_cuckoo_hash_table_of_tensors(
        key_dtype=key_dtype, value_dtype=value_dtype, value_shape=shape, **attributes
    )


def ids(*keys):
    return tf.constant(keys, tf.int64)


def contents(ops, handle):
    keys, rows = ops.tfra_cuckoo_hash_table_export(handle, tf.int64, tf.float32)
    return dict(zip(keys.numpy().tolist(), rows.numpy().tolist(), strict=True))


@pytest.mark.usefixtures("ops")
@pytest.mark.parametrize("name", exported.NAMES)
def test_a_session_answers_as_tfra_did(name):
    path = exported.saved_model(name)
    expected = exported.answers(path)
    found = exported.in_session(path, expected)
    exported.check_answers(found, expected)
    exported.check_tables(found, expected)


@pytest.mark.slow
def test_the_wheel_makes_the_same_models_anew(tmp_path, ops):
    del ops
    run_wheel(exported.FOLDER / "make.py", tmp_path)
    for name in exported.NAMES:
        kept = exported.answers(exported.saved_model(name))
        made = exported.answers(tmp_path / name)
        assert made.keys() == kept.keys()
        assert made["signatures"].keys() == kept["signatures"].keys()
        found = exported.in_session(tmp_path / name, made)
        exported.check_answers(found, made)
        exported.check_tables(found, made)


@pytest.mark.usefixtures("ops")
@pytest.mark.parametrize("name", exported.NAMES)
def test_a_loaded_model_answers_as_tfra_did(name):
    path = exported.saved_model(name)
    expected = exported.answers(path)
    exported.check_answers(exported.called(path, expected), expected)


@pytest.mark.usefixtures("ops")
def test_two_models_of_one_program_do_not_share_rows(tmp_path):
    """Their tables have equal names, because tfra numbers tables per process."""
    path = exported.saved_model("module")
    shutil.copytree(path, tmp_path / "copy")
    first, second = (tf.saved_model.load(str(each)) for each in (path, tmp_path / "copy"))
    rows = first.signatures["serving_default"](ids=ids(3))["embeddings"]
    parts = tf.train.TrackableView(second).descendants()
    handles = [each.resource_handle for each in parts if hasattr(each, "resource_handle")]
    emptied = 0
    for handle in handles:
        try:
            load_ops().tfra_cuckoo_hash_table_clear(handle, tf.int64, tf.float32)
            emptied += 1
        except tf.errors.InvalidArgumentError:
            continue  # the vocabulary
    assert emptied == 2
    again = first.signatures["serving_default"](ids=ids(3))["embeddings"]
    np.testing.assert_array_equal(rows, again)
    gone = second.signatures["serving_default"](ids=ids(3))["embeddings"]
    np.testing.assert_array_equal(gone, [[-1.0] * 3])


@pytest.mark.slow
def test_the_gateway_serves_them_as_they_are(tmp_path):
    names = ("keras_save", "module_of_strings", "simple_save")
    for name in names:
        shutil.copytree(exported.saved_model(name), tmp_path / "models" / name / "1")
    with GatewayProcess(tmp_path / "models", tmp_path / "log") as gateway:
        gateway.wait_ready()
        for name in names:
            expected = exported.answers(exported.saved_model(name))
            found = {}
            for signature, asked in expected["signatures"].items():
                body = {"signature_name": signature, "inputs": asked["inputs"]}
                reply = gateway.ask("POST", f"/v1/models/{name}:predict", body)
                assert reply.status == 200, reply.body
                outputs = reply.json()["outputs"]
                single = len(asked["outputs"]) == 1
                found[signature] = dict.fromkeys(asked["outputs"], outputs) if single else outputs
            exported.check_answers({"signatures": found}, expected)


def test_the_gateway_refuses_rows_in_files():
    from server.engines.embedded.saved_model import LoadError, SavedModel

    with pytest.raises(LoadError, match=r"FileSystemSaver.*de-core import-tfra"):
        SavedModel(exported.saved_model("simple_save_files"))


def test_the_ops_load_on_demand_and_never_beside_the_real_library(run_python, tmp_path):
    other = shutil.copy(environment.tfra_library_path(), tmp_path / "as_if_it_were_tfras.so")
    code = f"""
        import tensorflow as tf
        from de_core.tfra.ops import _is_registered, load_ops
        print("registered:", _is_registered())
        tf.load_op_library({str(other)!r})
        try:
            load_ops()
        except ImportError as error:
            print(error)
    """
    said = run_python(code)
    assert said.startswith("registered: False")
    assert "must not be registered yet. Received: 'TFRA>CuckooHashTableSize'" in said


def test_a_missing_library_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "tfra_library_path", lambda: str(tmp_path / "gone.so"))
    monkeypatch.setattr("de_core.tfra.ops._is_registered", lambda: False)
    with pytest.raises(ImportError, match=r"Received: no file .*gone\.so"):
        load_ops.__wrapped__()


@pytest.mark.slow
def test_without_the_table_ops_the_error_names_their_library():
    code = f"""
        import tensorflow as tf
        ops = tf.load_op_library({environment.tfra_library_path()!r})
        make = ops.tfra_cuckoo_hash_table_of_tensors
        try:
            make(key_dtype=tf.int64, value_dtype=tf.float32, value_shape=[2])
        except tf.errors.FailedPreconditionError as error:
            print(error)
    """
    done = run(sys.executable, "-c", textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    assert "_de_ops.so must be loaded before" in done.stdout, done.stderr


def test_missing_keys_read_as_their_default_rows(ops):
    handle = table(ops)
    ops.tfra_cuckoo_hash_table_insert(handle, ids(1, 2, 1), [[1.0, 1], [2, 2], [3, 3]])

    def find(keys, defaults):
        return ops.tfra_cuckoo_hash_table_find(handle, keys, defaults).numpy().tolist()

    # The real wheel gave these answers.
    assert find(ids(1, 9), [7.0, 8.0]) == [[3.0, 3.0], [7.0, 8.0]]
    assert find(ids(9, 1, 8), [[7.0, 8], [1, 1], [5, 6]]) == [[7.0, 8.0], [3.0, 3.0], [5.0, 6.0]]
    assert find(ids(9, 1, 8), [[7.0, 8], [5, 6]]) == [[7.0, 8.0], [3.0, 3.0], [7.0, 8.0]]
    assert find(ids(9, 1), [[7.0, 8], [5, 6], [4, 4]]) == [[7.0, 8.0], [3.0, 3.0]]
    matrix = tf.constant([[1, 9], [8, 2]], tf.int64)
    cube = [[[3.0, 3.0], [2.0, 3.0]], [[4.0, 5.0], [2.0, 2.0]]]
    assert find(matrix, tf.reshape(tf.range(8.0), [2, 2, 2])) == cube
    assert find(matrix, tf.reshape(tf.range(8.0), [4, 2])) == cube
    assert find(ids(), [1.0, 2.0]) == []
    rows, exists = ops.tfra_cuckoo_hash_table_find_with_exists(handle, ids(1, 9), [7.0, 8.0])
    assert (rows.numpy().tolist(), exists.numpy().tolist()) == ([[3, 3], [7, 8]], [True, False])


def test_string_rows_have_defaults_too(ops):
    handle = table(ops, value_dtype=tf.string)
    ops.tfra_cuckoo_hash_table_insert(handle, ids(1), [["a", "b"]])
    found = ops.tfra_cuckoo_hash_table_find(handle, ids(1, 2), [["?", "!"], ["x" * 40, ""]])
    assert found.numpy().tolist() == [[b"a", b"b"], [b"x" * 40, b""]]


def test_rows_are_imported_removed_and_cleared_as_in_tfra(ops):
    handle = table(ops)
    ops.tfra_cuckoo_hash_table_insert(handle, ids(1, 2), [[1.0, 1], [2, 2]])
    ops.tfra_cuckoo_hash_table_import(handle, ids(3, 4, 3), [[3.0, 3], [4, 4], [5, 5]])
    assert contents(ops, handle) == {3: [5, 5], 4: [4, 4]}
    assert ops.tfra_cuckoo_hash_table_size(handle).numpy() == 2
    ops.tfra_cuckoo_hash_table_remove(handle, ids(3, 7))
    assert contents(ops, handle) == {4: [4, 4]}
    ops.tfra_cuckoo_hash_table_clear(handle, tf.int64, tf.float32)
    assert contents(ops, handle) == {}


def test_data_flow_ops_do_as_in_tfra(ops):
    parts = ops.tfra_dynamic_partition(ids(1, 2, 3), [0, 1, 0], 2)
    assert [each.numpy().tolist() for each in parts] == [[1, 3], [2]]
    for stitch in (ops.tfra_dynamic_stitch, ops.tfra_dynamic_stitch_fast):
        found = stitch([[0, 2], [1]], [[[1.0], [2]], [[3.0]]])
        assert found.numpy().tolist() == [[1.0], [3.0], [2.0]]
        with pytest.raises(tf.errors.InvalidArgumentError, match="out of range"):
            stitch([[0, -3], [0]], [[[1.0], [2]], [[3.0]]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
        ops.tfra_dynamic_partition(ids(1, 2, 3), [0, 1, 5], 2)


@pytest.mark.parametrize(
    ("defaults", "said"),
    [
        (7.0, "rows must be 2 values"),
        ([7.0], "rows must be 2 values"),
        ([7.0, 1, 2], "rows must be 2 values"),
        (tf.zeros([0]), "rows must be 2 values"),
        (tf.zeros([0, 2]), "at least one row"),
        (tf.zeros([2], tf.float64), "rows must be 2 values of float32"),
    ],
)
def test_bad_defaults_are_an_error(ops, defaults, said):
    """The real wheel reads past the end of some of them, and crashes."""
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        ops.tfra_cuckoo_hash_table_find(table(ops), ids(1, 2), defaults)


def test_bad_input_is_an_error(ops):
    handle, invalid = table(ops), tf.errors.InvalidArgumentError
    with pytest.raises(invalid, match="key type"):
        ops.tfra_cuckoo_hash_table_find(handle, tf.constant([1]), [1.0, 2.0])
    for rows in ([[1.0, 1]], [[1.0, 1, 1], [1, 1, 1]], [1.0, 1], [[1.0], [2]]):
        with pytest.raises(invalid, match="values must have the shape"):
            ops.tfra_cuckoo_hash_table_insert(handle, ids(1, 2), rows)
        with pytest.raises(invalid, match="values must have the shape"):
            ops.tfra_cuckoo_hash_table_import(handle, ids(1, 2), rows)
    with pytest.raises(invalid, match="Tvalues must be the dtype"):
        ops.tfra_cuckoo_hash_table_export(handle, tf.int64, tf.float64)
    for shape in ((), (2, 3), (0,)):
        with pytest.raises(invalid, match="value_shape must be"):
            table(ops, shape=shape)
    with pytest.raises(invalid, match="uint64"):
        table(ops, key_dtype=tf.uint64)
    with pytest.raises(invalid, match="complex64"):
        table(ops, value_dtype=tf.complex64)
    named = {"shared_name": "one", "use_node_name_sharing": True}
    table(ops, **named)
    with pytest.raises(invalid, match="rows must be 2 values"):
        table(ops, shape=[3], **named)
    with pytest.raises((invalid, tf.errors.NotFoundError)):
        ops.tfra_cuckoo_hash_table_size(tf.Variable(1.0).handle)


def test_a_damaged_model_is_an_error(ops, tmp_path):
    del ops
    path = shutil.copytree(exported.saved_model("module"), tmp_path / "model")
    data = next(path.glob("variables/*.data*"))
    data.write_bytes(data.read_bytes()[:-40])
    with pytest.raises(tf.errors.OpError):
        exported.in_session(path, exported.answers(path))
