import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core
from de_core import tfra
from de_core.base import removed_names
from tests.support import execution_modes

de = tfra.dynamic_embedding


def test_the_mode_is_remembered_and_changes_nothing():
    table = de.Variable(dim=1, initializer=1.0)
    try:
        assert de.get_model_mode() == de.ModelMode.TRAIN == "train"
        de.enable_inference_mode()
        assert de.get_model_mode() == de.ModelMode.CURRENT_SETTING == "inference"
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(de.embedding_lookup(table, [1]))
        assert tape.gradient(loss, table.trainable_variables)[0].indices.numpy().tolist() == [1]
    finally:
        de.enable_train_mode()
    assert de.get_model_mode() == "train"


def test_former_patching_functions_do_nothing():
    def attributes():
        patched_once = (tf.train.Checkpoint, tf.compat.v1.train.Saver, tf.Module, tf.Variable)
        return [dict(vars(each)) for each in (*patched_once, keras.optimizers.Optimizer)]

    before = attributes()
    tfra.register_all()
    tfra.register_all(custom_kernels=False)
    de.patch_on_tf()
    de.patch_on_tf_save_restore()
    assert attributes() == before


def test_graph_keys_hold_the_anchors():
    with execution_modes.entered("graph"):
        users, counts = de.get_variable("users"), de.get_variable("counts", trainable=False)
        get = tf.compat.v1.get_collection
        everything = get(de.GraphKeys.DYNAMIC_EMBEDDING_VARIABLES)
        assert everything == [*users.variables, *counts.variables]
        trainable = get(de.GraphKeys.TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES)
        assert trainable == users.trainable_variables


def test_the_filter_tells_tables_from_dense_variables():
    users, dense = de.Variable(dim=2), tf.Variable(1.0)
    _, wrapper = de.embedding_lookup(users, [1], return_trainable=True)
    anchor = users.trainable_variables[0]
    others, tables = de.trainable_wrapper_filter([wrapper, dense, anchor])
    assert others == (dense,)
    assert len(tables) == 2
    assert tables[0] is wrapper
    assert tables[1] is anchor
    by_test = de.trainable_wrapper_filter(iter([1, 2, 3]), lambda number: number > 1)
    assert by_test == ((1,), (2, 3))


@pytest.mark.parametrize("name", ["fill_empty_rows", "reshape", "segment_sum"])
def test_math_is_tensorflows(name):
    assert getattr(de.math, f"sparse_{name}") is getattr(tf.compat.v1, f"sparse_{name}")


def test_data_flow_is_tensorflows():
    assert de.data_flow.dynamic_partition is tf.dynamic_partition
    joined = de.data_flow.dynamic_stitch([[0, 2], [1, 3]], [[5, 7], [6, 8]], use_fast=False)
    assert joined.numpy().tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize("lookup", ["embedding_lookup", "embedding_lookup_unique"])
def test_shadow_variables_look_up_and_train(lookup):
    users = de.Variable(dim=2, initializer=[3.0, 4.0])
    shadow = de.shadow_ops.ShadowVariable(users, name="shadow", max_norm=1.0)
    with tf.GradientTape() as tape:
        size = [2] if lookup == "embedding_lookup_unique" else []
        rows = getattr(de.shadow_ops, lookup)(shadow, [[7], [7]], *size)
        loss = tf.reduce_sum(rows)
    np.testing.assert_allclose(rows, [[[0.6, 0.8]]] * 2, rtol=1e-6)
    gradient = tape.gradient(loss, shadow)
    assert gradient.indices.numpy().tolist() == [7, 7]
    assert de.trainable_wrapper_filter([shadow])[1] == (shadow,)


def test_shadow_variables_refuse_what_they_cannot_do():
    users = de.Variable(dim=2)
    with pytest.raises(ValueError, match="`trainable` must be that of the Variable"):
        de.shadow_ops.ShadowVariable(users, trainable=False)
    with pytest.raises(ValueError, match="`embedding_size` must be the dim of the Variable, 2"):
        de.shadow_ops.embedding_lookup_unique(de.shadow_ops.ShadowVariable(users), [1], 3)


def test_layers_and_checkpoints_have_their_old_names_too():
    assert issubclass(de.keras.layers.Embedding, de_core.layers.Embedding)
    assert de.train.Checkpoint is de.train.DECheckpoint is tf.train.Checkpoint


