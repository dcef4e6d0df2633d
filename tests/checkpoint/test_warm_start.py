"""Fills Variables from checkpoints of other runs and of tfra."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de


def filled(name, value, dim=2, **arguments):
    table = de.Variable(dim=dim, name=name, **arguments)
    table.upsert(np.arange(100), np.full([100, dim], value, np.float32))
    return table


def first_of(table):
    return float(table.lookup([5])[0, 0])


@pytest.fixture
def saved(tmp_path):
    de.checkpoint.save([filled("ws/user", 1.0), filled("ws/item", 2.0)], tmp_path)
    return tmp_path


class TestWarmStart:
    def test_by_regular_expression(self, saved):
        user, item = de.Variable(dim=2, name="ws/user"), de.Variable(dim=2, name="ws/item")
        other = de.Variable(dim=2, name="else")
        assert de.warm_start(saved, "ws/u") == ["ws/user"]
        assert [first_of(each) for each in (user, item, other)] == [1, 0, 0]
        assert sorted(de.warm_start(saved, ["ws/i", ".*/user"])) == ["ws/item", "ws/user"]
        assert [first_of(each) for each in (user, item, other)] == [1, 2, 0]

    def test_by_a_map_of_names(self, saved):
        new = de.Variable(dim=2, name="ws2/customer", devices=["/CPU:0"] * 3)
        de.warm_start(saved, [new], {"ws2/customer": "ws/user"})
        assert first_of(new) == 1
        assert int(new.size()) == 100

    @pytest.mark.parametrize("tables", [1, 2])
    def test_rows_that_the_checkpoint_lacks_stay_where_asked(self, saved, tables):
        for merge in (False, True):
            user = de.Variable(dim=2, name="ws/user", devices=["/CPU:0"] * tables)
            user.upsert([5, 1000], np.full([2, 2], 7, np.float32))
            assert de.warm_start(saved, [user], merge=merge) == ["ws/user"]
            rows, found = user.lookup([5, 1000], return_exists=True)
            assert found.numpy().tolist() == [True, merge]
            assert rows.numpy()[:, 0].tolist() == [1.0, 7.0 if merge else 0.0]

    @pytest.mark.parametrize("tables", [1, 2])
    def test_slots_are_read_where_asked(self, tmp_path, tables):
        old = de.Variable(dim=2, name="ws/slots", devices=["/CPU:0"] * tables)
        optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.1, momentum=0.5))
        optimizer.build(old.trainable_variables)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((de.embedding_lookup(old, np.arange(9)) - 1.0) ** 2)
        variables = old.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        de.checkpoint.save(old, tmp_path)
        slot = f"{optimizer.slots_owner.numpy().decode()}/momentum"

        def momenta(table):
            exports = [each.export(slot) for each in table.tables]
            keys, values = (np.concatenate(each) for each in zip(*exports, strict=True))
            return dict(zip(keys.tolist(), values.tolist(), strict=True))

        assert len(momenta(old)) == 9
        for slots in (False, True):
            new = de.Variable(dim=2, name="ws/slots", devices=["/CPU:0"] * (3 - tables))
            de.warm_start(tmp_path, [new], slots=slots)
            assert int(new.size()) == 9
            if slots:
                assert momenta(new) == momenta(old)
            else:
                with pytest.raises(tf.errors.NotFoundError, match=slot):
                    momenta(new)

    def test_values_of_another_dtype_are_taken_where_asked(self, saved):
        half = de.Variable(dim=2, name="ws/user", value_dtype=tf.float16)
        with pytest.raises(tf.errors.InvalidArgumentError, match="float32"):
            de.warm_start(saved, [half])
        assert int(half.size()) == 0
        de.warm_start(saved, [half], convert=True)
        assert first_of(half) == 1
        assert int(half.size()) == 100

    def test_a_pattern_without_a_match_is_an_error(self, saved):
        new = de.Variable(dim=2, name="ws3/new")
        with pytest.raises(ValueError, match=r"match the name of at least one.*'nobody'.*ws3/new"):
            de.warm_start(saved, "nobody")
        with pytest.raises(ValueError, match=r"must contain a table.*no \['ws3/new'\].*'ws/item'"):
            de.warm_start(saved, [new])
        with pytest.raises(ValueError, match=r"that are to be filled.*'stranger'"):
            de.warm_start(saved, [new], {"ws3/new": "ws/user", "stranger": "ws/item"})
        with pytest.raises(ValueError, match="regular expression of Python's"):
            de.warm_start(saved, "(")
        with pytest.raises(TypeError, match="regular expression"):
            de.warm_start(saved, 3)
        assert int(new.size()) == 0

    def test_a_session_begins_with_the_rows(self, saved):
        v1 = tf.compat.v1
        with tf.Graph().as_default():
            user = de.get_variable("ws/user", dim=2, devices=["/CPU:0"] * 2)
            size, rows = user.size(), user.lookup(tf.constant([5], tf.int64))
            v1.train.get_or_create_global_step()
            hook = de.WarmStartHook(str(saved), "ws/user")
            with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                assert session.run(size) == 100
                np.testing.assert_array_equal(session.run(rows), [[1, 1]])

    @pytest.mark.parametrize("kind", ["checkpoint", "manager", "saver", "export", "published"])
    def test_a_graph_begins_with_the_rows_of_other_checkpoints(self, tmp_path, kind):
        path, v1 = str(tmp_path / "saved"), tf.compat.v1
        if kind == "saver":
            with tf.Graph().as_default(), v1.Session() as session:
                old = de.get_variable("ws/user", dim=2)
                fill = old.upsert(np.arange(100), np.full([100, 2], 1.0, np.float32))
                session.run(v1.global_variables_initializer())
                session.run(fill)
                path = v1.train.Saver().save(session, path, global_step=1)
        else:
            path = self.written(kind, filled("ws/user", 1.0), path)
        with tf.Graph().as_default(), v1.Session() as session:
            new = de.get_variable("ws/user", dim=2, devices=["/CPU:0"] * 2)
            begin, rows, size = de.warm_start(path, [new]), new.lookup(np.arange(100)), new.size()
            session.run(v1.global_variables_initializer())
            session.run(begin)
            np.testing.assert_array_equal(session.run(rows), np.ones([100, 2]))
            assert session.run(size) == 100

    @staticmethod
    def written(kind, table, path):
        """Saves a table in eager mode and returns the path."""
        if kind == "checkpoint":
            return tf.train.Checkpoint(table=table).write(path)
        if kind == "manager":
            manager = de.checkpoint.Manager(tf.train.Checkpoint(table=table), path)
            table.upsert([5], [[7.0, 7.0]])
            manager.save()
            table.upsert([5], [[1.0, 1.0]])
            return manager.save()
        module = tf.Module()
        module.table = table
        specs = [tf.TensorSpec([None], tf.int64)]
        module.look = tf.function(table.lookup, input_signature=specs)
        entry_point = de.export if kind == "export" else de.publish
        return str(entry_point(module, path, module.look))


def tensors(shards, name="user_embedding", dtype=np.float32, first=0):
    """Returns a table's tensors in the form of tfra's checkpoints, and the table's rows."""
    rng = np.random.default_rng(shards)
    found, rows = {}, {}
    for index in range(shards):
        keys = np.arange(index, 50, shards, dtype=np.int64) - 10 + first
        values = rng.normal(size=(len(keys), 3)).astype(dtype)
        found[f"{name}_mht_{index + 1}of{shards}-keys"] = keys
        found[f"{name}_mht_{index + 1}of{shards}-values"] = values
        rows |= dict(zip(keys.tolist(), values.tolist(), strict=True))
    return found, rows


