"""Fills Variables from checkpoints of other runs and of tfra."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support.models import looker, rows_of


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
        optimizer.apply([tf.IndexedSlices(tf.ones([9, 2]), tf.range(9, dtype=tf.int64))], [old])
        de.checkpoint.save(old, tmp_path)
        [momenta] = old.get_slot_variables(optimizer)
        assert len(rows_of(momenta)) == 9
        for slots in (False, True):
            new = de.Variable(dim=2, name="ws/slots", devices=["/CPU:0"] * (3 - tables))
            de.warm_start(tmp_path, [new], slots=slots)
            assert int(new.size()) == 9
            found = [rows_of(each) for each in new.get_slot_variables(optimizer)]
            assert found == ([rows_of(momenta)] if slots else [])

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
        module = looker(table)
        entry_point = de.export if kind == "export" else de.publish
        return str(entry_point(module, path, module.look))