@pytest.mark.parametrize(
    ("module", "name", "replacement"),
    [
        (de_core, "HkvHashTableCreator", "eviction policy"),
        (de_core, "RedisTable", "kv_creator"),
        (de_core, "create_slots", "get_slot_variables"),
        (de_core, "GraphKeys", r"tfra\.dynamic_embedding\.GraphKeys"),
        (de_core, "CuckooHashTableCreator", "from de_core import tfra"),
        (de_core, "register_all", r"tfra\.register_all"),
        (de_core.layers, "HvdAllToAllEmbedding", "devices"),
    ],
)
def test_a_removed_name_names_its_replacement(module, name, replacement):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}': .*{replacement}"):
        getattr(module, name)
    assert not hasattr(module, name)
    with pytest.raises(AttributeError, match=r"no attribute 'never_was'$"):
        module.never_was  # noqa: B018


def test_every_name_that_only_tfra_has_names_its_replacement():
    only_there = {*de.__all__, "register_all"} - {*dir(de_core)}
    assert {"GraphKeys", "keras", "python"} <= only_there
    for name in only_there:
        with pytest.raises(AttributeError, match=rf"no attribute '{name}': \w"):
            getattr(de_core, name)


@pytest.mark.parametrize(
    ("module", "name", "replacement"),
    [
        (de, "HkvHashTableCreator", "eviction policy"),
        (de, "CuckooHashTable", "de.Variable"),
        (de.keras.layers, "LayerNormalization", "keras.layers.LayerNormalization"),
        (de.keras.layers, "HvdAllToAllEmbedding", "devices"),
        (de.keras.callbacks, "DEHvdModelCheckpoint", "ModelCheckpoint"),
        (de.shadow_ops, "embedding_lookup_unique_base", "embedding_lookup_unique"),
        (de.shadow_ops, "HvdVariable", "devices"),
        (de.train, "DEHvdSaver", "Saver"),
    ],
)
def test_a_name_without_a_counterpart_can_be_imported_and_its_use_names_the_remedy(
    module, name, replacement
):
    stand_in = getattr(module, name)
    assert not isinstance(3, stand_in)
    with pytest.raises(NotImplementedError, match=f"{name} must not be used.*{replacement}"):
        stand_in(8)
    with pytest.raises(AttributeError, match=f"{name} has no attribute 'LRU': .*{replacement}"):
        stand_in.LRU  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'never_was'$"):
        module.never_was  # noqa: B018


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("Variable", name) for name in sorted(removed_names.VARIABLE)),
        *(("TrainableWrapper", name) for name in sorted(removed_names.TRAINABLE_WRAPPER)),
    ],
)
def test_a_removed_method_names_its_replacement(kind, name):
    table = de_core.Variable()
    owner = table if kind == "Variable" else de_core.TrainableWrapper(table, [1])
    with pytest.raises(AttributeError, match=rf"'{kind}' object has no attribute '{name}': \w"):
        getattr(owner, name)
    assert not hasattr(owner, name)
    with pytest.raises(AttributeError, match=rf"'{kind}' object has no attribute 'never_was'$"):
        owner.never_was  # noqa: B018


def test_a_layer_whose_creator_has_a_saver_is_saved_and_loaded(tmp_path):
    creator = de.CuckooHashTableCreator(de.CuckooHashTableConfig(), de.FileSystemSaver())
    layer = de.keras.layers.Embedding(2, name="rows_in_files", kv_creator=creator)
    model = keras.Sequential([keras.Input([2], dtype="int64"), layer])
    layer.params.upsert([1, 2], [[1.0, 2.0], [3.0, 4.0]])
    model.save(tmp_path / "model.keras")
    ids = np.array([[1, 2]])
    rows = keras.models.load_model(tmp_path / "model.keras").predict(ids, verbose=0)
    assert rows.tolist() == [[[1, 2], [3, 4]]]
    de.keras.models.de_save_model(model, str(tmp_path / "saved_model"))
    assert (tmp_path / "saved_model/saved_model.pb").exists()


def test_a_creator_without_a_storage_is_refused():
    class Mine(de.KVCreator):
        pass

    with pytest.raises(NotImplementedError, match=r"must define `create`.*Received: .*Mine"):
        de.Variable(kv_creator=Mine())
    assert de.Variable(kv_creator=de.CuckooHashTableCreator(saver=de.FileSystemSaver())).size() == 0
    with pytest.raises(TypeError, match=r"`kv_creator` must be a de.KVCreator. Received: .*'x'"):
        de.Variable(kv_creator="x")