def write(prefix, found, ending=""):
    prefix.parent.mkdir(parents=True, exist_ok=True)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=[name + ending for name in found] + ["dense"],
        shape_and_slices=[""] * (len(found) + 1),
        tensors=[*found.values(), tf.constant(1.0)],
    )


def rows_of(table):
    keys, values = table.export()
    return dict(zip(keys.numpy().tolist(), values.numpy().tolist(), strict=True))


class TestImport:
    @pytest.mark.parametrize("shards", [1, 4])
    def test_tensors_of_a_checkpoint_and_of_a_saved_model(self, tmp_path, shards):
        found, rows = tensors(shards)
        slots, slot_rows = tensors(shards, "user_embedding/Adam/m")
        write(tmp_path / "c", found | slots)
        tables = de.import_tfra(tmp_path / "c")
        assert {name: rows_of(table) for name, table in tables.items()} == {
            "user_embedding": rows,
            "user_embedding/Adam/m": slot_rows,
        }
        write(tmp_path / "model" / "variables" / "variables", found)
        target = de.Variable(dim=3, devices=["/CPU:0"] * 2)
        de.import_tfra(tmp_path / "model", target)
        assert rows_of(target) == rows

    def test_tensors_of_an_object(self, tmp_path):
        found, rows = tensors(2)
        names = {f"model/layer/table/.ATTRIBUTES/{name}": data for name, data in found.items()}
        write(tmp_path / "c", names)
        assert rows_of(de.import_tfra(tmp_path / "c")["user_embedding"]) == rows

    @pytest.mark.parametrize("dtype", [np.float32, np.float16])
    @pytest.mark.parametrize("ending", ["", "_rank0_size1"])
    def test_key_value_files(self, tmp_path, dtype, ending):
        found, rows = tensors(3, dtype=dtype)
        for name, data in found.items():
            (tmp_path / name.replace("-", f"{ending}-")).write_bytes(data.tobytes())
        tables = de.import_tfra(tmp_path, value_dtype=dtype, dim=3)
        assert rows_of(tables["user_embedding"]) == rows

    def test_an_unusable_checkpoint_is_named_in_the_error(self, tmp_path):
        found, _ = tensors(2)
        with pytest.raises(tf.errors.NotFoundError, match="must be"):
            de.import_tfra(tmp_path / "absent")
        with pytest.raises(ValueError, match="must hold tables"):
            de.import_tfra(tmp_path)
        write(tmp_path / "c", dict(list(found.items())[:2]))
        with pytest.raises(ValueError, match=r"All 2 shards.*no \[2\]"):
            de.import_tfra(tmp_path / "c")
        write(tmp_path / "d", dict(list(found.items())[:3]))
        with pytest.raises(ValueError, match="must come with"):
            de.import_tfra(tmp_path / "d")
        write(tmp_path / "e", {**found, "user_embedding_mht_1of2-values": np.zeros([3, 3])})
        with pytest.raises(ValueError, match="shape"):
            de.import_tfra(tmp_path / "e")
        write(tmp_path / "f", found)
        with pytest.raises(ValueError, match="dtypes and dim"):
            de.import_tfra(tmp_path / "f", {"user_embedding": de.Variable(dim=4)})
        with pytest.raises(ValueError, match=r"must hold tables.*'user_embedding'"):
            de.import_tfra(tmp_path / "f", tables="item.*")
        with pytest.raises(ValueError, match=r"`tables` must be a regular.*'\('"):
            de.import_tfra(tmp_path / "f", tables="(")
        for name, data in found.items():
            (tmp_path / name).write_bytes(data.tobytes())
        with pytest.raises(ValueError, match="pass `value_dtype` and `dim`"):
            de.import_tfra(tmp_path)
        with pytest.raises(ValueError, match="a row for each key"):
            de.import_tfra(tmp_path, value_dtype=tf.float32, dim=4)
        with pytest.raises(ValueError, match="addresses"):
            de.import_tfra(tmp_path, key_dtype=tf.string, value_dtype=tf.float32, dim=3)
